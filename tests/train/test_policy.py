"""What an agent has learned, as something that acts."""

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.envs import GymnasiumEnv, GymnasiumVectorEnv
from downside.train.backends.jax.backend import GreedyPolicy

from .tiny import ENV, TINY, TWO, make

pytestmark = pytest.mark.slow  # what all tests look at takes long to make


@pytest.fixture(scope="module")
def trained():
    return make().learn(TWO)


@pytest.fixture(scope="module")
def cvar_agent():
    return ds.QRCVaR(ENV, risk="cvar(0.5)", **TINY).learn(TWO)


OBSERVATIONS = np.array([[1.0, 0.0, 0.0, 0.0, 1.0], [0.4, 1.0, 1 / 3, -0.5, 0.99]])


def test_a_batch_is_predicted_as_its_rows(trained):
    actions, state = trained.predict(OBSERVATIONS, state="mine")
    assert state == "mine"
    assert actions.shape == (2,)
    for observation, action in zip(OBSERVATIONS, actions, strict=True):
        single, _ = trained.predict(observation)
        assert (single, type(single)) == (action, int)
    scores = trained.scores(OBSERVATIONS)
    assert scores.shape == (2, 5)
    np.testing.assert_array_equal(actions, scores.argmax(axis=1))
    np.testing.assert_allclose(trained.scores(OBSERVATIONS[0]), scores[0], rtol=1e-4)


def test_masked_actions_are_not_predicted(trained):
    scores = trained.scores(OBSERVATIONS)
    for action in range(5):
        only = np.arange(5) == action
        assert trained.predict(OBSERVATIONS[0], action_masks=only)[0] == action
    without_best = np.ones((2, 5), np.int8)
    without_best[np.arange(2), scores.argmax(axis=1)] = 0
    second = np.argsort(scores, axis=1)[:, -2]
    np.testing.assert_array_equal(
        trained.predict(OBSERVATIONS, action_masks=without_best)[0], second
    )


def test_shapes_that_do_not_fit_are_refused(trained):
    with pytest.raises(ValueError, match=r"`observation` must have shape \(5,\) or \(n, 5\), got "):
        trained.predict(np.zeros(3))
    with pytest.raises(ValueError, match=r"`observation` must have shape"):
        trained.predict(np.zeros((2, 2, 5)))
    with pytest.raises(ValueError, match=r"`action_masks` must have shape \(1, 5\), got \(4,\)"):
        trained.predict(OBSERVATIONS[0], action_masks=np.ones(4))


def test_exploring_predictions_are_legal_and_differ_now_and_then(trained):
    many = np.repeat(OBSERVATIONS[:1], 400, axis=0)
    mask = np.array([1, 0, 1, 1, 0])
    actions, _ = trained.predict(many, deterministic=False, action_masks=mask)
    assert mask[actions].all()
    greedy = trained.predict(OBSERVATIONS[0], action_masks=mask)[0]
    # A tenth explores, a third of it draws the greedy action: 27 differ, standard deviation 5.
    assert 5 < (actions != greedy).sum() < 60


def test_the_return_distribution_is_sorted(trained):
    single = trained.return_distribution(OBSERVATIONS[0])
    both = trained.return_distribution(OBSERVATIONS)
    assert (single.shape, both.shape) == ((5, 5), (2, 5, 5))
    assert np.all(np.diff(both, axis=-1) >= 0.0)
    assert both.std() > 0.0
    np.testing.assert_allclose(both[0], single, rtol=1e-4, atol=1e-5)


def test_the_utility_is_that_of_the_outer_variable(trained):
    z, outer = jnp.linspace(-2.0, 2.0, 9), trained.outer_variable
    expected = outer.location + outer.utility(z - outer.location)
    np.testing.assert_allclose(trained.utility(z), expected, rtol=1e-4, atol=1e-5)
    assert trained.policy.best.outer is outer


@pytest.mark.parametrize("name", ["trained", "cvar_agent"])
def test_acting_in_the_wrapped_environment_is_the_policy(name, request):
    agent = request.getfixturevalue(name)
    face = GymnasiumEnv(core=ENV)
    env = agent.wrap(face)
    policy = GreedyPolicy(agent.policy.learner, agent.networks, agent.outer_variable, ENV)
    observation, info = env.reset(seed=5)
    accumulated, discount, over = 0.0, 1.0, False
    while not over:
        assert env.observation_space.contains(observation)
        action, _ = agent.predict(observation, action_masks=info["action_mask"])
        expected = policy(face.state, jnp.asarray(accumulated), jnp.asarray(discount))
        assert action == int(expected)
        assert info["action_mask"][action]
        observation, reward, terminated, truncated, info = env.step(action)
        accumulated, discount = accumulated + discount * reward, 0.99 * discount
        over = terminated or truncated
    assert discount == pytest.approx(0.99**3)


def test_the_default_environment_and_vectors_are_wrapped_too(trained, cvar_agent):
    observation, _ = trained.wrap().reset(seed=0)
    np.testing.assert_allclose(observation, [1, 0, 0, 0, 1])
    observation, _ = cvar_agent.wrap().reset(seed=0)
    np.testing.assert_allclose(observation, [1, 0, 0, float(cvar_agent.outer_variable)], rtol=1e-6)
    env = trained.wrap(GymnasiumVectorEnv(core=ENV, num_envs=2))
    assert isinstance(env, gym.vector.VectorEnv)
    observations, _ = env.reset(seed=0)
    assert trained.predict(observations)[0].shape == (2,)


def test_simulated_returns_depend_on_the_seed_alone(trained):
    returns = trained.simulate_returns(20, seed=3)
    assert returns.shape == (20,)
    np.testing.assert_array_equal(trained.simulate_returns(10, seed=3), returns[:10])
    assert not np.allclose(trained.simulate_returns(10, seed=4), returns[:10])


def test_simulated_returns_are_those_of_acting_in_the_environment(trained):
    # Both are samples of one distribution: 300 episodes with a standard deviation of about 1.
    env = trained.wrap(GymnasiumVectorEnv(core=ENV, num_envs=300))
    observations, infos = env.reset(seed=7)
    total = np.zeros(300)
    for time in range(3):
        actions, _ = trained.predict(observations, action_masks=infos["action_mask"])
        observations, rewards, *_, infos = env.step(actions)
        total += 0.99**time * rewards
    simulated = trained.simulate_returns(20_000, seed=1)
    error = np.hypot(total.std() / np.sqrt(300), simulated.std() / np.sqrt(20_000))
    assert abs(total.mean() - simulated.mean()) < 4 * error
