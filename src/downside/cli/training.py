"""`downside train`, `evaluate`, `resume` and `runs`."""

import dataclasses
import shlex
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from downside.cli._common import (
    STEPS,
    agent_class,
    as_parameters,
    changed_settings,
    print_json,
    print_next,
)

if TYPE_CHECKING:
    from downside.evaluation import Evaluation
    from downside.risk import AbstractSpectralRisk
    from downside.runs import RunInfo


@dataclasses.dataclass(frozen=True)
class Train:
    """Train an agent in any Gymnasium environment, in a run folder that can be resumed."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """The environment's id, e.g. downside/MeanReversion-v0 or CartPole-v1, or module:Class of
    your own simulator. With --help behind it, all its settings are shown."""
    risk: str | None = None
    """The measure to optimise, e.g. "0.5*mean + 0.5*cvar(0.2)"; qrdqn needs none."""
    agent: str = "qrsrm"
    """The algorithm: qrsrm, qrcvar, qricvar, qrdqn, pgsrm, acsrm, or module:Class for one of your
    own."""
    seeds: tuple[int, ...] = (0,)
    """A run for each of them."""
    preset: str = "default"
    """The settings: default or paper."""
    steps: Annotated[int | None, STEPS] = None
    """About so many environment steps, in whole outer steps; by default the preset's."""
    params: tuple[str, ...] = ()
    """Parameters of the environment, as name=value, e.g. sigma=0.5 or continuous=true."""
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
            folder = run_folder(
                self.env, type(agent).__name__.lower(), agent.family or agent.risk, seed
            )
            if self.out is not None:
                folder = Path(self.out) / str(seed) if len(self.seeds) > 1 else Path(self.out)
            try:
                evaluation = train_run(
                    agent,
                    folder,
                    total_timesteps=self.steps,
                    episodes=self.episodes,
                    every_seconds=self.every,
                    progress_bar=not self.json,
                )
            except KeyboardInterrupt as interruption:
                raise type(interruption)(_stopped(folder)) from None
            results.append(_show(folder, agent, evaluation, (), quiet=self.json))
        if self.json:
            print_json(results)
        else:
            runs = " ".join(shlex.quote(result["folder"]) for result in results)
            print_next(f"downside report {runs} --open")


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
        from downside.runs import import_run_environment, resume_run

        import_run_environment(self.run_folder)
        try:
            agent, evaluation = resume_run(
                self.run_folder, every_seconds=self.every, progress_bar=not self.json
            )
        except KeyboardInterrupt as interruption:
            raise type(interruption)(_stopped(self.run_folder)) from None
        shown = _show(self.run_folder, agent, evaluation, (), quiet=self.json)
        if self.json:
            print_json(shown)
        else:
            print_next(f"downside report {shlex.quote(self.run_folder)} --open")


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
        from downside import evaluate, parse
        from downside.runs import EVALUATION_SEED, load_run

        risks = tuple(parse(risk) for risk in self.risks)
        agent = load_run(self.run_folder)
        seed = EVALUATION_SEED + agent.seed if self.seed is None else self.seed
        evaluation = evaluate(agent, episodes=self.episodes, seed=seed)
        shown = _show(self.run_folder, agent, evaluation, risks, quiet=self.json)
        if self.video:
            shown["videos"] = self._film(agent, seed)
        if self.json:
            print_json(shown)
        else:
            print_next(f"downside explain {shlex.quote(self.run_folder)}")

    def _film(self, agent: Any, seed: int) -> list[str]:
        """Writes the videos; says where unless JSON is wanted."""
        from pathlib import Path

        from downside.evaluation import chosen_replays, film

        path = Path(self.run_folder)
        folder = (path if path.is_dir() else path.parent) / "videos"
        made = [str(film(agent, replay, folder)) for replay in chosen_replays(agent, seed=seed)]
        if not self.json:
            from rich.console import Console

            text = "\n".join(["Videos:", *made])
            Console(soft_wrap=True).print(text, highlight=False, markup=False)
        return made


@dataclasses.dataclass(frozen=True)
class Export:
    """Write the policy of a run as an ONNX file, which onnxruntime runs without JAX."""

    run_folder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """The run folder, or a file that `agent.save` wrote."""
    out: str | None = None
    """The file to write; by default policy.onnx in the run folder."""
    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Writes the file, and says where it is."""
        from pathlib import Path

        from downside.runs import load_run

        agent, folder = load_run(self.run_folder), Path(self.run_folder)
        folder = folder if folder.is_dir() else folder.parent
        path = agent.export(folder / "policy.onnx" if self.out is None else self.out)
        if self.json:
            print_json({"file": str(path), "bytes": path.stat().st_size})
            return
        from rich.console import Console

        text = f"{path}: checked against the agent. docs: Deploying a policy."
        Console(soft_wrap=True).print(text, highlight=False, markup=False)


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

        runs = list_runs(self.folder)
        if self.json:
            print_json([dataclasses.asdict(run) for run in runs])
            return
        from rich.console import Console

        console = Console(highlight=False)
        if not runs:
            text = f"There are no runs in {self.folder}. `downside train` makes one."
            console.print(text, markup=False)
            return
        table = _runs_table(runs)
        needed = console.measure(table, options=console.options.update(width=10_000)).maximum
        if not console.is_terminal:  # whoever reads a file or a pipe has room
            console.width = max(console.width, needed)
        if needed <= console.width:
            console.print(table)
        else:
            for run in runs:
                console.print(_run_lines(run), markup=False, soft_wrap=True)
        for run in runs:
            if run.problem is not None:
                console.print(run.problem, markup=False, soft_wrap=True)
        print_next("downside report RUN --open", "downside resume RUN")


def _runs_table(runs: "list[RunInfo]") -> Any:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("run", no_wrap=True)
    for column in ("status", "steps", "simulated", "value", "95% interval"):
        justify = "left" if column == "status" else "right"
        table.add_column(column, justify=justify, no_wrap=True)
    for run in runs:
        table.add_row(
            escape(run.folder),
            run.status,
            f"{run.timesteps:,}",
            f"{run.simulated_steps:,}",
            *_value_and_interval(run),
        )
    return table


def _run_lines(run: "RunInfo") -> str:
    """A run on two lines, for a terminal that is too narrow for the table."""
    value, interval = _value_and_interval(run)
    worth = f"  {value} ({interval})" if value else ""
    steps = f"{run.timesteps:,} + {run.simulated_steps:,} steps"
    return f"{run.folder}\n    {run.status}  {steps}{worth}"


def _value_and_interval(run: "RunInfo") -> tuple[str, str]:
    if run.value is None:
        return "", ""
    return f"{run.value:.4g}", f"{run.low:.4g} to {run.high:.4g}"


def _show(
    folder: Any,
    agent: Any,
    evaluation: "Evaluation",
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
        from rich.markup import escape

        console = Console(highlight=False)
        where = escape(f"{agent.risk} in {agent.env_spec}")
        console.print(f"[bold]{escape(agent.name)}[/bold] for {where}")
        console.print(evaluation.table(list(wanted.values())))
        console.print(f"Run folder: {folder}", markup=False, soft_wrap=True)
    return {
        "folder": str(folder),
        "agent": agent.full_name(),
        "env": agent.env_spec.as_json(),
        "risk": str(agent.risk),
        "seed": agent.seed,
        "timesteps": agent.num_timesteps,
        "simulated_steps": agent.simulated_steps,
        "values": evaluation.summary(list(wanted.values())),
    }


def _stopped(folder: Any) -> str:
    """What to say of a run that was stopped: what is on the disk."""
    from downside.train.monitor import saved_at, saved_in

    saved = saved_in(folder)
    if not saved:
        return "stopped before the first checkpoint; there is nothing to resume."
    return (
        f"stopped; the last checkpoint is after {saved_at(saved[0]):,} steps. Go on: downside "
        f"resume {folder}"
    )
