"""Many agents in this process, as `ds.train_many` trains them, each with a run folder.

The other engines start a process for each run. Here all agents share one process and its compiled
programs; the environment must be written in JAX, and may be an object of the user's.
"""

import dataclasses
import functools
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from downside._files import DamagedFileError
from downside._locks import lock, tidy
from downside.evaluation import Evaluation, evaluate
from downside.risk import AbstractSpectralRisk, Dial
from downside.runs import (
    check_same_run,
    evaluation_seed,
    is_valued,
    keep_run,
    run_folder,
    run_returns,
)
from downside.studies.storage import set_all_aside
from downside.train import Agent, load
from downside.train.checkpoints.checkpoint import CheckpointError, MissingPartError
from downside.train.many import train_agents
from downside.train.monitor import saved_in


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """A trained agent: its seed, and the returns of fresh episodes."""

    seed: int
    """The seed of its training."""
    evaluation: Evaluation
    """The returns of fresh episodes."""
    folder: Path | None = None
    """The run folder, if there is one."""
    source: Any = dataclasses.field(repr=False)
    """The agent, or a function that loads it."""

    @functools.cached_property
    def agent(self) -> Agent:
        """The agent; loaded from its run folder on first use if it was trained before."""
        return self.source if isinstance(self.source, Agent) else self.source()


@dataclasses.dataclass(frozen=True, kw_only=True)
class InProcess:
    """Trains agents that differ in their measure and seed only, and evaluates them."""

    env: Any
    """The environment, as the user gave it."""
    network: Any = None
    """As for a single agent."""
    total_timesteps: int | None = None
    """Environment steps of each agent."""
    episodes: int | None = None
    """Fresh episodes that each agent is evaluated in."""
    storage: Path | None = None
    """Where each agent gets a run folder as soon as it is trained; None keeps nothing."""
    measures: tuple[AbstractSpectralRisk, ...] = ()
    """Measures beside the agent's own that go into its run folder."""

    def train(self, agents: Sequence[Agent], **options: Any) -> list[Trained]:
        """Trains the agents that are not in the storage; `options` are those of `train_agents`.

        Those that live through their episodes are trained one after the other.
        """
        if agents and agents[0].jax_backend is None:
            return self._train_alone(agents, **options)
        done = {agent: stored for agent in agents if (stored := self._stored(agent)) is not None}
        missing = [agent for agent in agents if agent not in done]

        def finished(agent: Agent) -> None:
            done[agent] = self._keep(agent)

        if missing:
            train_agents(
                missing, total_timesteps=self.total_timesteps, finished=finished, **options
            )
        return [done[agent] for agent in agents]

    def _train_alone(
        self, agents: Sequence[Agent], progress_bar: bool = False, **options: Any
    ) -> list[Trained]:
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise ValueError(
                f"`{given[0]}` must be left out for {agents[0].name}, which lives through its "
                f"episodes: its agents are trained one after the other. Got {options[given[0]]!r}."
            )
        trained = []
        for agent in agents:
            agent.adapt(self.total_timesteps)  # so that settings are those of a run that is there
            done = self._stored(agent)
            if done is None:
                agent.learn(self.total_timesteps, progress_bar=progress_bar)
                done = self._keep(agent)
            trained.append(done)
        return trained

    def _folder(self, agent: Agent) -> Path | None:
        if self.storage is None:
            return None
        kind, measure = type(agent).__name__.lower(), agent.family or agent.risk
        name = run_folder(str(agent.env_spec), kind, measure, agent.seed)
        return self.storage / name.name

    def _keep(self, agent: Agent) -> Trained:
        """Evaluates a trained agent, and writes its run folder."""
        folder = self._folder(agent)
        if folder is None:
            evaluation = evaluate(agent, episodes=self.episodes, seed=evaluation_seed(agent.seed))
        else:
            evaluation = keep_run(
                agent,
                folder,
                total_timesteps=self.total_timesteps,
                episodes=self.episodes,
                risks=self.measures,
            )
        named = labelled(evaluation, agent)
        return Trained(seed=agent.seed, evaluation=named, folder=folder, source=agent)

    def _stored(self, agent: Agent) -> Trained | None:
        """The agent from its run folder, trained to the end; None if there is none."""
        folder = self._folder(agent)
        if folder is None or not saved_in(folder):
            return None
        try:
            return self._read(agent, folder)
        except MissingPartError:
            raise
        except (DamagedFileError, CheckpointError, FileNotFoundError) as error:
            warnings.warn(f"{error} This agent is trained again.", stacklevel=2)
            with lock(folder):
                set_all_aside(folder)
            return None

    def _read(self, agent: Agent, folder: Path) -> Trained:
        about = check_same_run(agent, folder, self.total_timesteps)
        if about.get("episodes") == self.episodes and is_valued(folder, self.episodes):
            tidy(folder)
            evaluation = labelled(run_returns(folder), agent)
            source = functools.partial(self._load, folder, agent)
            return Trained(seed=agent.seed, evaluation=evaluation, folder=folder, source=source)
        # Interrupted, or evaluated in another number of episodes.
        return self._keep(self._load(folder, agent).resume())

    def _load(self, folder: Path, agent: Agent) -> Agent:
        env = self.env if agent.env_spec.as_json()["id"] is None else None
        return load(folder, env, risk=agent.risk, network=self.network)


def make_agents(
    env: Any,
    risks: Iterable[AbstractSpectralRisk | Dial],
    seeds: Sequence[int],
    agent: type[Agent],
    **options: Any,
) -> list[Agent]:
    """An untrained agent for each measure and seed, seed by seed within a measure."""
    return [agent(env, risk=risk, seed=seed, **options) for risk in risks for seed in seeds]


def labelled(evaluation: Evaluation, agent: Agent) -> Evaluation:
    """The evaluation under the name of the agent's measure and seed."""
    label = f"{agent.risk}, seed {agent.seed}"
    return dataclasses.replace(evaluation, label=label, aligned=agent.aligned)
