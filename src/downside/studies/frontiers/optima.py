"""The exact frontier, where the planner can solve the problem."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from downside._files import DamagedFileError, read_json, write_json
from downside.exact import as_problem, solve
from downside.risk import AbstractSpectralRisk
from downside.studies.frontiers.curve import Optimum
from downside.train import Agent

_EXACT = "exact.json"


def is_planned(agent: Agent, exact: bool | None) -> bool:
    """Whether to compute the exact frontier; an error if it is required and impossible."""
    if exact is False:
        return False
    try:
        as_problem(agent.env, gamma=agent.settings.gamma)
    except ValueError as error:
        if exact:
            raise ValueError(f"`exact` must be False or left out here: {error}") from error
        return False
    return True


def exact_optima(
    agent: Agent,
    risks: Sequence[AbstractSpectralRisk],
    axes: tuple[AbstractSpectralRisk, AbstractSpectralRisk],
    storage: Path | None,
    progress_bar: bool,
) -> list[Optimum]:
    """The optimum of each measure in the agent's environment; those in the storage are read."""
    about = {
        "env": agent.env_spec.as_json(),
        "gamma": agent.settings.gamma,
        "start": str(axes[0]),
        "end": str(axes[1]),
    }
    path = None if storage is None else storage / _EXACT
    known: dict[str, Optimum] = {}
    if path is not None and path.exists():
        try:
            before = read_json(path)
            if {name: before.get(name) for name in about} == about:
                known = {risk: Optimum(*values) for risk, values in before["optima"].items()}
        except (DamagedFileError, KeyError, AttributeError, TypeError) as error:
            warnings.warn(f"{path} cannot be read: {error} It is made again.", stacklevel=2)
    optima = []
    for risk in risks:
        # Without a storage, measures may share a text: nothing is looked up by it.
        optimum = None if path is None else known.get(str(risk))
        if optimum is None:
            gamma = agent.settings.gamma
            env: Any = agent.env  # written in JAX
            plan = solve(env, risk, gamma=gamma, progress_bar=progress_bar)
            start, end = (float(axis(plan.returns)) for axis in axes)
            optimum = known[str(risk)] = Optimum(plan.value, start, end)
            if path is not None:
                write_json(path, {**about, "optima": known})
        optima.append(optimum)
    return optima
