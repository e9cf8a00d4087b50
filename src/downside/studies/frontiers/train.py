"""`frontier`: agents for the mixtures of two measures, trained in one process and evaluated."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from downside._locks import lock
from downside.evaluation.bootstrap import check_confidence, whole_number
from downside.risk import AbstractSpectralRisk, as_risk
from downside.studies.engines.in_process import InProcess, make_agents
from downside.studies.frontiers.curve import Frontier, Optimum, make_frontier
from downside.studies.frontiers.dial import dial_frontier, family_of, is_dials, turn
from downside.studies.frontiers.mixtures import has_text, mixtures
from downside.studies.frontiers.optima import exact_optima, is_planned
from downside.train import PGSRM, QRSRM, Agent
from downside.train.config import check_timesteps
from downside.train.many import check_in_jax


def frontier(
    env: Any,
    *,
    start: AbstractSpectralRisk | str = "mean",
    end: AbstractSpectralRisk | str = "cvar(0.1)",
    points: int = 9,
    seeds: Iterable[int] = range(3),
    agent: type[Agent] | None = None,
    dial: bool = False,
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

    With `dial`, or for an agent that is a dial, each seed is one training for all mixtures.

    Arguments:
        env: an environment written in JAX, as for `ds.train_many`; any other for a dial of
            `ds.ACSRM`; or a dial that has learned, or several with different seeds.
        start: the measure at one end, and the horizontal axis.
        end: the measure at the other end, and the vertical axis.
        points: how many mixtures, both ends included.
        seeds: each mixture has an agent for each seed. Intervals are over seeds; with a single
            seed, over its episodes.
        agent: the algorithm; it must take mixtures, as `ds.QRSRM` does, which is the default.
        dial: whether to train one agent for all mixtures, with risk="dial"; `ds.PGSRM` by default,
            `ds.ACSRM` in any Gymnasium environment.
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
    confidence = check_confidence(confidence)
    if is_dials(env):
        if changes or not (total_timesteps is None and folder is None):
            raise ValueError(
                "`env` must be an environment if something is to be trained or kept in a `folder`, "
                "got an agent, which has learned already."
            )
        return dial_frontier(
            env,
            start=start,
            end=end,
            points=points,
            episodes=episodes,
            exact=exact,
            confidence=confidence,
            progress_bar=progress_bar,
        )
    between = mixtures(start, end, points)
    risks = [risk for _, risk in between]
    seeds = list(seeds)
    episodes = None if episodes is None else whole_number(episodes, "episodes", least=2)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"`seeds` must be one or more different whole numbers, got {seeds}.")
    storage = None if folder is None else Path(folder)
    if storage is not None:
        _check_texts([start, end, *risks])
    options = {"preset": preset, "env_kwargs": env_kwargs, "network": network, **changes}
    agent = agent or (PGSRM if dial else QRSRM)
    if not dial:  # a dial's agent says by itself what it needs
        check_in_jax(env, env_kwargs)
    agents = make_agents(env, [family_of(risks)] if dial else risks, seeds, agent, **options)
    planned = is_planned(agents[0], exact)
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
        if dial:
            trained = turn(trained, risks, episodes)
        if planned:
            optima = exact_optima(agents[0], risks, (start, end), storage, progress_bar)
    return make_frontier(agents[0], start, end, between, trained, optima, confidence=confidence)


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
