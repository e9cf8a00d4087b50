"""The command line: parse, call the Python API, print. `downside --help` lists the commands."""

import dataclasses
import json
import os
import sys
from typing import Annotated, Any

import tyro

from downside.experiments import NAMES
from downside.reporting.commands import Explain, Report

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130


@dataclasses.dataclass(frozen=True)
class Risks:
    """List the risk measures: name, parameters and spectrum of each."""

    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Prints the table."""
        from downside.risk import entries

        if self.json:
            _print_json(
                [
                    {
                        "name": entry.name,
                        "aliases": entry.aliases,
                        "parameters": dict(entry.parameters),
                        "formula": entry.formula,
                        "description": entry.description,
                        "example": entry.example,
                    }
                    for entry in entries()
                ]
            )
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table

        console = Console()
        roomy = console.width >= 150
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("write", no_wrap=True, min_width=max(len(e.example) for e in entries()))
        for column in ("spectrum", "parameters", *(("what it is", "or") * roomy)):
            table.add_column(column, overflow="fold")
        for entry in entries():
            table.add_row(
                entry.example,
                entry.formula,
                ", ".join(f"{name} {allowed}" for name, allowed in entry.parameters),
                *((entry.description, ", ".join(entry.aliases)) * roomy),
            )
        console.print(table)
        console.print(
            "Sums mix them, with weights that sum to 1: [bold]0.5*mean + 0.5*cvar(20%)[/bold]. "
            "Returns are larger-is-better; alpha is the worst share.\n"
            "From Python also ds.WeightedCVaR(levels, weights) and ds.CustomSpectrum(function)."
        )


@dataclasses.dataclass(frozen=True)
class Envs:
    """List the environments: id, parameters with their defaults, spaces."""

    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Prints the table."""
        from downside.envs import registered

        if self.json:
            _print_json(
                [
                    {"id": one.id, "description": one.description, "parameters": one.parameters}
                    for one in registered()
                ]
            )
            return
        from rich.console import Console

        console = Console()
        for one in registered():
            parameters = ", ".join(f"{name}={value!r}" for name, value in one.parameters.items())
            console.print(f"[bold]{one.id}[/bold]  {one.description}", highlight=False)
            console.print(f"    {parameters}\n", highlight=False)


@dataclasses.dataclass(frozen=True)
class Solve:
    """Compute the optimum of a risk measure, without learning, where the problem is small."""

    env: tyro.conf.Positional[str]
    """The environment's id, e.g. downside/AmericanPut-v0."""
    risk: str
    """The measure to optimise, e.g. "0.5*mean + 0.5*cvar(0.2)"."""
    gamma: float = 0.99
    """The discount factor, in (0, 1]."""
    params: tuple[str, ...] = ()
    """Parameters of the environment, as name=value, e.g. sigma=0.5 kind=call."""
    refine: float = 1.0
    """Resolution of the grids, relative to the default."""
    episodes: int = 500_000
    """Fresh episodes for the simulated value."""
    seed: int = 0
    """Of their noise."""
    out: str | None = None
    """The folder to write plan.json and plan.png to; by default one under runs/."""
    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Solves, prints the value, and writes the plan's summary and picture."""
        from pathlib import Path

        from downside import parse, solve
        from downside._files import write_text
        from downside.exact.picture import save
        from downside.runs import run_folder

        risk = parse(self.risk)
        folder = Path(self.out or run_folder(self.env, "plan", risk, self.seed))
        folder.mkdir(parents=True, exist_ok=True)  # find out now, not after the work
        plan = solve(
            self.env,
            risk,
            gamma=self.gamma,
            refine=self.refine,
            episodes=self.episodes,
            seed=self.seed,
            progress_bar=not self.json,
            **_parameters(self.params),
        )
        summary = {**plan.summary(), "env": self.env, "parameters": _parameters(self.params)}
        write_text(folder / "plan.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")
        save(plan, folder / "plan.png")
        if self.json:
            _print_json(summary)
            return
        from rich.console import Console
        from rich.markup import escape

        console = Console(highlight=False)
        console.print(f"[bold]{plan.risk}[/bold] of {self.env}, γ = {self.gamma:g}")
        lines = {
            "optimum (recursion)": f"{plan.value:.4f}",
            "the plan on fresh noise": f"{plan.estimate}  ({self.episodes:,} episodes)",
            "by the paper's alternation": f"{plan.alternation:.4f}",
            "found from": f"{plan.start}, {len(plan.trace)} inner problems",
        }
        if plan.bounds is not None:
            lines["certified to lie in"] = "[{:.4f}, {:.4f}]".format(*plan.bounds)
        if plan.boundary is not None:
            prices = ("never" if price != price else f"{price:.3f}" for price in plan.boundary)
            lines["exercise boundary, t = 0..."] = "  ".join(prices)
        for name, text in lines.items():
            console.print(f"  {name:<28} {escape(text)}")
        console.print(f"Written: {folder}/plan.json, {folder}/plan.png")


def _parameters(pairs: tuple[str, ...]) -> dict[str, Any]:
    """name=value pairs; values are numbers, none, or text."""
    out: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"`params` must be given as name=value, got {pair!r}.")
        out[name] = _value(text)
    return out


def _value(text: str) -> Any:
    if text.lower() == "none":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Reproduce a table or figure of the paper, beside the paper's figures."""

    name: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="{" + ",".join(NAMES) + "}"),
    ]
    """Which one: example1, example2; optimum (mean reversion solved for the paper's table); demo
    (one agent beside the optimum, in minutes); agents (QR-SRM for all objectives of the table, five
    seeds); agents_paper (the same with the paper's settings); ablation (what each of our choices
    adds); qrcvar (QR-CVaR beside QR-SRM); put (exercise boundaries of the American put); example3
    (the evolving risk preference of a trained agent)."""

    def run(self) -> None:
        """Runs the experiment; an error if a figure differs from the paper's."""
        from downside.experiments import load

        if self.name not in NAMES:
            raise ValueError(_unknown("experiment", self.name, NAMES))
        if not load(self.name).main():
            raise RuntimeError(f"{self.name}: figures differ from the paper's, see the table.")


Command = (
    Annotated[Solve, tyro.conf.subcommand("solve")]
    | Annotated[Explain, tyro.conf.subcommand("explain")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Envs, tyro.conf.subcommand("envs")]
    | Annotated[Risks, tyro.conf.subcommand("risks")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line; exits with 1 for our errors and 2 for wrong usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        from downside import __version__

        print(f"downside {__version__}")  # noqa: T201
        return
    command: Any = tyro.cli(
        Command,
        prog="downside",
        description="Reinforcement learning that optimises what happens when things go badly.",
        args=arguments,
    )
    try:
        command.run()
    except KeyboardInterrupt:
        print("downside: interrupted; nothing was written.", file=sys.stderr)  # noqa: T201
        raise SystemExit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:  # whoever reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        print(f"downside: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(EXIT_ERROR) from None


def _unknown(kind: str, name: str, known: tuple[str, ...]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."
    return f"There is no {kind} {name!r}. {hint}"


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2))  # noqa: T201


if __name__ == "__main__":
    main()
