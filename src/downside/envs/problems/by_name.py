"""The problems by name, and how one is built from keyword arguments."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from downside._names import did_you_mean
from downside.envs.core import AbstractJaxEnv
from downside.envs.problems.finance.american_put import AmericanPut
from downside.envs.problems.finance.hedging import Hedging
from downside.envs.problems.finance.mean_reversion import MeanReversion
from downside.envs.problems.finance.portfolio import Portfolio
from downside.envs.problems.finite.betting import BettingGame
from downside.envs.problems.finite.cliff_walk import CliffWalk
from downside.envs.problems.finite.literature import (
    DualCounterexample,
    GamblersRuin,
    Inventory,
    MachineReplacement,
    RiverSwim,
)
from downside.envs.problems.guarded_maze import GuardedMaze

_SIMULATED = (AmericanPut, MeanReversion, CliffWalk, GuardedMaze, Hedging, Portfolio)
_FINITE = (MachineReplacement, GamblersRuin, Inventory, RiverSwim, BettingGame, DualCounterexample)
PROBLEMS: Mapping[str, type[AbstractJaxEnv]] = {
    problem.__name__: problem for problem in (*_SIMULATED, *_FINITE)
}


def build(
    core: AbstractJaxEnv | type[AbstractJaxEnv] | str, parameters: Mapping[str, Any]
) -> AbstractJaxEnv:
    """The environment called `core`, or of the class `core`, with these `parameters`; or `core`
    itself."""
    if isinstance(core, AbstractJaxEnv):
        if parameters:
            raise TypeError(
                f"`core` is an environment already, so {sorted(parameters)} cannot be set. "
                "Make the environment with those parameters, or pass its name."
            )
        return core
    if isinstance(core, type) and issubclass(core, AbstractJaxEnv):
        check_names(core.__name__, parameters, parameter_names(core))
        return core(**parameters)
    if core not in PROBLEMS:
        raise ValueError(
            f"`core` must be an AbstractJaxEnv or one of {sorted(PROBLEMS)}, got {core!r}."
            f"{did_you_mean(str(core), PROBLEMS)}"
        )
    check_names(core, parameters, parameter_names(PROBLEMS[core]))
    return PROBLEMS[core](**parameters)


def parameter_names(problem: type[AbstractJaxEnv]) -> tuple[str, ...]:
    """The names of the parameters of a problem."""
    return tuple(field.name for field in dataclasses.fields(problem))


def check_names(owner: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise for the first given name that is not known, with the closest one that is."""
    for name in given:
        if name not in known:
            raise TypeError(
                f"{owner} has no parameter `{name}`.{did_you_mean(name, known)} "
                f"Its parameters are: {', '.join(known)}."
            )
