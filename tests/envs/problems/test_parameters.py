"""Every parameter of every problem: another value is kept, a bad one is refused with a sentence."""

from typing import Any

import numpy as np
import pytest

from downside.envs import (
    AmericanPut,
    BettingGame,
    CliffWalk,
    DualCounterexample,
    GamblersRuin,
    GuardedMaze,
    Hedging,
    Inventory,
    MachineReplacement,
    MeanReversion,
    Portfolio,
    RiverSwim,
    make_jax,
    registered,
)

# problem, parameter, another good value, a bad value, what the error says
PARAMETERS = [
    (AmericanPut, "drift", 0.1, float("inf"), r"in \(-inf, inf\), got inf"),
    (AmericanPut, "sigma", 0.5, -0.1, r"in \[0, inf\), got -0.1"),
    (AmericanPut, "strike", 1.1, 0.0, r"in \(0, inf\), got 0.0"),
    (AmericanPut, "initial_price", 0.9, -1, r"in \(0, inf\), got -1.0"),
    (AmericanPut, "maturity", 2, 0.0, r"in \(0, inf\), got 0.0"),
    (AmericanPut, "periods", 20, 0, r"a whole number >= 1, got 0"),
    (AmericanPut, "kind", "call", "putt", r"'put' or 'call', got 'putt'. Did you mean 'put'\?"),
    (AmericanPut, "process", "ou", "bm", r"'gbm' or 'ou', got 'bm'. Did you mean 'gbm'\?"),
    (AmericanPut, "kappa", 1.0, -1.0, r"in \[0, inf\), got -1.0"),
    (AmericanPut, "mean", 1.5, float("nan"), r"in \(-inf, inf\), got nan"),
    (MeanReversion, "sigma", 0.5, -1.0, r"in \[0, inf\), got -1.0"),
    (MeanReversion, "kappa", 0, -1.0, r"in \[0, inf\), got -1.0"),
    (MeanReversion, "mean", 2.0, float("inf"), r"in \(-inf, inf\), got inf"),
    (MeanReversion, "initial_price", -1.0, float("nan"), r"in \(-inf, inf\), got nan"),
    (MeanReversion, "max_trade", 1.0, 0.0, r"in \(0, inf\), got 0.0"),
    (MeanReversion, "num_trades", 5.0, 1, r"a whole number >= 2, got 1"),
    (MeanReversion, "cost", 0.0, -0.1, r"in \[0, inf\), got -0.1"),
    (MeanReversion, "terminal_penalty", 1.0, -0.1, r"in \[0, inf\), got -0.1"),
    (MeanReversion, "periods", 5, 2.5, r"a whole number >= 1, got 2.5"),
    (MeanReversion, "maturity", 0.5, -1.0, r"in \(0, inf\), got -1.0"),
    (MeanReversion, "initial_inventory", 1.0, float("inf"), r"in \(-inf, inf\), got inf"),
    (MeanReversion, "inventory_limit", 5, 0.0, r"in \(0, inf\), got 0.0"),
    (MeanReversion, "continuous", True, 2, r"True or False, got 2"),
    (CliffWalk, "rows", 5, 1, r"a whole number >= 2, got 1"),
    (CliffWalk, "columns", 5, 2, r"a whole number >= 3, got 2"),
    (CliffWalk, "slip", 0.5, 1.5, r"in \[0, 1\], got 1.5"),
    (CliffWalk, "step_reward", 0.0, float("inf"), r"in \(-inf, inf\), got inf"),
    (CliffWalk, "cliff_reward", -5.0, float("nan"), r"in \(-inf, inf\), got nan"),
    (CliffWalk, "goal_reward", 5.0, float("nan"), r"in \(-inf, inf\), got nan"),
    (CliffWalk, "horizon", None, 0, r"a whole number >= 1, got 0"),
    (Hedging, "option", "put", "straddle", r"'call' or 'put' or 'lookback', got 'straddle'"),
    (Hedging, "strike", 90.0, 0.0, r"in \(0, inf\), got 0.0"),
    (Hedging, "initial_price", 90.0, -1.0, r"in \(0, inf\), got -1.0"),
    (Hedging, "maturity", 0.5, 0.0, r"in \(0, inf\), got 0.0"),
    (GuardedMaze, "guard_probability", 0.5, 1.5, r"in \[0, 1\], got 1.5"),
    (GuardedMaze, "guard_cost", 0.0, -1.0, r"in \[0, inf\), got -1.0"),
    (GuardedMaze, "action_noise", 0.0, -0.2, r"in \[0, inf\), got -0.2"),
    (GuardedMaze, "goal_reward", 5.0, float("nan"), r"in \(-inf, inf\), got nan"),
    (GuardedMaze, "paid_steps", 0, -1, r"a whole number >= 0, got -1"),
    (GuardedMaze, "horizon", 10, 0, r"a whole number >= 1, got 0"),
    (Hedging, "periods", 5, 0, r"a whole number >= 1, got 0"),
    (Hedging, "premium", 2.0, float("nan"), r"in \(-inf, inf\), got nan"),
    (Hedging, "cost", 0.0, 1.0, r"in \[0, 1\), got 1.0"),
    (Hedging, "fixed_cost", 0.1, -0.1, r"in \[0, inf\), got -0.1"),
    (Hedging, "min_position", -2.0, 1.5, r"below `max_position`, got 1.5 and 1.0"),
    (Hedging, "max_position", 2.0, float("inf"), r"in \(-inf, inf\), got inf"),
    (Hedging, "num_positions", 21, 1, r"a whole number >= 2, got 1"),
    (Hedging, "model", "heston", "bates", r"'gbm' or 'heston', got 'bates'"),
    (Hedging, "sigma", 0.0, -0.2, r"in \[0, inf\), got -0.2"),
    (Hedging, "reversion", 2.0, 0.0, r"in \(0, inf\), got 0.0"),
    (Hedging, "long_variance", 0.09, 0.0, r"in \(0, inf\), got 0.0"),
    (Hedging, "vol_of_vol", 0.5, 0.0, r"in \(0, inf\), got 0.0"),
    (Hedging, "correlation", 0.0, 0.1, r"in \[-1, 0\], got 0.1"),
    (Hedging, "initial_variance", 0.0, -0.1, r"in \[0, inf\), got -0.1"),
    (Hedging, "swap", True, 2, r"True or False, got 2"),
    (Hedging, "max_swaps", 10.0, 0.0, r"in \(0, inf\), got 0.0"),
    (Portfolio, "drifts", (0.0, 0.1, 0.2), (float("inf"), 0.0, 0.0), r"\(-inf, inf\), got inf"),
    (Portfolio, "volatilities", (0.0, 0.1, 0.2), (0.1, 0.2), r"3 numbers, got \(0.1, 0.2\)"),
    (Portfolio, "correlation", 1.0, -0.5, r"in \(-0.5, 1\], got -0.5"),
    (Portfolio, "cost", 0.0, 0.5, r"in \[0, 0.5\), got 0.5"),
    (Portfolio, "periods", 5, 0, r"a whole number >= 1, got 0"),
    (Portfolio, "maturity", 0.5, 0.0, r"in \(0, inf\), got 0.0"),
    (MachineReplacement, "levels", 5, 1, r"a whole number >= 2, got 1"),
    (MachineReplacement, "wear", 0.5, 1.5, r"in \[0, 1\], got 1.5"),
    (MachineReplacement, "success", 0.5, 0.0, r"in \(0, 1\], got 0.0"),
    (MachineReplacement, "replacement_cost", 1.0, -1.0, r"in \[0, inf\), got -1.0"),
    (MachineReplacement, "risky_cost", 1.0, -1.0, r"in \[0, inf\), got -1.0"),
    (MachineReplacement, "failure_cost", 1.0, -1.0, r"in \[0, inf\), got -1.0"),
    (MachineReplacement, "horizon", 5, 0, r"a whole number >= 1, got 0"),
    (GamblersRuin, "goal", 12, 1, r"a whole number >= 2, got 1"),
    (GamblersRuin, "start", 3, 0, r"a whole number >= 1, got 0"),
    (GamblersRuin, "win", 0.5, -0.5, r"in \[0, 1\], got -0.5"),
    (GamblersRuin, "horizon", 5, 0, r"a whole number >= 1, got 0"),
    (Inventory, "capacity", 5, 0, r"a whole number >= 1, got 0"),
    (Inventory, "max_order", 5, 0, r"a whole number >= 1, got 0"),
    (Inventory, "demand", 2.0, 0.0, r"in \(0, inf\), got 0.0"),
    (Inventory, "price", 2.0, -1.0, r"in \[0, inf\), got -1.0"),
    (Inventory, "unit_cost", 1.0, -1.0, r"in \[0, inf\), got -1.0"),
    (Inventory, "fixed_cost", 2.0, -1.0, r"in \[0, inf\), got -1.0"),
    (Inventory, "holding_cost", 2.0, -1.0, r"in \[0, inf\), got -1.0"),
    (Inventory, "horizon", 5, 0, r"a whole number >= 1, got 0"),
    (RiverSwim, "length", 5, 1, r"a whole number >= 2, got 1"),
    (RiverSwim, "up", 0.5, 1.5, r"in \[0, 1\], got 1.5"),
    (RiverSwim, "back", 0.1, 0.9, r"in \[0, 0.65\], got 0.9"),
    (RiverSwim, "small_reward", 1.0, float("inf"), r"in \(-inf, inf\), got inf"),
    (RiverSwim, "large_reward", 1.0, float("inf"), r"in \(-inf, inf\), got inf"),
    (RiverSwim, "horizon", 5, 0, r"a whole number >= 1, got 0"),
    (BettingGame, "start", 8, 0, r"a whole number >= 1, got 0"),
    (BettingGame, "limit", 64, 1, r"a whole number >= 2, got 1"),
    (BettingGame, "rounds", 4, 0, r"a whole number >= 1, got 0"),
    (BettingGame, "win", 0.5, 1.5, r"in \[0, 1\], got 1.5"),
    (BettingGame, "continuous", True, 1, r"True or False, got 1"),
    (DualCounterexample, "chance", 0.25, 1.5, r"in \[0, 1\], got 1.5"),
]
every_parameter = pytest.mark.parametrize(
    ("problem", "name", "good", "bad", "sentence"),
    PARAMETERS,
    ids=[f"{problem.__name__}-{name}" for problem, name, *_ in PARAMETERS],
)
HESTON: dict[str, dict[str, Any]] = {
    name: {"model": "heston"}
    for name in ("reversion", "long_variance", "vol_of_vol", "correlation", "initial_variance")
} | {"swap": {"model": "heston"}, "max_swaps": {"model": "heston", "swap": True}}
OTHER_PROCESS = {"kappa": {"process": "ou"}, "mean": {"process": "ou"}}


def others(problem, name) -> dict[str, Any]:
    if problem is Hedging:
        return HESTON.get(name, {})
    return OTHER_PROCESS.get(name, {}) if problem is AmericanPut else {}


def test_no_parameter_was_forgotten_here():
    here = {(problem, name) for problem, name, *_ in PARAMETERS}
    there = {(entry.problem, name) for entry in registered() for name in entry.parameters}
    assert here == {(problem, name) for problem, name in there if problem is not None}


@every_parameter
def test_another_value_is_kept(problem, name, good, bad, sentence):
    core = make_jax(f"downside/{problem.__name__}-v0", **others(problem, name), **{name: good})
    assert getattr(core, name) == good
    assert core != problem(**others(problem, name))


@every_parameter
def test_a_bad_value_is_refused_with_a_sentence(problem, name, good, bad, sentence):
    with pytest.raises(ValueError, match=f"`{name}` must be .*{sentence}"):
        problem(**others(problem, name), **{name: bad})


def test_numpy_scalars_are_as_good_as_pythons():
    core = MeanReversion(sigma=np.float32(0.5), periods=np.int64(4))  # pyright: ignore
    assert core == MeanReversion(sigma=0.5, periods=4)
    assert type(core.sigma) is float
    assert type(core.periods) is int


def test_the_defaults_are_those_of_the_paper():
    put, trading = AmericanPut(), MeanReversion()
    assert (put.drift, put.sigma, put.strike, put.initial_price) == (-0.3, 0.3, 1.0, 1.0)
    assert (put.maturity, put.periods, put.kind, put.process) == (1.0, 10, "put", "gbm")
    assert (trading.sigma, trading.kappa, trading.mean) == (1.0, 2.0, 1.0)
    assert (trading.cost, trading.terminal_penalty) == (0.005, 0.5)
    assert (trading.max_trade, trading.num_trades) == (2.0, 21)
    assert (trading.periods, trading.dt, trading.inventory_limit) == (10, 0.1, None)
