"""The command line: parse, call the Python API, print. `downside --help` lists the commands."""

import dataclasses
import json
import sys
from typing import Annotated, Any

import tyro

EXIT_ERROR = 1


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
        roomy = console.width >= 120
        table = Table(box=box.SIMPLE_HEAD)
        for column in ("write", "spectrum", "parameters", *(("what it is", "or") * roomy)):
            table.add_column(column, no_wrap=True)
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
class Reproduce:
    """Reproduce a table or figure of the paper, beside the paper's figures."""

    name: tyro.conf.Positional[str]
    """Which one: example1 or example2."""

    def run(self) -> None:
        """Runs the experiment; an error if a figure differs from the paper's."""
        from downside.experiments import NAMES, load

        if self.name not in NAMES:
            raise ValueError(_unknown("experiment", self.name, NAMES))
        if not load(self.name).main():
            raise RuntimeError(f"{self.name}: figures differ from the paper's, see the table.")


Command = (
    Annotated[Risks, tyro.conf.subcommand("risks")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line; exits with 1 for our errors and 2 for wrong usage."""
    command: Any = tyro.cli(
        Command,
        prog="downside",
        description="Reinforcement learning that optimises what happens when things go badly.",
        args=arguments,
    )
    try:
        command.run()
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        print(f"downside: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(EXIT_ERROR) from None


def _unknown(kind: str, name: str, known: tuple[str, ...]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."
    return f"There is no {kind} {name!r}. {hint}"


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False))  # noqa: T201


if __name__ == "__main__":
    main()
