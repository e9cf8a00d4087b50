"""Pictures: bytes stay bytes, convolutions learn from them, and a buffer that is too large is
refused before it is allocated."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside import _memory
from downside.agents.networks import channel_axis
from downside.train.backends.gymnasium.state import channel_statistics


class Side(gym.Env):
    """One half of a picture is bright; the reward is 1 for saying which. Then it is over."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, shape=(6, 6, 1)):
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.side = int(self.np_random.integers(2))
        return self._picture(), {}

    def _picture(self):
        shape = self.observation_space.shape
        picture = self.np_random.integers(0, 60, shape, dtype=np.uint8)
        columns = slice(0, 3) if self.side == 0 else slice(3, 6)
        picture[:, columns] += np.uint8(150)
        return picture

    def step(self, action):
        return self._picture(), float(action == self.side), True, False, {}


SMALL = {
    "hidden_sizes": (16,),
    "quantiles": 4,
    "batch_size": 16,
    "num_envs": 4,
    "warmup_steps": 100,
    "buffer_size": 500,
    "outer_interval": 50,
    "n_steps": 1,
    "updates_per_step": 2,
    "learning_rate": 3e-3,
    "exploration_fraction": 0.5,
}


def vector(count=4):
    return gym.vector.SyncVectorEnv(
        [Side] * count, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )


@pytest.fixture(scope="module")
def trained():
    agent = ds.QRSRM("CnnPolicy", vector(), risk="cvar(0.5)", **SMALL)
    return agent.learn(1000)


@pytest.mark.long
def test_pixels_stay_bytes_and_convolutions_learn_from_them(trained):
    replay = trained._driver.backend.experience.replay
    assert replay.storage.state.observation.dtype == np.uint8
    assert replay.storage.next_state.observation.dtype == np.uint8
    assert isinstance(trained.networks.quantiles.trunk, ds.CNN)
    assert trained.settings.history_length == 0
    env = trained.wrap(Side())
    right = 0
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        action, _ = trained.predict(observation)
        right += env.step(action)[1]
    assert right == 20


@pytest.mark.slow
def test_a_policy_on_pictures_is_loaded_without_saying_that_it_has_convolutions(trained, tmp_path):
    again = ds.load(trained.save(tmp_path / "pictures"), env=vector())
    env = trained.wrap(Side())
    observations = np.stack([env.reset(seed=seed)[0] for seed in range(5)])
    np.testing.assert_array_equal(again.scores(observations), trained.scores(observations))


def test_the_pixels_of_a_channel_are_scaled_alike():
    # Channel 0 is 0 or 2 (mean 1, deviation 1), channel 1 always 7.
    picture = np.full((1, 4, 5, 2), 7, np.uint8)
    picture[..., 0] = np.array([0, 2] * 10).reshape(4, 5)
    mean, deviation = channel_statistics(picture.reshape(1, -1), (4, 5, 2))
    np.testing.assert_allclose(mean.reshape(4, 5, 2)[3, 4], [1.0, 7.0])
    np.testing.assert_allclose(deviation.reshape(4, 5, 2)[0, 1], [1.0, 0.0])
    first = np.moveaxis(picture, -1, 1)
    mean, _ = channel_statistics(first.reshape(1, -1), (2, 4, 5))
    np.testing.assert_allclose(mean.reshape(2, 4, 5)[:, 0, 0], [1.0, 7.0])


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(84, 84, 4), (4, 84, 84), (84, 84)])
def test_channels_may_come_first_or_last_or_not_at_all(shape):
    size = int(np.prod(shape)) + 2
    network = ds.CNN(jax.random.key(0), size, shape)
    # 84 -> 20 -> 9 -> 7 pixels with 64 channels, and (s, c).
    assert network.mlp.layers[0].weight.shape == (7 * 7 * 64 + 2, 512)
    assert jax.eval_shape(network, jnp.zeros(size)).shape == (512,)


@pytest.mark.slow
def test_a_picture_with_its_channels_moved_has_the_same_features():
    key, pixels = jax.random.key(3), jax.random.normal(jax.random.key(4), (7, 8, 3))
    last = ds.cnn((7, 8, 3), (10,))(key, 7 * 8 * 3)(pixels.ravel())
    first = ds.cnn((3, 7, 8), (10,))(key, 7 * 8 * 3)(jnp.moveaxis(pixels, -1, 0).ravel())
    np.testing.assert_allclose(first, last, rtol=1e-5)


def test_what_is_no_picture_is_refused():
    assert channel_axis((3, 3, 3)) is None
    with pytest.raises(ValueError, match=r"`env` must show pictures for convolutions.*\(4,\)"):
        ds.QRDQN("CnnPolicy", "CartPole-v1")
    with pytest.raises(ValueError, match="`history_length` must be 0 with convolutions, got 1"):
        ds.QRSRM("CnnPolicy", Side(), risk="cvar(0.5)", history_length=1)
    with pytest.raises(ValueError, match="`shape` must have as many pixels"):
        ds.cnn((84, 84, 4))(jax.random.key(0), 100)


def test_a_buffer_that_does_not_fit_is_refused_with_its_size_and_one_that_does(monkeypatch):
    monkeypatch.setattr(_memory, "free_memory", lambda: 2**30)
    # A transition has two pictures of 108 bytes, an action mask of 2, and 33 bytes of numbers.
    with pytest.raises(
        ValueError,
        match=r"`buffer_size` must fit into memory, got 10,000,000: .* need 2\.\d+ GiB, and 1 GiB "
        r"are free\. Take buffer_size=2_\d00_000",
    ):
        ds.QRDQN(Side((6, 6, 3)), buffer_size=10_000_000)
    ds.QRDQN(Side((6, 6, 3)), buffer_size=2_000_000)
    with pytest.raises(ValueError, match='With "CnnPolicy", or history_length=0, bytes are'):
        ds.QRSRM(Side(), risk="cvar(0.5)", buffer_size=10_000_000)


def test_free_memory_is_known_here():
    free = _memory.free_memory()
    assert free is not None
    assert 2**20 < free < 2**50
    assert _memory.in_words(1536) == "1.5 KiB"
