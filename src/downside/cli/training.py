"""`downside train`, `evaluate`, `resume` and `runs`."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from downside.cli._common import agent_class, as_parameters, changed_settings, print_json

if TYPE_CHECKING:
    from downside.evaluation import Evaluation
    from downside.risk import AbstractSpectralRisk


@dataclasses.dataclass(frozen=True)
class Train:
    """Train an agent in any Gymnasium environment, in a run folder that can be resumed."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """The environment's id, e.g. downside/MeanReversion-v0 or CartPole-v1."""
    risk: str | None = None
    """The measure to optimise, e.g. "0.5*mean + 0.5*cvar(0.2)"; qrdqn needs none."""
    agent: str = "qrsrm"
    """The algorithm: qrsrm, qrcvar, qricvar or qrdqn."""
    seeds: tuple[int, ...] = (0,)
    """A run for each of them."""
    preset: str = "default"
    """The settings: default or paper."""
    steps: int | None = None
    """Environment steps, by default the preset's."""
    params: tuple[str, ...] = ()
    """Parameters of the environment, as name=value, e.g. sigma=0.5."""
    episodes: int | None = None
    """Fresh episodes that the agent is valued in in the end."""
    every: float = 60.0
    """Seconds between two checkpoints."""
    out: str | None = None
    """The run folder (with several seeds, followed by the seed); by default one under runs/."""
    json: bool = False
    """Print JSON, for other programs."""

    changes: ClassVar[tuple[str, ...]] = ()
    """Names of further fields that are settings; see `downside.cli.settings`."""

    def run(self) -> None:
        """Trains one run after the other."""
        from pathlib import Path

        from downside.runs import run_folder, train_run

        kind, settings = agent_class(self.agent), changed_settings(self)
        results = []
        for seed in self.seeds:
            agent = kind(
                self.env,
                risk=self.risk,
                preset=self.preset,
                seed=seed,
                env_kwargs=as_parameters(self.params),
                **settings,
            )
            folder = run_folder(self.env, self.agent.lower(), agent.risk, seed)
            if self.out is not None:
                folder = Path(self.out) / str(seed) if len(self.seeds) > 1 else Path(self.out)
            try:
                found = train_run(
                    agent,
                    folder,
                    total_timesteps=self.steps,
                    episodes=self.episodes,
                    every_seconds=self.every,
                    progress_bar=not self.json,
                )
            except KeyboardInterrupt as interruption:
                raise type(interruption)(_stopped(agent, folder)) from None
            results.append(_show(folder, agent, found, (), quiet=self.json))
        if self.json:
            print_json(results)


@dataclasses.dataclass(frozen=True)
class Resume:
    """Go on with a run that was interrupted, from its latest checkpoint."""

    run_folder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """The run folder."""
    every: float = 60.0
    """Seconds between two checkpoints."""
    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Trains to the end that was planned, and values the agent."""
        from downside.runs import list_runs, resume_run

        try:
            agent, found = resume_run(
                self.run_folder, every_seconds=self.every, progress_bar=not self.json
            )
        except KeyboardInterrupt as interruption:
            from pathlib import Path

            here = [
                one
                for one in list_runs(Path(self.run_folder).parent)
                if Path(one.folder).resolve() == Path(self.run_folder).resolve()
            ]
            steps = here[0].timesteps if here else 0
            raise type(interruption)(_stopped_at(steps, self.run_folder)) from None
        shown = _show(self.run_folder, agent, found, (), quiet=self.json)
        if self.json:
            print_json(shown)


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Value the policy of a run in fresh episodes, by any risk measures."""

    run_folder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """The run folder, or a file that `agent.save` wrote."""
    risks: tuple[str, ...] = ()
    """Measures beside the run's own, the mean and a few CVaRs."""
    episodes: int | None = None
    """How many; by default as many as are cheap."""
    seed: int | None = None
    """Of the episodes."""
    video: bool = False
    """Film a median episode and two of the worst, into RUN/videos."""
    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Plays and prints."""
        from pathlib import Path

        from downside import evaluate, load, parse
        from downside.runs import EVALUATION_SEED

        risks = tuple(parse(risk) for risk in self.risks)
        agent = load(Path(self.run_folder))
        seed = EVALUATION_SEED + agent.seed if self.seed is None else self.seed
        found = evaluate(agent, episodes=self.episodes, seed=seed)
        shown = _show(self.run_folder, agent, found, risks, quiet=self.json)
        if self.video:
            shown["videos"] = self._film(agent, seed)
        if self.json:
            print_json(shown)

    def _film(self, agent: Any, seed: int) -> list[str]:
        """Writes the videos; says where unless JSON is wanted."""
        from pathlib import Path

        from downside.evaluation import chosen_replays, film

        path = Path(self.run_folder)
        folder = (path if path.is_dir() else path.parent) / "videos"
        made = [str(film(agent, one, folder)) for one in chosen_replays(agent, seed=seed)]
        if not self.json:
            from rich.console import Console

            Console(soft_wrap=True).print("\n".join(["Videos:", *made]), highlight=False)
        return made


@dataclasses.dataclass(frozen=True)
class Runs:
    """List the run folders: what was trained, how far it is and what it is worth."""

    folder: tyro.conf.Positional[str] = "runs"
    """Where they are."""
    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Prints the table."""
        from downside.runs import list_runs

        found = list_runs(self.folder)
        if self.json:
            print_json([dataclasses.asdict(one) for one in found])
            return
        from rich import box
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        console = Console()
        if not found:
            console.print(f"There are no runs in {self.folder}. `downside train` makes one.")
            return
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("run", overflow="fold")
        for column in ("status", "steps", "value", "95% interval"):
            table.add_column(column, justify="right" if column != "status" else "left")
        for one in found:
            value = "" if one.value is None else f"{one.value:.4g}"
            interval = "" if one.low is None else f"{one.low:.4g} to {one.high:.4g}"
            table.add_row(escape(one.folder), one.status, f"{one.timesteps:,}", value, interval)
        console.print(table)


def _show(
    folder: Any,
    agent: Any,
    found: "Evaluation",
    risks: "tuple[AbstractSpectralRisk, ...]",
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Prints what an agent is worth; returns it in plain types."""
    from downside.risk import as_risk

    wanted = {
        str(risk): risk for risk in (agent.risk, *risks, *map(as_risk, ("mean", "cvar(0.2)")))
    }
    if not quiet:
        from rich.console import Console

        console = Console(highlight=False)
        console.print(f"[bold]{agent.name}[/bold] for {agent.risk} in {agent.origin}")
        console.print(found.table(list(wanted.values())))
        console.print(f"Run folder: {folder}", soft_wrap=True)
    return {
        "folder": str(folder),
        "agent": type(agent).__name__,
        "env": agent.origin.as_json(),
        "risk": str(agent.risk),
        "seed": agent.seed,
        "timesteps": agent.num_timesteps,
        "values": found.summary(list(wanted.values())),
    }


def _stopped(agent: Any, folder: Any) -> str:
    if not agent.history:
        return "stopped before the first step was done; there is nothing to resume."
    return _stopped_at(agent.num_timesteps, folder)


def _stopped_at(steps: int, folder: Any) -> str:
    return f"stopped after {steps:,} steps, all of them saved. Go on: downside resume {folder}"
