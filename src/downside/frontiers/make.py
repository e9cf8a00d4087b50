"""`frontier`: agents for the mixtures between two measures, trained together and valued."""

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from downside._files import write_text
from downside.evaluation import Evaluation, evaluate
from downside.evaluation.bootstrap import check_confidence, whole_number
from downside.exact import as_problem, solve
from downside.frontiers.curve import Frontier, Optimum, Point, Trained
from downside.frontiers.intervals import valued
from downside.frontiers.mixtures import has_text, mixtures
from downside.risk import AbstractSpectralRisk, as_risk
from downside.runs import (
    EVALUATION_SEED,
    check_same_run,
    is_valued,
    keep_run,
    run_folder,
    run_returns,
)
from downside.train import QRSRM, Agent, load
from downside.train.callbacks import saved_in
from downside.train.many import check_in_jax, train_agents
from downside.train.setup import check_timesteps

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
    r"""What more of one risk measure costs in the other: agents for the mixtures between the two.

    For weights $w$ from 0 to 1 it trains agents for $(1 - w)\,$`start`$ + w\,$`end`, with one
    compiled program for each number of levels, and values each policy by both measures.

    Arguments:
        env: an environment written in JAX, as for `ds.train_many`.
        start: the measure at one end, and the axis across.
        end: the measure at the other end, and the axis up.
        points: how many mixtures, the two ends among them.
        seeds: an agent for each of them and each mixture. Intervals are over seeds; with a single
            one, over its episodes only.
        agent: which algorithm; it must take mixtures, as `ds.QRSRM` does.
        preset: "default" or "paper".
        total_timesteps: environment steps of each agent.
        episodes: fresh episodes that each is valued in.
        env_kwargs: with an id, the parameters of the environment.
        network: as for a single agent.
        exact: whether the planner computes the exact frontier too; by default, where it can.
        folder: where each agent gets a run folder as soon as it is trained. Called again, what is
            there is not trained again, also with other `points` or more `seeds`. It knows measures
            by their text, so that spectra of your own need a name (`ds.register`); a `network` of
            your own it does not know, so take a folder for each.
        engine: as for `ds.train_many`.
        together: as for `ds.train_many`.
        confidence: of the intervals.
        progress_bar: whether to show how far it is.
        **changes: any field of `ds.Settings`, by name.
    """
    start, end = as_risk(start), as_risk(end)
    between = mixtures(start, end, points)
    seeds, confidence = list(seeds), check_confidence(confidence)
    episodes = None if episodes is None else whole_number(episodes, "episodes", least=2)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"`seeds` must be one or more different whole numbers, got {seeds}.")
    if folder is not None:
        _check_texts([start, end, *(risk for _, risk in between)])
    check_in_jax(env, env_kwargs)
    agents = [
        agent(
            env,
            risk=risk,
            seed=seed,
            preset=preset,
            env_kwargs=env_kwargs,
            network=network,
            **changes,
        )
        for _, risk in between
        for seed in seeds
    ]
    planned = _is_planned(agents[0], exact)
    check_timesteps(total_timesteps, agents[0].settings)
    if folder is not None:
        _make_folder(Path(folder))
    work = _Work(
        env=env,
        network=network,
        total_timesteps=total_timesteps,
        episodes=episodes,
        folder=None if folder is None else Path(folder),
        axes=(start, end),
    )
    done = {one: kept for one in agents if (kept := work.kept(one)) is not None}
    missing = [one for one in agents if one not in done]

    def finished(one: Agent) -> None:
        done[one] = work.keep(one)

    if missing:
        train_agents(
            missing,
            total_timesteps=total_timesteps,
            engine=engine,
            together=together,
            finished=finished,
            progress_bar=progress_bar,
        )
    optima: list[Optimum | None] = [None] * len(between)
    if planned:
        optima = [*work.optima(agents[0], [risk for _, risk in between], progress_bar)]
    out = []
    for i, (weight, risk) in enumerate(between):
        trained = tuple(done[one] for one in agents[i * len(seeds) : (i + 1) * len(seeds)])
        found = [one.evaluation for one in trained]
        out.append(
            Point(
                weight=weight,
                risk=risk,
                trained=trained,
                by_start=valued(found, start, confidence),
                by_end=valued(found, end, confidence),
                by_own=valued(found, risk, confidence),
                optimum=optima[i],
            )
        )
    return Frontier(
        env=str(agents[0].origin),
        agent=agents[0].name,
        gamma=agents[0].settings.gamma,
        start=start,
        end=end,
        confidence=confidence,
        points=tuple(out),
    )


def _check_texts(risks: Iterable[AbstractSpectralRisk]) -> None:
    """Refuses measures that a folder, which knows them by their text, could take for others."""
    for risk in risks:
        if not has_text(risk):
            raise ValueError(
                "`start` and `end` must be measures that their text makes again if there is a "
                f"`folder`, got {risk}. Leave out `folder`, or give the measure a name: "
                "ds.register, see CONTRIBUTING.md."
            )


def _make_folder(folder: Path) -> None:
    """Makes the folder, so that what is wrong with it is known before anything is trained."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"`folder` must be a folder or the place for a new one, got {folder}: {error}. Take "
            "another one."
        ) from error


def _is_planned(agent: Agent, exact: bool | None) -> bool:
    """Whether the exact frontier is to be computed; an error if it must and cannot."""
    if exact is False:
        return False
    try:
        as_problem(agent.env, gamma=agent.settings.gamma)
    except ValueError as error:
        if exact:
            raise ValueError(f"`exact` must be False or left out here: {error}") from error
        return False
    return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Work:
    """What is done with an agent before and after its training."""

    env: Any
    network: Any
    total_timesteps: int | None
    episodes: int | None
    folder: Path | None
    axes: tuple[AbstractSpectralRisk, AbstractSpectralRisk]

    def _home(self, agent: Agent) -> Path | None:
        if self.folder is None:
            return None
        name = run_folder(str(agent.origin), type(agent).__name__.lower(), agent.risk, agent.seed)
        return self.folder / name.name

    def keep(self, agent: Agent) -> Trained:
        """Values an agent that is trained, and writes its run folder."""
        home = self._home(agent)
        if home is None:
            seed = EVALUATION_SEED + agent.seed
            found = evaluate(agent, episodes=self.episodes, seed=seed)
        else:
            found = keep_run(
                agent,
                home,
                total_timesteps=self.total_timesteps,
                episodes=self.episodes,
                risks=self.axes,
            )
        return Trained(
            seed=agent.seed,
            evaluation=_labelled(found, agent),
            folder=home,
            source=agent,
        )

    def kept(self, agent: Agent) -> Trained | None:
        """The same agent as its run folder has it: loaded, or trained to its end; None if none."""
        home = self._home(agent)
        if home is None or not saved_in(home):
            return None
        about = check_same_run(agent, home, self.total_timesteps)
        if about.get("episodes") == self.episodes and is_valued(home, self.episodes):
            found = _labelled(run_returns(home), agent)
            source = functools.partial(self._load, home, agent)
            return Trained(seed=agent.seed, evaluation=found, folder=home, source=source)
        # Trained, but not valued in as many episodes; or interrupted on the way.
        return self.keep(self._load(home, agent).resume())

    def _load(self, home: Path, agent: Agent) -> Agent:
        given = self.env if agent.origin.as_json()["id"] is None else None
        return load(home, given, risk=agent.risk, network=self.network)

    def optima(
        self, agent: Agent, risks: Sequence[AbstractSpectralRisk], progress_bar: bool
    ) -> list[Optimum]:
        """The optimum of each measure; those that were computed before are read."""
        start, end = self.axes
        about = {
            "env": agent.origin.as_json(),
            "gamma": agent.settings.gamma,
            "start": str(start),
            "end": str(end),
        }
        path = None if self.folder is None else self.folder / _EXACT
        known: dict[str, Optimum] = {}
        if path is not None and path.exists():
            before = json.loads(path.read_text(encoding="utf-8"))
            if {name: before.get(name) for name in about} == about:
                known = {risk: Optimum(*values) for risk, values in before["optima"].items()}
        out = []
        for risk in risks:
            optimum = None if path is None else known.get(str(risk))
            if optimum is None:
                optimum = self._optimum(agent, risk, progress_bar)
                known[str(risk)] = optimum
                if path is not None:
                    write_text(path, json.dumps({**about, "optima": known}, indent=2) + "\n")
            out.append(optimum)
        return out

    def _optimum(self, agent: Agent, risk: AbstractSpectralRisk, progress_bar: bool) -> Optimum:
        plan = solve(agent._core, risk, gamma=agent.settings.gamma, progress_bar=progress_bar)
        start, end = (float(axis(plan.returns)) for axis in self.axes)
        return Optimum(plan.value, start, end)


def _labelled(found: Evaluation, agent: Agent) -> Evaluation:
    label = f"{agent.risk}, seed {agent.seed}"
    return dataclasses.replace(found, label=label, aligned=agent.aligned)
