"""`downside risks` and `downside envs`: what there is."""

import dataclasses

from downside.cli._common import print_json, print_next


@dataclasses.dataclass(frozen=True)
class Risks:
    """List the risk measures: name, parameters and spectrum of each."""

    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Prints the table."""
        from downside.risk import entries

        if self.json:
            print_json(
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
        print_next('downside train downside/MeanReversion-v0 --risk "0.5*mean + 0.5*cvar(20%)"')


@dataclasses.dataclass(frozen=True)
class Envs:
    """List the environments: id, parameters with their defaults, spaces."""

    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Prints the table."""
        from downside.envs import registered

        if self.json:
            print_json(
                [
                    {"id": env.id, "description": env.description, "parameters": env.parameters}
                    for env in registered()
                ]
            )
            return
        from rich.console import Console

        console = Console()
        for env in registered():
            parameters = ", ".join(f"{name}={value!r}" for name, value in env.parameters.items())
            console.print(f"[bold]{env.id}[/bold]  {env.description}", highlight=False)
            console.print(f"    {parameters}\n", highlight=False)
        print_next('downside train downside/MeanReversion-v0 --risk "cvar(0.2)"')
