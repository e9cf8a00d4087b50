"""`downside solve`: the optimum, without learning."""

import dataclasses
import json

import tyro

from downside.cli._common import as_parameters, print_json


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
            **as_parameters(self.params),
        )
        summary = {**plan.summary(), "env": self.env, "parameters": as_parameters(self.params)}
        write_text(folder / "plan.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")
        save(plan, folder / "plan.png")
        if self.json:
            print_json(summary)
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
