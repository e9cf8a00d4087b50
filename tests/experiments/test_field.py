"""Problems of other papers: what is trained, the exact optimum, and the tables."""

from typing import Any

import numpy as np
import pytest

import downside as ds
from downside.envs import BettingGame, GymnasiumEnv
from downside.envs.problems.guarded_maze import GUARDED
from downside.evaluation import evaluate_policy
from downside.experiments import _maze_grid, betting, guarded_maze, lander_risky, load
from downside.experiments._options import Options
from downside.experiments._rows import write_rows
from downside.experiments._undiscounted import undiscounted_returns

from .fakes import a_row


def test_their_commands_find_them():
    for name in ("guarded-maze", "betting", "lander-risky"):
        assert load(name).experiments(Options(seeds=(0,)))


@pytest.fixture(scope="module")
def grid():
    return _maze_grid.make_grid(0.25)


def test_moves_on_the_grid_are_distributions_and_pass_the_guard_from_nearby_alone(grid):
    columns, rows_of = np.divmod(np.flatnonzero(grid.numbers.ravel() >= 0), grid.numbers.shape[1])
    places = (np.stack([columns, rows_of], axis=1) + 0.5) * grid.spacing
    for calm, (rows, past) in zip(grid.calm, grid.watched, strict=True):
        total = calm.sum(axis=1)
        total[rows] += past.sum(axis=1)
        np.testing.assert_allclose(total, 1.0, atol=1e-4)
        assert len(rows)
        # A step of 1, five standard deviations of 0.2, and half a cell, in each direction.
        assert np.abs(places[rows] - GUARDED).max() <= 1.0 + 1.0 + 0.5 + grid.spacing
    # 3 x 3 units of a start, in squares of 1/4; the goal is one unit wide.
    assert (grid.start > 0).sum() == 12 * 12
    assert grid.at_goal.sum() == 4 * 4


def test_a_walker_who_is_only_careful_avoids_the_guard(grid):
    bold = _maze_grid.solve_maze(grid, level=0.05, mean_share=1.0, bends=[0.0], sums=3)
    careful = _maze_grid.solve_maze(grid, level=0.05, bends=[-5.0], sums=3)
    # Standing still earns -32. The bold walker gains at most 15 with a first move to the goal.
    assert -32.0 < careful.value < bold.value < 15.0
    before_it = grid.numbers[int(4.2 / 0.25), int(1.1 / 0.25)]
    assert int(bold.actions[0, 5, before_it]) == 1  # right, past the guard
    assert int(careful.actions[0, 5, before_it]) != 1


@pytest.mark.long
def test_a_plan_earns_in_the_maze_what_it_is_worth_on_the_grid():
    grid = _maze_grid.make_grid(0.125)
    plan = _maze_grid.solve_maze(grid, level=0.05, bends=[-4.0])
    ordered = np.sort(plan.returns(20_000, 3))
    assert ordered[:1000].mean() == pytest.approx(plan.value, abs=0.4)


def betting_optimum(level, win=0.8):
    """cvar(level) of the betting game, by backward induction for each b."""
    capital = np.arange(257)
    bets = np.minimum(capital[:, None] * np.arange(9) // 8, 256 - capital[:, None])
    best = -np.inf
    for bend in range(-16, 241):
        values = bend + np.minimum(capital - 16 - bend, 0.0) / level
        for _ in range(6):
            won, lost = values[capital[:, None] + bets], values[capital[:, None] - bets]
            values = (win * won + (1.0 - win) * lost).max(axis=1)
        best = max(best, values[16])
    return best


@pytest.mark.long
def test_the_planner_solves_the_betting_game(tmp_path, monkeypatch):
    monkeypatch.setattr(betting, "RISKS", ("cvar(0.2)",))
    best = betting.optima(Options(results=tmp_path))
    assert best["cvar(0.2)"] == pytest.approx(betting_optimum(0.2), abs=1e-5)


def a_walk(seed, mean=2.0, tenth=-4.0, tail=-6.0):
    """The rows of a careful agent."""
    values = dict(zip(guarded_maze.MEASURES, (mean, tenth, tail), strict=True))
    sums = {f"sum {measure}": value for measure, value in values.items()}
    errors = {f"sum {measure} error": 0.1 for measure in values}
    counts = {"lived": 1_000, "simulated": 50_000, "episodes": 90 + seed}
    return [
        a_row("AC-SRM", guarded_maze.CAREFUL, seed, measure, -99.0) | sums | errors | counts
        for measure in values
    ]


def test_agents_stand_beside_published_values_and_plans(tmp_path):
    options = Options(results=tmp_path)
    write_rows(tmp_path / "guarded-maze.csv", a_walk(0) + a_walk(1, mean=3.0))
    plans = [
        {"plan": "mean", "measure": measure, "value": value}
        for measure, value in zip(guarded_maze.MEASURES, (4.0, -34.0, -56.0), strict=True)
    ]
    write_rows(tmp_path / "guarded-maze-planned.csv", plans)
    *published, ours, plan = guarded_maze.lines(options)
    assert published[-1][:4] == ["CeSoR, published", "2", "-4.6", "-6.7"]
    assert ours[1].startswith("2.50 [")  # the sums, not the discounted values
    assert ours[4:] == ["2", "91", "1,000", "50,000"]
    assert plan[1:4] == ["4.00", "-34.00", "-56.00"]


@pytest.mark.parametrize(
    ("second", "level"), [({}, True), ({"mean": 1.9}, False), ({"tail": -6.8}, False)]
)
def test_in_the_maze_each_seed_is_held_to_cesor(second, level):
    assert guarded_maze.is_level(a_walk(0) + a_walk(1, **second)) is level


def test_a_maze_without_a_careful_agent_fails():
    assert guarded_maze.is_level([]) is False


@pytest.mark.slow
def test_sums_without_discount_are_those_that_are_played_step_by_step():
    game = BettingGame(win=1.0, rounds=3)  # nothing is left to chance
    settings: dict[str, Any] = {"num_envs": 8, "warmup_steps": 8, "buffer_size": 64}
    settings["hidden_sizes"] = (4,)
    settings |= {"outer_interval": 4, "outer_episodes": 4, "total_timesteps": 64}
    agent = ds.QRSRM(game, risk="cvar(0.2)", gamma=0.5, seed=0, **settings)
    agent.learn()
    sums = undiscounted_returns(agent, game, 50, 3)
    env = GymnasiumEnv(core=game)
    played, _ = evaluate_policy(agent, env, n_eval_episodes=1, return_episode_rewards=True)
    np.testing.assert_allclose(sums, np.full(50, played[0]), rtol=1e-5)
    assert played[0] > 0.0


@pytest.mark.slow
def test_sums_without_discount_are_the_returns_if_there_is_none_and_the_policy_sees_the_time():
    game = BettingGame(win=1.0, rounds=3)
    settings: dict[str, Any] = {"num_envs": 4, "n_steps": 6, "hidden_sizes": (4,), "adapt": False}
    agent = ds.ACSRM(game, risk="cvar(0.2)", gamma=1.0, clock="on", seed=0, **settings)
    agent.learn(total_timesteps=48)
    sums = undiscounted_returns(agent, game, 20, 3)
    played, _ = evaluate_policy(
        agent, GymnasiumEnv(core=game), n_eval_episodes=1, return_episode_rewards=True
    )
    np.testing.assert_allclose(sums, np.full(20, played[0]), rtol=1e-5)


def test_shares_of_the_optimum_of_the_betting_game(tmp_path):
    write_rows(
        tmp_path / "betting.csv",
        [a_row("QR-SRM", "cvar(0.2)", seed, "cvar(0.2)", 6.9 + 0.1 * seed) for seed in (0, 1)],
    )
    best = {"plan": "cvar(0.2)", "measure": "cvar(0.2)", "value": 7.0, "upper": 7.0}
    write_rows(tmp_path / "betting-optimum.csv", [best])
    (line,) = betting.lines(Options(results=tmp_path))
    assert line[2:6] == ["7.00", "7.00", "99.3%", "2"]


@pytest.mark.parametrize(
    ("shares", "near"), [([0.99, 0.985], True), ([0.99, 0.97], False), ([], False)]
)
def test_agents_are_held_to_98_percent_of_the_game_and_somebody_must_have_played(shares, near):
    assert betting.is_near(shares) is near


def test_landers_are_shown_by_their_sums_of_rewards(tmp_path):
    row = a_row("QR-SRM", "cvar(0.2)", 0, "cvar(0.2)", 150.0) | {"timesteps": 300_000}
    sums = {"sum_mean": 240.0, "sum_mean_error": 1.0, "sum_cvar": 200.0, "sum_cvar_error": 2.0}
    write_rows(tmp_path / "lander-risky-300000.csv", [row | sums])
    *_, line = lander_risky.lines(Options(results=tmp_path, timesteps=300_000))
    assert line == [
        "QR-SRM cvar(0.2)",
        "240.0 [238.0, 242.0]",
        "200.0 [196.1, 203.9]",
        "1",
        "300,000",
    ]
