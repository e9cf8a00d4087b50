"""PG-SRM against closed forms, and its gradient against the one it should be."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import downside as ds
from downside.agents import ActorSRM, PathwiseLearner
from downside.agents.branching import input_statistics
from downside.agents.pgsrm import mean_of_batches, risk_share
from downside.agents.settings import PathwiseSettings
from downside.envs import MeanReversion
from downside.envs.memory_env import initial_memory
from downside.envs.rollout import unroll

from ..envs.steered import Steered
from .gambles import SecondChance, Stake, Stakes, Wait

SMALL = {"hidden_sizes": (8,), "batch_size": 512, "outer_interval": 50, "outer_episodes": 2048}


def stake_optimum(mean, level):
    """The best a in [0, 2] of a (0.5 - k) - a²/4 and its value; k is the tail's part."""
    tail = (1 - mean) * stats.norm.pdf(stats.norm.ppf(level)) / level
    stake = np.clip(2 * (0.5 - tail), 0, 2)
    return stake, stake * (0.5 - tail) - stake**2 / 4


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 0.8])
def test_the_stake_that_is_learned_is_the_one_of_the_closed_form(share):
    risk = ds.parse(f"{share}*mean + {1 - share}*cvar(0.5)" if share < 1 else "mean")
    agent = ds.PGSRM(Stake(), risk=risk, gamma=1.0, updates=300, seed=3, **SMALL).learn()
    stake, value = stake_optimum(share, 0.5)
    action, _ = agent.predict(np.array([0.0, 0.0, 1.0]))
    np.testing.assert_allclose(action, [stake], atol=0.05)
    assert ds.evaluate(agent, episodes=50_000).value(risk) == pytest.approx(value, abs=0.015)


@pytest.mark.long
def test_who_remembers_what_was_earned_does_better():
    settings = {"gamma": 1.0, "updates": 400, "seed": 1, **SMALL}
    values = []
    for see_memory in (True, False):
        agent = ds.PGSRM(SecondChance(), risk="cvar(0.5)", see_memory=see_memory, **settings)
        values.append(ds.evaluate(agent.learn(), episodes=20_000).value("cvar(0.5)"))
    assert values[0] == pytest.approx(-2.0, abs=0.06)
    assert values[1] == pytest.approx(-2.25, abs=0.06)


@pytest.mark.slow
def test_a_long_episode_in_segments_is_worth_what_the_best_constant_stake_is():
    settings = {**SMALL, "batch_size": 256, "longest_episode": 40, "segment_steps": 10}
    agent = ds.PGSRM(Stakes(), risk="cvar(0.5)", gamma=1.0, updates=300, seed=3, **settings).learn()
    _, best = Stakes().best(stats.norm.pdf(0.0) / 0.5)
    value = ds.evaluate(agent, episodes=10_000).value("cvar(0.5)")
    # The stake of the mean is worth 1.25, the best constant one 1.51. Who adapts it to what was
    # earned does a little better.
    assert best - 0.1 < value < best + 0.3


@pytest.mark.slow
def test_unordered_actions_stop_where_the_closed_form_does():
    agent = ds.PGSRM(Wait(), risk="mean", gamma=1.0, updates=300, seed=2, **SMALL).learn()
    assert ds.evaluate(agent, episodes=50_000).mean == pytest.approx(0.6953, abs=0.008)
    for time, threshold in ((0.0, 0.625), (1.0, 0.5)):
        below, above = (
            agent.predict(np.array([time, threshold + shift, 0.0, 1.0]))[0] for shift in (-0.1, 0.1)
        )
        assert (below, above) == (1, 0)


def test_the_gradient_is_that_of_the_mean_utility_with_h_held():
    # The envelope theorem, in the closed form of h: the knots may move with the batch or not.
    agent = ds.PGSRM(Stake(), risk="0.5*mean + 0.5*cvar(0.25)", gamma=1.0, updates=1, **SMALL)
    agent.learn()
    learner = agent.policy.learner
    assert isinstance(learner, PathwiseLearner)
    assert isinstance(learner.algorithm, ActorSRM)
    key, rounded = jax.random.key(5), jnp.zeros((), bool)
    actor = agent.networks
    held = learner.algorithm.closed_form(learner.simulate(actor, key, rounded, None).returns)

    def value(actor):
        returns = learner.simulate(actor, key, rounded, None).returns
        return learner.algorithm.objective.value(jnp.sort(returns))

    def mean_utility(actor):
        return held(learner.simulate(actor, key, rounded, None).returns).mean()

    of_value, of_utility = (eqx.filter_grad(f)(actor) for f in (value, mean_utility))
    bias = of_value.networks.head.bias
    # But for the return at the knot itself, one of 512, where h has a kink.
    np.testing.assert_allclose(bias, of_utility.networks.head.bias, rtol=5e-3)
    assert np.abs(bias).max() > 0.01


def test_derivatives_of_a_whole_episode_are_those_of_its_rewards():
    # Returns of Steered: 1 + 10 a0 - b0² + γ (2 + 10 a1 - b1²) + γ² (3 + 10 a2 - b2²).
    actions = jnp.array([[0.1, 1.0], [0.2, 2.0], [0.3, 0.5]])

    def total(actions):
        memory, _, running = unroll(
            Steered(),
            lambda states, memory, time: (actions[time][None], None),
            jax.tree.map(lambda leaf: leaf[None], Steered().initial_state(jax.random.key(0))),
            lambda time: jnp.zeros(1),
            gamma=0.5,
            horizon=5,
        )
        assert running.shape == (5, 1)
        return memory.accumulated[0]

    value, slopes = jax.value_and_grad(total)(jnp.concatenate([actions, actions[:2]]))
    expected = 1 + 1 - 1 + 0.5 * (2 + 2 - 4) + 0.25 * (3 + 3 - 0.25)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(slopes[:3], [[10, -2], [5, -2], [2.5, -0.25]], rtol=1e-6)
    np.testing.assert_array_equal(slopes[3:], 0.0)  # beyond the end


def test_noise_before_rounding_makes_actions_right_on_average():
    # 2 tanh(0.15) = 0.298 between the trades 0 and 1: with noise, 1 in 29.8% of episodes.
    settings = SMALL | {"updates": 1, "outer_interval": 1, "rounding_noise": 1.0}
    agent = ds.PGSRM(MeanReversion(num_trades=5), risk="cvar(0.5)", **settings).learn()
    learner, count = agent.policy.learner, 4000
    assert isinstance(learner, PathwiseLearner)
    heads = lambda actor: (actor.networks.head.weight, actor.networks.head.bias)  # noqa: E731
    weight, bias = heads(agent.networks)
    constant = (jnp.zeros_like(weight), jnp.full_like(bias, 0.15))
    actor = eqx.tree_at(heads, agent.networks, constant)
    states = jax.vmap(learner.env.initial_state)(jax.random.split(jax.random.key(0), count))
    memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count,)), initial_memory())

    def trades(key):
        act = learner.relaxed_act(actor, jnp.ones((), bool), None, key)
        return act(states, memory, jnp.zeros((), jnp.int32))[0]

    np.testing.assert_allclose(trades(None), 0.0, atol=1e-6)
    noisy = trades(jax.random.key(1))
    np.testing.assert_allclose(jnp.minimum(noisy, 1.0 - noisy), 0.0, atol=1e-6)
    assert abs(float(noisy.mean()) - 2 * np.tanh(0.15)) < 0.03


def test_inputs_are_normalised_by_episodes_that_are_running():
    inputs = jnp.array([[[1.0], [3.0]], [[5.0], [100.0]]])
    running = jnp.array([[True, True], [True, False]])
    mean, spread = input_statistics(inputs, running)
    np.testing.assert_allclose(mean, [[2.0], [5.0]])
    np.testing.assert_allclose(spread, [[1.0], [0.0]])


@pytest.mark.parametrize(
    ("progress", "expected"), [(0.05, 0.0), (0.1, 0.0), (0.2, 0.25), (0.5, 1.0), (0.9, 1.0)]
)
def test_the_measure_takes_over_from_the_mean_step_by_step(progress, expected):
    settings = PathwiseSettings(risk_neutral_fraction=0.1, annealing_fraction=0.5)
    share = risk_share(settings, jnp.asarray(progress))
    np.testing.assert_allclose(share, expected, atol=1e-6)


def test_without_annealing_the_measure_takes_over_at_once():
    settings = PathwiseSettings(risk_neutral_fraction=0.1, annealing_fraction=0.0)
    assert risk_share(settings, jnp.asarray(0.09)) == 0.0
    assert risk_share(settings, jnp.asarray(0.1)) == 1.0


def test_batches_grow_late_in_a_run():
    settings = PathwiseSettings(final_batches=4, growth_fraction=0.3)
    # Of ten updates the last three have four batches.
    assert [settings.batches(done, 10) for done in (0, 6, 7, 8, 10)] == [0, 6, 7, 11, 19]


def test_the_mean_of_batches_is_that_of_their_gradients():
    got = mean_of_batches(lambda i: {"a": jnp.asarray(i, float) ** 2}, jnp.asarray(3))
    np.testing.assert_allclose(got["a"], 5 / 3, rtol=1e-6)
