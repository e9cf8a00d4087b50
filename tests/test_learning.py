"""What is learned, against what is exact: within 2% of the planner's value."""

import numpy as np
import pytest

import downside as ds

SMALL = {
    "hidden_sizes": (64, 64),
    "num_envs": 64,
    "batch_size": 128,
    "warmup_steps": 2000,
    "buffer_size": 20_032,
    "quantiles": 20,
    "evaluation_fraction": 0.0,
    "outer_interval": 160,
    "outer_episodes": 2048,
    "target_rate": 0.05,
}
SEARCHING = {**SMALL, "top_actions": 3, "random_actions": 0, "samples_per_action": 4, "shifts": 5}


def random_mdp(seed, states, actions, outcomes, horizon, several_starts):
    rng = np.random.default_rng(seed)
    shape = (states, actions, outcomes)
    return ds.FiniteMDP(
        rng.dirichlet(np.ones(outcomes), size=(states, actions)),
        rng.normal(size=shape),
        next_states=rng.integers(0, states, size=shape),
        start=rng.dirichlet(np.ones(states)) if several_starts else 0,
        gamma=0.95,
        horizon=horizon,
    )


def shortfall(problem, agent):
    """How far the agent falls short of the optimum, as a share of it."""
    best = ds.solve(problem, agent.risk, episodes=1000).value
    value = ds.evaluate(agent, episodes=50_000, seed=99).value(agent.risk)
    return (best - value) / abs(best)


@pytest.mark.long
@pytest.mark.parametrize(
    "mdp",
    [
        random_mdp(0, 4, 3, 3, 5, several_starts=True),
        random_mdp(2, 5, 3, 2, 4, False),
    ],
    ids=["several starts", "one start"],
)
def test_qrsrm_reaches_the_optimum_of_a_random_mdp(mdp):
    agents = ds.train_many(
        mdp.environment(),
        risks=["cvar(0.5)", "0.5*mean + 0.5*cvar(0.2)"],
        gamma=mdp.gamma,
        total_timesteps=2400 // 4 * 64,
        **SEARCHING,
    )
    assert [shortfall(mdp, agent) for agent in agents] == pytest.approx([0, 0], abs=0.02)


@pytest.mark.long
def test_qrcvar_and_qrdqn_reach_the_optimum_of_a_random_mdp():
    mdp = random_mdp(2, 5, 3, 2, 4, several_starts=False)
    target = ds.QRCVaR(mdp.environment(), risk="cvar(0.5)", gamma=mdp.gamma, **SEARCHING)
    assert shortfall(mdp, target.learn(2400 // 4 * 64)) == pytest.approx(0, abs=0.02)
    neutral = ds.QRDQN(mdp.environment(), gamma=mdp.gamma, **SMALL)
    assert shortfall(mdp, neutral.learn(2400 // 2 * 64)) == pytest.approx(0, abs=0.02)


CLIFF = {
    "hidden_sizes": (64, 64),
    "num_envs": 64,
    "batch_size": 64,
    "buffer_size": 100_032,
    "quantiles": 20,
    "evaluation_fraction": 0.0,
    "top_actions": 4,
    "random_actions": 0,
    "samples_per_action": 4,
    "advantage_weight": 1.0,
    "target_rate": 0.05,
    "risk_neutral_fraction": 0.3,
    "outer_interval": 300,
    "outer_episodes": 4096,
    # The alternation alone stops at -11.29 for cvar(0.5), where the optimum is -10.33: the best
    # place is 1.9 from the risk-neutral policy's median. Search, and know the policy, that far.
    "shifts": 7,
    "shift_span": 0.6,
    "memory_noise": 0.5,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "risk"),
    [
        pytest.param(ds.QRSRM, "cvar(0.5)", marks=pytest.mark.long),
        (ds.QRSRM, "0.5*mean + 0.5*cvar(0.2)"),
        pytest.param(ds.QRCVaR, "cvar(0.5)", marks=pytest.mark.long),
    ],
)
def test_the_optimum_is_reached_where_episodes_need_not_end(algorithm, risk):
    env = "downside/CliffWalk-v0"
    agent = algorithm(env, risk=risk, gamma=0.99, **CLIFF).learn(6000 // 4 * 64)
    best = ds.solve(env, risk, gamma=0.99, episodes=1000).value
    value = ds.evaluate(agent, episodes=50_000, seed=99).value(risk)
    assert value == pytest.approx(best, rel=0.02)
    # No return is positive; scores that are not anchored run away to +300.
    assert agent.history[-1]["predicted"] < 0.0
