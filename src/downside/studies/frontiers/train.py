"""`frontier`: agents for the mixtures of two measures, trained in one process and evaluated."""

import contextlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from downside._files import DamagedFileError, read_json, write_json
from downside._locks import lock
from downside.evaluation.bootstrap import check_confidence, whole_number
from downside.evaluation.seeds import estimate_value
from downside.exact import as_problem, solve
from downside.risk import AbstractSpectralRisk, as_risk
from downside.studies.engines.in_process import InProcess, make_agents
from downside.studies.frontiers.curve import Frontier, Optimum, Point
from downside.studies.frontiers.mixtures import has_text, mixtures
from downside.train import QRSRM, Agent
from downside.train.config import check_timesteps
from downside.train.many import check_in_jax

_EXACT = "exact.json"


def frontier(
    env: Any,
    *,
    start: AbstractSpectralRisk | str = "mean",
    end: AbstractSpectralRisk | str = "cvar(0.1)",
    points: int = 9,
    seeds: Iterable[int] = range(3),
    agent: type[Agent] = QRSRM,
    preset: str = "default",
    total_timesteps: int | None = None,
    episodes: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    network: Any = None,
    exact: bool | None = None,
    folder: str | Path | None = None,
    engine: str | None = None,
    together: int | None = None,
    confidence: float = 0.95,
    progress_bar: bool = False,
    **changes: Any,
) -> Frontier:
    r"""What more of one risk measure costs in the other: agents for the mixtures of the two.

    For weights $w$ from 0 to 1 it trains agents for $(1 - w)\,$`start`$ + w\,$`end`, with one
    compiled program for each number of levels, and evaluates each policy by both measures.

    Arguments:
        env: an environment written in JAX, as for `ds.train_many`.
        start: the measure at one end, and the horizontal axis.
        end: the measure at the other end, and the vertical axis.
        points: how many mixtures, both ends included.
        seeds: each mixture has an agent for each seed. Intervals are over seeds; with a single
            seed, over its episodes.
        agent: the algorithm; it must take mixtures, as `ds.QRSRM` does.
        preset: "default" or "paper".
        total_timesteps: environment steps of each agent.
        episodes: fresh episodes that each agent is evaluated in.
        env_kwargs: with an id, the parameters of the environment.
        network: as for a single agent.
        exact: whether the planner computes the exact frontier too; by default, where it can.
        folder: where each agent gets a run folder as soon as it is trained. A later call trains
            only what is missing, also with other `points` or more `seeds`. Measures are known by
            their text, so a custom spectrum needs a name (`ds.register`). A custom `network` is
            not part of the run folder: use a folder for each.
        engine: as for `ds.train_many`.
        together: as for `ds.train_many`.
        confidence: of the intervals.
        progress_bar: whether to show the progress.
        **changes: any field of `ds.Settings`, by name.
    """
    start, end = as_risk(start), as_risk(end)
    between = mixtures(start, end, points)
    risks = [risk for _, risk in between]
    seeds, confidence = list(seeds), check_confidence(confidence)
    episodes = None if episodes is None else whole_number(episodes, "episodes", least=2)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"`seeds` must be one or more different whole numbers, got {seeds}.")
    storage = None if folder is None else Path(folder)
    if storage is not None:
        _check_texts([start, end, *risks])
    check_in_jax(env, env_kwargs)
    options = {"preset": preset, "env_kwargs": env_kwargs, "network": network, **changes}
    agents = make_agents(env, risks, seeds, agent, **options)
    planned = _is_planned(agents[0], exact)
    check_timesteps(total_timesteps, agents[0].settings)
    if storage is not None:
        _make_folder(storage)
    optima: Sequence[Optimum | None] = [None] * len(between)
    with contextlib.nullcontext() if storage is None else lock(storage):
        trained = InProcess(
            env=env,
            network=network,
            total_timesteps=total_timesteps,
            episodes=episodes,
            storage=storage,
            measures=(start, end),
        ).train(agents, engine=engine, together=together, progress_bar=progress_bar)
        if planned:
            optima = exact_optima(agents[0], risks, (start, end), storage, progress_bar)
    curve = []
    for i, (weight, risk) in enumerate(between):
        members = tuple(trained[i * len(seeds) : (i + 1) * len(seeds)])
        evaluations = [member.evaluation for member in members]
        by_start, by_end, by_own = (
            estimate_value(evaluations, measure, confidence=confidence, resamples=None)
            for measure in (start, end, risk)
        )
        curve.append(
            Point(
                weight=weight,
                risk=risk,
                trained=members,
                by_start=by_start,
                by_end=by_end,
                by_own=by_own,
                optimum=optima[i],
            )
        )
    return Frontier(
        env=str(agents[0].env_spec),
        agent=agents[0].name,
        gamma=agents[0].settings.gamma,
        start=start,
        end=end,
        confidence=confidence,
        points=tuple(curve),
    )


def _check_texts(risks: Iterable[AbstractSpectralRisk]) -> None:
    """Refuses measures that a folder, which knows them by their text, could confuse."""
    for risk in risks:
        if not has_text(risk):
            raise ValueError(
                "`start` and `end` must be measures that can be parsed from their text if there is "
                f"a `folder`, got {risk}. Leave out `folder`, or give the measure a name: "
                "ds.register, see CONTRIBUTING.md."
            )


def _make_folder(folder: Path) -> None:
    """Makes the folder, so that a wrong path is an error before training."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"`folder` must be a folder or the place for a new one, got {folder}: {error}. Take "
            "another one."
        ) from error


def _is_planned(agent: Agent, exact: bool | None) -> bool:
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
