import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.toy_text import FrozenLakeEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from downside.decompose import conditional_risk
from downside.envs.problems.finite.cliff_walk import DOWN, RIGHT, UP, CliffWalk
from downside.exact.finite import FiniteProblem
from downside.exact.mdp import FiniteMDP
from downside.risk import CVaR, Distribution, Mean, Utility, WeightedCVaR
from tests.exact.enumeration import all_returns, best_over_knots, mdps, returns_of

LATTICE = [1.0, 0.5]
MIXTURES = [
    WeightedCVaR([0.25, 0.6], [0.5, 0.5]),
    WeightedCVaR([0.1, 0.5, 1.0], [0.3, 0.3, 0.4]),
]


def value(risk, returns):
    return float(risk(returns.values, returns.probabilities))


def two_steps(**options):
    """Safe pays 1 and goes on; risky pays 4 or -2 (evenly) and goes on, or ends with -2."""
    probabilities = np.zeros((2, 2, 2))
    probabilities[0, 0, 0], probabilities[0, 1] = 1.0, 0.5
    rewards = np.zeros((2, 2, 2))
    rewards[0, 0, 0], rewards[0, 1] = 1.0, (4.0, -2.0)
    return FiniteMDP(probabilities, rewards, [False, True], gamma=0.5, horizon=2, **options)


# --- against listing every policy -----------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=40)
@given(mdp=mdps(), alpha=st.sampled_from([0.1, 0.3, 0.5, 0.8]), weight=st.sampled_from([1.0, 0.6]))
def test_the_best_cvar_is_that_of_all_history_dependent_policies(mdp, alpha, weight):
    risk = weight * CVaR(alpha) + (1 - weight) * Mean()
    problem = FiniteProblem(mdp)
    best = best_over_knots(problem, risk)
    assert problem.exact
    np.testing.assert_allclose(best.value, risk(*all_returns(mdp)).max(), atol=1e-9)
    np.testing.assert_allclose(value(risk, problem.returns(best.policy)), best.value, atol=1e-9)


@pytest.mark.slow
@settings(max_examples=30)
@given(
    mdp=mdps(horizons=(2, 3), rewards=st.integers(-2, 2), gammas=LATTICE),
    risk=st.sampled_from(MIXTURES),
)
def test_the_best_mixture_is_that_of_all_history_dependent_policies(mdp, risk):
    best = best_over_knots(FiniteProblem(mdp), risk)
    np.testing.assert_allclose(best.value, risk(*all_returns(mdp)).max(), atol=1e-9)


@pytest.mark.slow
@settings(max_examples=15)
@given(mdp=mdps(most_states=3, most_outcomes=3, horizons=(3,), rewards=st.floats(-2, 2)))
def test_rewards_off_any_lattice_are_exact_too(mdp):
    risk = CVaR(0.4)
    best = best_over_knots(FiniteProblem(mdp), risk)
    np.testing.assert_allclose(best.value, risk(*all_returns(mdp)).max(), atol=1e-9)


@given(mdp=mdps(most_outcomes=3), knot=st.floats(-4, 4))
def test_the_returns_of_a_policy_are_those_of_its_paths(mdp, knot):
    problem = FiniteProblem(mdp)
    utility = CVaR(0.3).utility_at([knot])
    best, policy = problem.solve(utility)
    returns = problem.returns(policy)
    by_path = returns_of(mdp, policy)
    np.testing.assert_allclose(returns.values, sorted(by_path), atol=1e-8)
    expected = [by_path[key] for key in sorted(by_path)]
    np.testing.assert_allclose(returns.probabilities, expected, atol=1e-12)
    np.testing.assert_allclose(utility.expectation(*returns_as_arrays(returns)), best, atol=1e-9)
    low, high = problem.return_range
    assert low - 1e-12 <= returns.values[0] <= returns.values[-1] <= high + 1e-12


def returns_as_arrays(returns):
    return returns.values, returns.probabilities


# --- by hand --------------------------------------------------------------------------------------


def test_the_returns_of_two_steps_by_hand():
    problem = FiniteProblem(two_steps())
    safe = problem.returns(lambda time, state, accumulated: 0)
    np.testing.assert_allclose(safe.values, [1.5])  # 1 + 0.5 * 1
    risky = problem.returns(lambda time, state, accumulated: 1)
    # -2 and over: 1/2. Else 4, then 0.5 * 4 or 0.5 * -2: 1/4 each.
    np.testing.assert_allclose(risky.values, [-2.0, 3.0, 6.0])
    np.testing.assert_allclose(risky.probabilities, [0.5, 0.25, 0.25])
    once = problem.returns(lambda time, state, accumulated: int(accumulated < 2))
    np.testing.assert_allclose(once.values, [-2.0, 4.5])  # 4, then safe: 4 + 0.5
    np.testing.assert_allclose(problem.attainable_returns, [-2.0, 0.0, 1.5, 3.0, 4.5, 6.0])
    assert problem.return_range == (-2.0, 6.0)


def test_the_best_policy_of_two_steps_by_hand():
    # Mean: a risky step is worth (4 - 2) / 2 = 1, plus another one of 0.5 in half of the cases; a
    # safe one 1, and another one of 0.5 for sure. A second step is worth 0.5 either way: a tie,
    # which the first action wins.
    problem = FiniteProblem(two_steps())
    best, policy = problem.solve(Mean().utility_at(np.zeros(0)))
    assert best == 1.5
    assert policy.table() == {(0, 0, 0.0): 0, (1, 0, 1.0): 0, (1, 0, 4.0): 0}
    # h(z) = min(z, 3): after 4 the return can fall to 3, no lower, and that is enough for h. So all
    # actions are equal there; after 1 (safe) risky gives (h(3) + h(0)) / 2 = 1.5 = h(1.5), a tie.
    best, policy = problem.solve(Utility([3.0], [1.0], offset=3.0))
    assert best == 1.5
    assert policy(0, 0, 0.0) == 0


def test_the_policy_answers_with_the_nearest_node():
    problem = FiniteProblem(two_steps())
    _, policy = problem.solve(Utility([1.4], [1.0]))
    # From 1: safe ends at 1.5, above the knot; risky falls to 0. From 4: nothing is below the knot.
    assert policy(1, 0, 1.2) == policy(1, 0, 2.5) == policy.table()[1, 0, 1.0] == 0
    assert "2 decisions" in repr(policy)
    with pytest.raises(ValueError, match=r"`time` must be in \[0, 1\].*got 2"):
        policy(2, 0, 1.0)
    with pytest.raises(ValueError, match=r"`state` must be one that .* at time 1.*got 1"):
        policy(1, 1, 1.0)
    with pytest.raises(ValueError, match="read-only"):
        policy.actions[0][0] = 1


def test_the_optimal_policy_looks_at_what_it_has_earned():
    # A coin pays 10 or 0; then 5 for sure (and over), or 12 or 0 evenly. With the knot at 5 the
    # winner of the first coin has nothing to lose, so both are equal and the first action wins; the
    # loser takes the sure 5: E[min(G - 5, 0)] = 0 instead of -2.5.
    probabilities = np.zeros((2, 2, 2))
    probabilities[0] = [0.5, 0.5]
    probabilities[1, 0], probabilities[1, 1] = (0.5, 0.5), (1.0, 0.0)
    rewards = np.zeros((2, 2, 2))
    rewards[0], rewards[1, 0], rewards[1, 1] = (10.0, 0.0), (12.0, 0.0), (5.0, 0.0)
    mdp = FiniteMDP(
        probabilities, rewards, next_states=np.ones((2, 2, 2), int), gamma=1.0, horizon=2
    )
    problem = FiniteProblem(mdp)
    best, policy = problem.solve(CVaR(0.5).utility_at([5.0]))
    assert policy.table() == {(0, 0, 0.0): 0, (1, 1, 0.0): 1, (1, 1, 10.0): 0}
    returns = problem.returns(policy)
    np.testing.assert_allclose(returns.values, [5.0, 10.0, 22.0])
    np.testing.assert_allclose(returns.probabilities, [0.5, 0.25, 0.25])
    assert best == value(CVaR(0.5), returns) == 5.0


def test_what_is_still_to_come_adds_up_to_the_return():
    problem = FiniteProblem(two_steps())
    risky = lambda time, state, accumulated: 1  # noqa: E731
    (later,) = problem.later_returns(risky, 1)
    assert later[:5] == (0.5, 0, 4.0, 0.5, 1)  # half of the episodes are over by then
    np.testing.assert_allclose(later.returns.values, [-2.0, 4.0])
    (now,) = problem.later_returns(risky, 0)
    np.testing.assert_allclose(now.returns.values, problem.returns(risky).values)
    # Theorem 2: of the worst 75%, (-2: 1/2, 3: 1/4), the node holds half its mass: level 0.5.
    start = problem.returns(risky)
    conditional = conditional_risk(
        CVaR(0.75), start, later.returns, s=later.accumulated, c=later.discount_so_far
    )
    np.testing.assert_allclose(conditional.levels, [0.5])
    with pytest.raises(ValueError, match=r"`time` must be in \[0, 1\]"):
        problem.later_returns(risky, 2)


def test_what_each_action_would_lead_to_is_told_for_a_node():
    problem = FiniteProblem(two_steps())
    careful = lambda time, state, accumulated: 0  # noqa: E731
    after = problem.returns_after(careful, 0, 0, 0.0)
    wanted = problem.returns(careful)
    np.testing.assert_allclose(after[0].values, wanted.values)
    np.testing.assert_allclose(after[0].probabilities, wanted.probabilities)
    # One risky step and then the careful policy: what a policy that does just that returns.
    once = problem.returns(lambda time, state, accumulated: int(time == 0))
    np.testing.assert_allclose(after[1].values, once.values)
    np.testing.assert_allclose(after[1].probabilities, once.probabilities)
    # At a later node the return to come is without what was earned, in the units of its time.
    (later,) = problem.later_returns(lambda time, state, accumulated: 1, 1)
    here = problem.returns_after(careful, 1, later.state, later.accumulated)
    np.testing.assert_allclose(here[1].values, later.returns.values)
    with pytest.raises(ValueError, match=r"`time` must be in \[0, 1\]"):
        problem.returns_after(careful, 2, 0, 0.0)
    with pytest.raises(ValueError, match="`state` must be one that can be reached at time 1"):
        problem.returns_after(careful, 1, 7, 0.0)


def test_a_problem_may_be_over_long_before_its_horizon():
    mdp = FiniteMDP([[[0.5, 0.5]]] * 2, [[2.0], [0.0]], [False, True], gamma=0.5)
    sure = FiniteMDP([[[0.0, 1.0]]] * 2, [[2.0], [0.0]], [False, True], gamma=0.5)
    # 2 + 0.5 * 2 + ... with probability 1/2 to go on: 2 / (1 - 0.25) on average.
    mean = Mean().utility_at(np.zeros(0))
    problem = FiniteProblem(mdp, tolerance=1e-9)
    np.testing.assert_allclose(problem.solve(mean).value, 8 / 3, atol=1e-9)
    np.testing.assert_allclose(FiniteProblem(sure, tolerance=1e-9).solve(mean).value, 2.0)


def test_an_episode_that_starts_at_its_end_returns_nothing():
    problem = FiniteProblem(two_steps(start=[0.25, 0.75]))
    returns = problem.returns(lambda time, state, accumulated: 0)
    np.testing.assert_allclose(returns.values, [0.0, 1.5])
    np.testing.assert_allclose(returns.probabilities, [0.75, 0.25])


def test_actions_that_are_not_allowed_are_not_taken():
    mask = [[False, True], [True, True]]
    problem = FiniteProblem(two_steps(action_mask=mask))
    _, policy = problem.solve(CVaR(0.1).utility_at([1.0]))
    assert set(policy.table().values()) == {1}
    with pytest.raises(ValueError, match="`policy` must give an action that is allowed, got 0"):
        problem.returns(lambda time, state, accumulated: 0)
    with pytest.raises(ValueError, match=r"`policy` must give an action in \[0, 1\], got 5"):
        problem.returns(lambda time, state, accumulated: 5)


def test_simulated_episodes_return_what_they_should():
    problem = FiniteProblem(two_steps(start=[0.75, 0.25]))
    _, policy = problem.solve(CVaR(0.5).utility_at([4.5]))
    for rule in (policy, lambda time, state, accumulated: 1):
        exact, simulated = problem.returns(rule), problem.simulate(rule, 20_000, seed=0)
        values, counts = np.unique(simulated, return_counts=True)
        np.testing.assert_allclose(values, exact.values)
        # Four standard errors of a share: 4 * sqrt(0.25 / 20000).
        np.testing.assert_allclose(counts / 20_000, exact.probabilities, atol=0.0142)
    again = problem.simulate(policy, 100, seed=1)
    np.testing.assert_array_equal(problem.simulate(policy, 100, seed=1), again)
    assert np.any(problem.simulate(policy, 100, seed=2) != again)


# --- theorem 1 ------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    mdp=mdps(rewards=st.integers(0, 3), gammas=[0.5, 0.8], horizons=(5,)),
    risk=st.sampled_from([CVaR(0.3), *MIXTURES]),
    data=st.data(),
)
def test_looking_k_steps_ahead_is_within_the_bound_of_theorem_1(mdp, risk, data):
    problem = FiniteProblem(mdp)
    count = sum(level < 1.0 for level, _ in risk.atoms)
    low, high = problem.return_range
    knots = data.draw(st.lists(st.floats(low, high), min_size=count, max_size=count))
    utility = risk.utility_at(np.array(knots))
    optimum = problem.solve(utility).value
    most = mdp.rewards.max() / (1 - mdp.gamma)
    before = value = -np.inf
    for k in range(6):
        value, policy = problem.lookahead(utility, k)
        attained = float(utility.expectation(*returns_as_arrays(problem.returns(policy))))
        assert before <= value + 1e-9  # V_k rises with k,
        assert value <= attained + 1e-9  # its policy does better than it can see,
        assert attained <= optimum + 1e-9
        assert attained >= optimum - risk.spectrum_at_zero * mdp.gamma ** (k + 1) * most - 1e-9
        before = value
    np.testing.assert_allclose(value, optimum, atol=1e-9)  # five steps are all there are


@pytest.mark.slow
@settings(max_examples=40)
@given(mdp=mdps(), risk=st.sampled_from([CVaR(0.2), CVaR(0.6), *MIXTURES]))
def test_the_alternation_never_falls(mdp, risk):
    problem = FiniteProblem(mdp)
    returns = problem.returns(problem.solve(Mean().utility_at(np.zeros(0))).policy)
    values = [value(risk, returns)]
    for _ in range(8):
        best, policy = problem.solve(risk.utility(returns))
        returns = problem.returns(policy)
        values += [best, value(risk, returns)]  # J(π_l, h_l), then sup over h of J(π_l, h)
    assert np.all(np.diff(values) >= -1e-9)


def test_doing_nothing_traps_the_alternation():
    # Action 0 ends with 0. Action 1 wins 10 with probability 0.9 and loses 1 otherwise:
    # CVaR(0.5) = (0.1 * -1 + 0.4 * 10) / 0.5 = 7.8. But if nothing is ever done, h has its knot at
    # 0 and is flat above: h(z) = 2 min(z, 0). A gain is worth nothing to it, the loss -0.2, so
    # doing nothing is optimal for h, and h is what doing nothing gives. Started risk-neutral, the
    # knot is at 10 and stays there.
    mdp = FiniteMDP(
        [[[1.0, 0.0], [0.9, 0.1]]],
        [[[0.0, 0.0], [10.0, -1.0]]],
        next_states=np.zeros((1, 2, 2), int),
        gamma=1.0,
        horizon=1,
    )
    problem, risk = FiniteProblem(mdp), CVaR(0.5)
    trapped, free = Distribution(np.zeros(1)), problem.returns(lambda *_: 1)
    for _ in range(5):
        trapped = problem.returns(problem.solve(risk.utility(trapped)).policy)
        free = problem.returns(problem.solve(risk.utility(free)).policy)
    assert value(risk, trapped) == 0.0
    np.testing.assert_allclose(value(risk, free), 7.8)
    np.testing.assert_allclose(best_over_knots(problem, risk).value, 7.8)


# --- larger problems ------------------------------------------------------------------------------


def value_iteration(table, gamma, sweeps):
    values = np.zeros(len(table))
    for _ in range(sweeps):
        values = np.array(
            [
                max(
                    sum(p * (r + gamma * values[t] * (not over)) for p, t, r, over in outcomes)
                    for outcomes in table[s].values()
                )
                for s in range(len(table))
            ]
        )
    return values


def test_frozen_lake_agrees_with_value_iteration():
    env = FrozenLakeEnv(map_name="4x4", is_slippery=True)
    mean = Mean().utility_at(np.zeros(0))
    finite = FiniteProblem(FiniteMDP.from_gymnasium(env, gamma=0.95, horizon=60))
    expected = value_iteration(env.P, 0.95, 60)[0]
    assert finite.exact
    np.testing.assert_allclose(finite.solve(mean).value, expected, rtol=1e-10)
    endless = FiniteProblem(FiniteMDP.from_gymnasium(env, gamma=0.95))
    expected = value_iteration(env.P, 0.95, 600)[0]
    assert not endless.exact
    assert 0 < endless.return_error <= 1e-4
    assert abs(endless.solve(mean).value - expected) <= endless.error_bound(mean)


@pytest.mark.slow
def test_cliff_walk_returns_what_its_simulation_returns():
    gamma, episodes = 0.97, 4000
    env = CliffWalk(slip=0.2, horizon=40)
    # Up two rows, along, and down again at the right: memoryless, and it falls now and then.
    cells = np.arange(env.num_cells).reshape(env.rows, env.columns)
    actions = np.full(env.num_cells, RIGHT)
    actions[cells[2:, :-1].ravel()] = UP
    actions[cells[:, -1]] = DOWN
    problem = FiniteProblem(FiniteMDP.from_tables(env.tables(), gamma=gamma, horizon=40))
    returns = problem.returns(lambda time, state, accumulated: actions[state])

    def episode(key):
        def step(carry, key):
            state, total, discount, running = carry
            after = env.step(key, state, jnp.asarray(actions)[state.cell])
            total += running * discount * after.reward
            return (after.state, total, discount * gamma, running & ~after.terminated), None

        state, _ = env.reset(key)
        begin = (state, jnp.zeros(()), jnp.ones(()), jnp.asarray(True))
        return jax.lax.scan(step, begin, jax.random.split(key, 40))[0][1]

    simulated = np.asarray(
        jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(3), episodes))
    )
    error = simulated.std() / np.sqrt(episodes)
    assert abs(simulated.mean() - float(returns.mean)) < 4 * error
    for level in (0.05, 0.3, 0.7):
        point = float(returns.quantile(level))
        share, expected = np.mean(simulated <= point + 1e-4), float(returns.cdf(point))
        assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / episodes) + 1e-9


def test_a_constant_step_reward_needs_one_node_for_each_time_and_cell():
    env = CliffWalk()
    problem = FiniteProblem(FiniteMDP.from_tables(env.tables(), gamma=0.99, horizon=100))
    assert problem.exact
    assert problem.nodes.size < 100 * (env.num_cells + 2)


# --- limits ---------------------------------------------------------------------------------------


def generic(rng, horizon):
    """Three states, each reached from each, with rewards that never add up to the same."""
    return FiniteMDP(
        rng.dirichlet(np.ones(3), size=(3, 2)),
        rng.normal(size=(3, 2, 3)),
        gamma=0.9,
        horizon=horizon,
    )


def test_bad_settings_are_refused_in_words():
    mdp = generic(np.random.default_rng(0), 6)
    with pytest.raises(ValueError, match="`max_nodes` must be a whole number of at least 1, got 0"):
        FiniteProblem(mdp, max_nodes=0)
    with pytest.raises(ValueError, match=r"`max_nodes` must be more than the 6 decisions.*got 5"):
        FiniteProblem(mdp, max_nodes=5)
    with pytest.raises(ValueError, match=r"`max_nodes` must be larger, got 400.*lattice"):
        FiniteProblem(mdp, max_nodes=400)
    with pytest.raises(ValueError, match=r"`tolerance` must be positive, got -1\.0"):
        FiniteProblem(mdp, tolerance=-1.0)
    with pytest.raises(ValueError, match="`steps` must be a whole number of at least 0, got -1"):
        FiniteProblem(mdp).lookahead(Mean().utility_at(np.zeros(0)), -1)
