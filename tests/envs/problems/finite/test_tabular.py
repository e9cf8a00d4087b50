import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.envs import CliffWalk, GymnasiumEnv, Tabular, TabularState, make_jax
from downside.exact.finite import FiniteProblem
from downside.exact.mdp import FiniteMDP
from downside.exact.simulate import simulate
from downside.risk import CVaR, Mean

# State 2 is terminal. Action 0 of state 0 has three outcomes; action 1 of state 1 is illegal.
PROBABILITIES = np.array(
    [[[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]], [[0.6, 0.0, 0.4], [0.0, 0.0, 0.0]], [[0.0] * 3] * 2]
)
REWARDS = np.arange(18.0).reshape(3, 2, 3)
OPTIONS = {"terminal": [0, 0, 1], "action_mask": [[1, 1], [1, 0], [0, 0]]}


def make(**options):
    return Tabular(PROBABILITIES, REWARDS, **{**OPTIONS, "horizon": 4, **options})


def at(number, time=0):
    return TabularState(jnp.asarray(number, jnp.int32), jnp.asarray(time, jnp.int32))


def random_mdp(seed, *, gamma=0.9, horizon=5):
    """Four states, the last one terminal; rewards of an outcome differ, some outcomes end it."""
    rng = np.random.default_rng(seed)
    shape = (4, 2, 3)
    return FiniteMDP(
        rng.dirichlet(np.ones(3), size=shape[:2]),
        rng.normal(size=shape).round(2),
        [0, 0, 0, 1],
        [0.5, 0.25, 0.15, 0.1],
        gamma=gamma,
        horizon=horizon,
        action_mask=[[1, 1], [0, 1], [1, 1], [1, 1]],
        next_states=rng.integers(0, 4, size=shape),
        ends=rng.random(shape) < 0.1,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "action", "noise", "reached", "reward"),
    [
        (0, 0, 0.0, 0, 0.0),
        (0, 0, 0.19, 0, 0.0),
        (0, 0, 0.21, 1, 1.0),
        (0, 0, 0.69, 1, 1.0),
        (0, 0, 0.71, 2, 2.0),
        (0, 0, 1.0, 2, 2.0),
        (0, 1, 0.0, 1, 4.0),
        (0, 1, 1.0, 1, 4.0),  # its only outcome, however the noise was rounded
        (1, 0, 0.59, 0, 6.0),
        (1, 0, 0.61, 2, 8.0),
        (1, 1, 0.61, 2, 8.0),  # illegal, so as action 0
    ],
)
def test_the_noise_picks_the_outcome_by_the_inverse_distribution(
    number, action, noise, reached, reward
):
    after = make().transition(at(number), action, noise)
    assert after.state.number == reached
    assert after.reward == reward
    assert after.terminated == (reached == 2)
    assert after.state.time == 1


def test_the_horizon_terminates_where_the_time_is_observed_and_truncates_elsewhere():
    core = make()
    last = core.transition(at(0, 3), 1, 0.0)
    assert (last.terminated, last.truncated) == (True, False)
    assert not core.transition(at(0, 2), 1, 0.0).terminated
    blind = make(time_in_observation=False)
    cut = blind.transition(at(0, 3), 1, 0.0)
    assert (cut.terminated, cut.truncated) == (False, True)
    arrived = blind.transition(at(0, 3), 0, 0.9)
    assert (arrived.terminated, arrived.truncated) == (True, False)
    endless = make(horizon=None).transition(at(0, 10**6), 1, 0.0)
    assert (endless.terminated, endless.truncated) == (False, False)


def test_the_state_is_observed_one_hot_and_the_time_as_a_fraction():
    np.testing.assert_array_equal(make().observe(at(1, 3)), [0.0, 1.0, 0.0, 0.75])
    for core in (make(time_in_observation=False), make(horizon=None)):
        np.testing.assert_array_equal(core.observe(at(1, 3)), [0.0, 1.0, 0.0])
        assert core.observation_space.shape == (3,)


def test_the_mask_is_that_of_the_table_and_open_where_the_episode_is_over():
    masks = [make().action_mask(at(number)) for number in range(3)]
    np.testing.assert_array_equal(masks, [[True, True], [True, False], [True, True]])


def test_an_episode_that_starts_where_it_is_over_ends_at_once_with_nothing():
    core = make(start=2)
    after = core.transition(core.initial_state(jax.random.key(0)), 1, 0.3)
    assert after.terminated
    assert after.reward == 0.0
    assert after.state.number == 2


def test_different_rewards_on_the_way_to_one_state_stay_apart():
    core = Tabular([[[0.5, 0.5]]], [[[1.0, 2.0]]], next_states=[[[0, 0]]], ends=[[[0, 1]]])
    low, high = (core.transition(at(0), 0, noise) for noise in (0.25, 0.75))
    assert (low.reward, low.terminated) == (1.0, False)
    assert (high.reward, high.terminated) == (2.0, True)


@pytest.mark.slow
def test_episodes_start_as_often_in_each_state_as_they_should():
    core = make(start=[0.7, 0.3, 0.0])
    states = jax.vmap(core.initial_state)(jax.random.split(jax.random.key(1), 50_000))
    shares = np.bincount(np.asarray(states.number), minlength=3) / 50_000
    np.testing.assert_allclose(shares, [0.7, 0.3, 0.0], atol=0.01)  # standard error 0.002
    assert shares[2] == 0.0
    keys = jax.random.split(jax.random.key(1), 100)
    assert (jax.vmap(make(start=1).initial_state)(keys).number == 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
def test_steps_have_the_frequencies_of_the_tables(several):
    tables = CliffWalk(rows=3, columns=4, slip=0.2).tables()
    core = Tabular(*tables)
    keys = jax.random.split(jax.random.key(2), 20_000)

    def reached(key, number, action):
        noises = core.sample_noises(key, 4) if several else core.sample_noise(key)[None]
        after = jax.vmap(lambda noise: core.transition(at(number), action, noise))(noises)
        return after.state.number, after.reward

    for number, action in [(0, 0), (5, 1), (5, 2), (8, 1)]:
        states, rewards = jax.vmap(lambda key: reached(key, number, action))(keys)  # noqa: B023
        states, rewards = np.ravel(states), np.ravel(rewards)
        shares = np.bincount(states, minlength=12) / states.size
        # The standard error of a share of 0.8 is 0.0028.
        np.testing.assert_allclose(shares, tables.probabilities[number, action], atol=0.014)
        np.testing.assert_array_equal(rewards, tables.rewards[number, action, states])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_simulating_a_policy_gives_its_exact_returns(seed):
    mdp = random_mdp(seed)
    core = mdp.environment()

    def rule(time, state, accumulated):
        return 1 if state == 1 else (time + state + (accumulated > 0.5)) % 2

    def policy(state, accumulated, discount):
        later = (state.time + state.number + (accumulated > 0.5)) % 2
        return jnp.where(state.number == 1, 1, later)

    exact = FiniteProblem(mdp).returns(rule)
    episodes = 200_000
    sampled, _ = simulate(
        core, policy, gamma=mdp.gamma, episodes=episodes, key=jax.random.key(seed)
    )
    for risk in (Mean(), CVaR(0.3)):
        error = np.std(sampled) / risk.support / np.sqrt(episodes)
        expected = float(risk(exact.values, exact.probabilities))
        assert abs(float(risk(sampled)) - expected) < 5 * error
    # The episodes that start in the terminal state earn exactly nothing: a tenth of them.
    assert abs(np.mean(sampled == 0.0) - exact.probabilities[exact.values == 0.0].sum()) < 0.005


@pytest.mark.slow
def test_the_planner_solves_the_environment_as_it_solves_the_tables():
    mdp = random_mdp(3)
    core = mdp.environment()
    by_tables = ds.solve(mdp, "cvar(0.3)", episodes=1000)
    by_environment = ds.solve(core, "cvar(0.3)", gamma=0.9, episodes=1000)
    np.testing.assert_allclose(by_environment.value, by_tables.value, rtol=1e-12)
    by_face = ds.solve(GymnasiumEnv(core), "cvar(0.3)", gamma=0.9, episodes=1000)
    np.testing.assert_allclose(by_face.value, by_tables.value, rtol=1e-12)


def test_rewards_are_not_rounded_on_the_way_to_the_planner():
    core = Tabular([[[1.0]]], [[0.1]], horizon=3)
    again = FiniteMDP.from_environment(core, gamma=1.0)
    assert again.rewards.item() == 0.1
    assert core.transition(at(0), 0, 0.5).reward.dtype == jnp.float32


def test_new_numbers_in_a_table_compile_nothing_anew():
    traces = 0

    def run(core, key):
        nonlocal traces
        traces += 1
        return core.step(key, core.initial_state(key), 0).reward

    key = jax.random.key(0)
    for jit in (jax.jit, eqx.filter_jit):
        compiled, traces = jit(run), 0
        rewards = [compiled(make_constant(reward), key) for reward in (1.0, -2.5, 7.0)]
        np.testing.assert_array_equal(rewards, [1.0, -2.5, 7.0])
        assert traces == 1


def make_constant(reward):
    return Tabular([[[0.5, 0.5]]] * 2, np.full((2, 1), reward), horizon=4)


@pytest.mark.slow
def test_it_has_a_gymnasium_env_and_is_its_own_jax_core():
    core = make(start=[0.5, 0.5, 0.0])
    env = GymnasiumEnv(core=core)
    assert make_jax(env) is make_jax(core) is core
    observation, info = env.reset(seed=0)
    for _ in range(50):
        assert observation in env.observation_space
        assert observation[:3].sum() == 1.0
        action = env.action_space.sample(info["action_mask"])
        observation, _, terminated, truncated, info = env.step(action)
        assert not truncated
        if terminated:
            assert observation[2] == 1.0 or observation[3] == 1.0
            observation, info = env.reset()


def test_frozen_lake_becomes_an_environment():
    mdp = FiniteMDP.from_gymnasium(gym.make("FrozenLake-v1"), gamma=0.99)
    core = mdp.environment()
    assert core.horizon is None
    assert (core.num_states, core.num_actions) == (16, 4)
    # Next to the goal, action 2 (right) slips down into the wall, reaches it, or slips up.
    state = at(14)
    steps = [core.transition(state, 2, noise) for noise in (0.1, 0.5, 0.9)]
    assert sorted(float(step.reward) for step in steps) == [0.0, 0.0, 1.0]
    assert [bool(step.terminated) for step in steps] == [step.reward == 1.0 for step in steps]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, r"`horizon` must be at least 1, got 0"),
        ({"start": 3}, r"`start` must be a state in \[0, 2\], got 3"),
        ({"start": [0.5, 0.4, 0.0]}, r"`start` must be non-negative and sum to 1, .* sum of 0\.9"),
        ({"terminal": None}, r"`action_mask` must allow .* got none in state 2"),
        ({"action_mask": None}, r"`probabilities` must sum to 1 .* action 1 in state 1"),
        ({"terminal": [0, 1]}, r"`terminal` must hold True or False in the shape \(3,\)"),
    ],
)
def test_bad_tables_are_refused_in_words(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)
