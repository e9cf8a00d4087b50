"""Every parameter of every problem: another value is kept, a bad one is refused with a sentence."""

from typing import Any

import numpy as np
import pytest

from downside.envs import AmericanPut, CliffWalk, MeanReversion, make_jax, registered

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
    (CliffWalk, "rows", 5, 1, r"a whole number >= 2, got 1"),
    (CliffWalk, "columns", 5, 2, r"a whole number >= 3, got 2"),
    (CliffWalk, "slip", 0.5, 1.5, r"in \[0, 1\], got 1.5"),
    (CliffWalk, "step_reward", 0.0, float("inf"), r"in \(-inf, inf\), got inf"),
    (CliffWalk, "cliff_reward", -5.0, float("nan"), r"in \(-inf, inf\), got nan"),
    (CliffWalk, "goal_reward", 5.0, float("nan"), r"in \(-inf, inf\), got nan"),
    (CliffWalk, "horizon", None, 0, r"a whole number >= 1, got 0"),
]
every_parameter = pytest.mark.parametrize(
    ("problem", "name", "good", "bad", "sentence"),
    PARAMETERS,
    ids=[f"{problem.__name__}-{name}" for problem, name, *_ in PARAMETERS],
)
OTHER_PROCESS = {"kappa": {"process": "ou"}, "mean": {"process": "ou"}}


def others(problem, name) -> dict[str, Any]:
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
