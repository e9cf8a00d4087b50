"""Gymnasium environments over a JAX environment, against it and Gymnasium's vector environments."""

import functools
import math
import pickle
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from downside.envs import (
    AmericanPut,
    CliffWalk,
    GymnasiumEnv,
    GymnasiumVectorEnv,
    MeanReversion,
    OptionState,
)
from tests.envs.scripted import GO_ON, TERMINATE, TRUNCATE, Scripted

CORES = [
    AmericanPut(),
    AmericanPut(kind="call", process="ou", sigma=0.5),
    MeanReversion(),
    MeanReversion(inventory_limit=3.0),
    CliffWalk(slip=0.3, horizon=20),
]
MODES = list(AutoresetMode)
every_core = pytest.mark.parametrize("core", CORES, ids=repr)
every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


def actions_and_noise(core, shape, seed=0):
    rng = np.random.default_rng(seed)
    noise = jax.vmap(core.sample_noise)(jax.random.split(jax.random.key(seed), math.prod(shape)))
    return rng.integers(core.num_actions, size=shape), np.asarray(noise).reshape(shape)


@pytest.mark.slow
@pytest.mark.parametrize("core", [CORES[0], CORES[3], CORES[4]], ids=repr)
def test_the_face_and_the_core_agree_over_ten_thousand_random_steps(core):
    actions, noise = actions_and_noise(core, (10_000,))
    start = core.initial_state(jax.random.key(0))

    def body(state, inputs):
        step = core.step_with_noise(state, *inputs)
        over = step.terminated | step.truncated
        state = jax.tree.map(lambda a, b: jnp.where(over, a, b), start, step.state)
        return state, step

    inputs = jnp.asarray(actions), jnp.asarray(noise)
    steps = jax.device_get(jax.jit(lambda: jax.lax.scan(body, start, inputs)[1])())

    face = GymnasiumEnv(core)
    face.reset(seed=0)
    played = []
    for action, shock in zip(actions, noise, strict=True):
        observation, reward, terminated, truncated, _ = face.step_with_noise(action, shock)
        played.append((observation, reward, terminated, truncated))
        if terminated or truncated:
            face.reset()
    observations, rewards, terminated, truncated = map(np.array, zip(*played, strict=True))
    np.testing.assert_allclose(observations, steps.observation, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rewards, steps.reward, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(terminated, steps.terminated)
    np.testing.assert_array_equal(truncated, steps.truncated)


def numpy_put(state, action, noise):
    price, time = state
    after = price * np.exp((-0.3 - 0.5 * 0.3**2) * 0.1 + 0.3 * np.sqrt(0.1) * noise)
    if action == 1:
        return (after, time + 1), max(1.0 - price, 0.0), True
    last = time == 9
    return (after, time + 1), max(1.0 - after, 0.0) * last, last


def numpy_trading(state, action, noise):
    price, inventory, time = state
    trade = -2.0 + 0.2 * action
    deviation = np.sqrt((1.0 - np.exp(-0.4)) / 4.0)
    after = 1.0 + (price - 1.0) * np.exp(-0.2) + deviation * noise
    held = inventory + trade
    reward = -trade * price - 0.005 * trade**2
    if time == 9:
        reward += held * after - 0.5 * held**2
    return (after, held, time + 1), reward, time == 9


@pytest.mark.parametrize(
    ("core", "reference", "start"),
    [(AmericanPut(), numpy_put, (1.0, 0)), (MeanReversion(), numpy_trading, (1.0, 0.0, 0))],
)
def test_in_64_bits_the_core_is_a_plain_numpy_simulation_to_twelve_digits(core, reference, start):
    actions, noise = actions_and_noise(core, (400,), seed=3)
    with jax.enable_x64(True):
        step = jax.jit(core.transition)
        first = core.initial_state(jax.random.key(0))
        state, expected = first, start
        for action, shock in zip(actions, noise.astype(np.float64), strict=True):
            after = step(state, action, shock)
            expected, reward, terminated = reference(expected, action, shock)
            np.testing.assert_allclose(after.reward, reward, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(np.array(after.state, float), expected, rtol=1e-12)
            assert after.terminated == terminated
            state, expected = (first, start) if terminated else (after.state, expected)


@pytest.mark.slow
@every_core
def test_the_gymnasium_vector_env_and_the_single_face_agree_on_the_same_noise(core):
    actions, noise = actions_and_noise(core, (30, 4))
    vector = GymnasiumVectorEnv(core, 4, autoreset_mode=AutoresetMode.SAME_STEP)
    singles = [GymnasiumEnv(core) for _ in range(4)]
    vector.reset(seed=0)
    for single in singles:
        single.reset(seed=0)
    for step in range(30):
        observations, rewards, terminated, truncated, infos = vector.step_with_noise(
            actions[step], noise[step]
        )
        for i, single in enumerate(singles):
            observation, reward, *ended, info = single.step_with_noise(
                actions[step, i], noise[step, i]
            )
            np.testing.assert_allclose(rewards[i], reward, rtol=1e-5, atol=1e-6)
            assert [terminated[i], truncated[i]] == ended
            if any(ended):
                np.testing.assert_allclose(infos["final_obs"][i], observation, rtol=1e-5)
                final_mask = infos["final_info"]["action_mask"][i]
                np.testing.assert_array_equal(final_mask, info["action_mask"])
                observation, info = single.reset()
            np.testing.assert_allclose(observations[i], observation, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(infos["action_mask"][i], info["action_mask"])


def assert_same(ours, theirs):
    """Equal results of two vector environments, infos with all their keys included."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        for our, their in zip(ours, theirs, strict=True):
            assert (our is None) == (their is None)
            np.testing.assert_array_equal(our, their)
    else:
        np.testing.assert_array_equal(ours, theirs)
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype


@pytest.mark.slow
@every_mode
def test_the_native_vector_environment_does_what_gymnasiums_own_does(mode):
    ours = GymnasiumVectorEnv(Scripted(), 3, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: GymnasiumEnv(Scripted())] * 3, autoreset_mode=mode)
    assert ours.metadata["autoreset_mode"] is mode
    assert_same(ours.reset(seed=0)[0], theirs.reset(seed=0)[0])
    rng = np.random.default_rng(0)
    for _ in range(40):
        actions = rng.choice([GO_ON, TERMINATE, TRUNCATE], p=[0.6, 0.2, 0.2], size=3)
        our, their = ours.step(actions), theirs.step(actions)
        for mine, other in zip(our, their, strict=True):
            assert_same(mine, other)
        ended = our[2] | our[3]
        if mode is AutoresetMode.DISABLED and ended.any():
            our, their = (
                envs.reset(options={"reset_mask": ended.copy()}) for envs in (ours, theirs)
            )
            assert_same(our[0], their[0])


def test_a_seed_makes_the_vector_environment_repeat_itself():
    envs = GymnasiumVectorEnv("MeanReversion", 5)

    def run(seed):
        envs.reset(seed=seed)
        return np.stack([envs.step(np.full(5, 10))[0] for _ in range(15)])

    first = run(1)
    np.testing.assert_array_equal(first, run(1))
    assert not np.array_equal(first, run(2))
    assert not np.array_equal(first, run(None))


def test_legal_actions_are_in_the_info_in_the_form_that_sampling_takes():
    env = gym.make("downside/MeanReversion-v0", inventory_limit=1.0)
    _, info = env.reset(seed=0)
    # Trades of -1.0 to 1.0 keep an empty inventory within 1: actions 5 to 15.
    np.testing.assert_array_equal(np.flatnonzero(info["action_mask"]), np.arange(5, 16))
    env.action_space.seed(0)
    for _ in range(10):
        action = env.action_space.sample(info["action_mask"])
        observation, *_, info = env.step(action)
        assert abs(observation[1]) <= 1.0


def test_an_episode_can_start_from_a_given_state():
    face = GymnasiumEnv(AmericanPut())
    observation, _ = face.reset(options={"state": OptionState(jnp.array(0.5), jnp.array(9))})
    np.testing.assert_allclose(observation, [0.5, 0.9], rtol=1e-6)
    assert face.step(1)[1] == 0.5


def test_a_state_of_another_kind_is_refused():
    with pytest.raises(ValueError, match=r"`options\['state'\]` must be a OptionState, got 3"):
        GymnasiumEnv(AmericanPut()).reset(options={"state": 3})


def test_a_step_before_the_reset_or_after_the_end_is_refused():
    face = GymnasiumEnv(AmericanPut())
    with pytest.raises(gym.error.ResetNeeded, match="Call `reset` before `step`"):
        face.step(0)
    face.reset(seed=0)
    face.step(1)
    with pytest.raises(gym.error.ResetNeeded, match="Call `reset` before `step`"):
        face.step(0)


def test_a_vector_step_before_the_reset_is_refused():
    with pytest.raises(gym.error.ResetNeeded, match="Call `reset` before `step`"):
        GymnasiumVectorEnv(AmericanPut(), 2).step([0, 0])


def test_without_autoreset_a_copy_that_has_ended_must_be_reset_first():
    envs = GymnasiumVectorEnv(Scripted(), 3, autoreset_mode="Disabled")
    envs.reset(seed=0)
    envs.step([GO_ON, TERMINATE, TRUNCATE])
    with pytest.raises(gym.error.ResetNeeded, match=r"copies \[1, 2\] are over"):
        envs.step([GO_ON, GO_ON, GO_ON])


@pytest.mark.parametrize("action", [2, -1, 0.5, [0], "hold", None])
def test_an_action_outside_the_space_is_refused(action):
    face = GymnasiumEnv(AmericanPut())
    face.reset(seed=0)
    with pytest.raises(ValueError, match="`action` must be a whole number from 0 to 1, got"):
        face.step(action)


@pytest.mark.parametrize("actions", [[0, 2], [0, -1], [0.0, 1.0], [0], [[0, 1]]])
def test_vector_actions_outside_the_space_are_refused(actions):
    envs = GymnasiumVectorEnv(AmericanPut(), 2)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="`actions` must be 2 whole numbers from 0 to 1, got"):
        envs.step(actions)


@pytest.mark.parametrize(
    "mask", [[True, False], np.array([1, 0]), np.array([True]), np.array([False, False])]
)
def test_a_malformed_reset_mask_is_refused(mask):
    envs = GymnasiumVectorEnv(AmericanPut(), 2)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"`options\['reset_mask'\]` must"):
        envs.reset(options={"reset_mask": mask})


def test_a_reset_of_some_copies_needs_running_ones():
    with pytest.raises(gym.error.ResetNeeded, match=r"Call `reset\(\)` first"):
        GymnasiumVectorEnv(AmericanPut(), 1).reset(options={"reset_mask": np.array([True])})


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (
            functools.partial(GymnasiumEnv, "AmericanPot"),
            ValueError,
            "mean 'AmericanPut'",
        ),
        (functools.partial(GymnasiumEnv, AmericanPut(), sigma=1.0), TypeError, "cannot be set"),
        (
            functools.partial(GymnasiumEnv, "CliffWalk", render_mode="x"),
            ValueError,
            "render_mode",
        ),
        (functools.partial(GymnasiumVectorEnv, "AmericanPut", 0), ValueError, "num_envs"),
        (
            functools.partial(GymnasiumVectorEnv, "AmericanPut", 2, autoreset_mode="Never"),
            ValueError,
            "`autoreset_mode` must be one of",
        ),
        (
            functools.partial(GymnasiumVectorEnv, "AmericanPut", 2, render_mode="rgb_array"),
            ValueError,
            "`render_mode` must be None",
        ),
    ],
)
def test_bad_arguments_of_the_faces_are_met_with_a_sentence(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_a_running_episode_survives_pickling():
    face: Any = GymnasiumEnv(MeanReversion())
    face.reset(seed=4)
    face.step(3)
    copy = pickle.loads(pickle.dumps(face))  # noqa: S301 - our own object
    np.testing.assert_array_equal(face.step(5)[0], copy.step(5)[0])
