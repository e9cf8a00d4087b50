"""`downside solve`: the optimum, without learning."""

import dataclasses
import json
from typing import TYPE_CHECKING

import tyro

from downside.cli._common import as_parameters, print_json, print_next

if TYPE_CHECKING:
    from downside.exact import FiniteMDP


@dataclasses.dataclass(frozen=True)
class Solve:
    """Compute the optimum of a risk measure, without learning, where the problem is small."""

    env: tyro.conf.Positional[str]
    """The environment's id, e.g. downside/AmericanPut-v0, or a CSV file of transitions."""
    risk: str
    """The measure to optimise, e.g. "0.5*mean + 0.5*cvar(0.2)"."""
    gamma: float = 0.99
    """The discount factor, in (0, 1]."""
    params: tuple[str, ...] = ()
    """Parameters of the environment, as name=value, e.g. sigma=0.5 kind=call."""
    start: int | None = None
    """With a file: the id of the state to start in."""
    horizon: int | None = None
    """With a file: the number of decisions; endless if left out."""
    tolerance: float | None = None
    """Finite problems: how far apart the bounds may be; by default 0.5% of the deviation of
    returns."""
    time_limit: float = 40.0
    """Finite problems: about how many seconds to refine."""
    memory_limit: float = 2.0
    """Finite problems: GiB for tables."""
    refine: float = 1.0
    """Resolution of the grids, relative to the default."""
    episodes: int | None = None
    """Fresh episodes for the simulated value: 500,000 unless given, 100,000 for finite problems."""
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
        from downside._files import check_writable, write_text
        from downside._locks import lock
        from downside.exact.picture import save
        from downside.runs import run_folder

        risk = parse(self.risk)
        problem = self._problem()
        name = self.env if isinstance(problem, str) else Path(self.env).stem
        folder = Path(self.out or run_folder(name, "plan", risk, self.seed))
        check_writable(folder / "plan.json")  # find out now, not after the work
        plan = solve(
            problem,
            risk,
            gamma=self.gamma,
            refine=self.refine,
            tolerance=self.tolerance,
            time_limit=self.time_limit,
            memory_limit=self.memory_limit,
            episodes=self.episodes,
            seed=self.seed,
            progress_bar=not self.json,
            **as_parameters(self.params),
        )
        summary = {**plan.summary(), "env": self.env, "parameters": as_parameters(self.params)}
        with lock(folder, wait=True):  # both files of one plan
            write_text(folder / "plan.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")
            save(plan, folder / "plan.png")
        if self.json:
            print_json(summary)
            return
        from rich.console import Console
        from rich.markup import escape

        console = Console(highlight=False)
        title = f"[bold]{escape(str(plan.risk))}[/bold] of {escape(self.env)}"
        console.print(f"{title}, γ = {self.gamma:g}")
        lines = {"value": f"{plan.value:.4f}"}
        if plan.bounds is not None:
            lines["the optimum lies in"] = "[{:.4f}, {:.4f}], certified".format(*plan.bounds)
        lines |= {
            "the plan on fresh noise": f"{plan.estimate}  ({len(plan.returns):,} episodes)",
            "by the paper's alternation": f"{plan.alternation:.4f}",
            "found from": f"{plan.start}, {len(plan.trace)} inner problems",
        }
        if plan.boundary is not None:
            prices = ("never" if price != price else f"{price:.3f}" for price in plan.boundary)
            lines["exercise boundary, t = 0..."] = "  ".join(prices)
        for name, text in lines.items():
            console.print(f"  {name:<28} {escape(text)}")
        if plan.note or plan.disagrees:
            console.print(escape(plan.note or plan.words))
        console.print(f"Written: {folder}/plan.json, {folder}/plan.png", markup=False)
        if isinstance(problem, str):
            print_next(f'downside train {self.env} --risk "{risk}"')

    def _problem(self) -> "FiniteMDP | str":
        """The problem in a file, or the environment's id."""
        if not self.env.lower().endswith(".csv"):
            for name in ("start", "horizon"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"`--{name}` goes with a CSV file of transitions, got the environment "
                        f"{self.env}. Its parameters are set with `--params`."
                    )
            return self.env
        from downside import FiniteMDP

        if self.start is None:
            raise ValueError(
                f"`--start` must be given with {self.env}: the id of the state to start in."
            )
        return FiniteMDP.from_csv(
            self.env, gamma=self.gamma, start=self.start, horizon=self.horizon
        )
