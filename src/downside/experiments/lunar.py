"""The windy lunar lander (table 3 of the paper): every row that is asked for, several seeds.

A study (`ds.sweep`) over rows and seeds: a run folder each under `runs/lunar/`, one run to a core,
resumed where it was interrupted. What is in `results/lunar-lander-<preset>.csv` is not trained
again; with another number of steps than usual, the table has it in its name and the settings are
those of the preset alone.
"""

import collections
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from downside._files import locked
from downside._machine import cores
from downside.experiments._options import Options
from downside.experiments._paper import paper_table
from downside.experiments._rows import Row, read_rows, without_agent, write_about, write_rows
from downside.experiments._tables import show, terminal
from downside.risk import parse
from downside.runs import run_returns
from downside.sweeping import Sweep, read_study, sweep
from downside.sweeping.cells import Cell
from downside.train import load

ENVIRONMENT = "downside/WindyLunarLander-v0"
GAMMA, EPISODES = 0.99, 1_000
TIMESTEPS: Mapping[str, int] = {"default": 2_500_000, "paper": 500_000}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "default": {
        "num_envs": 32,
        "updates_per_step": 1,
        "buffer_size": 400_000,
        "least_discount": 0.0,
        "past_steps": 1,
        "averaging": 0.4,
    },
    "paper": {},
}
"""What the table adds to a preset. The simulator is fast: with an eighth of the updates for each
step there can be many more steps; after a million, caution could not be told from chance. At the
end of such long runs the average of the last networks is kept (`averaging`). No episode is cut off
in it (`least_discount`): that came later, and was measured in short runs alone. All agents see how
the observation has just changed (`past_steps`), QR-DQN and QR-iCVaR too, which do not by default:
or they would differ in more than the measure."""
MIXTURE = "0.5*cvar(0.2)+0.5*cvar(1.0)"
MEASURES = ("cvar(1.0)", "cvar(0.5)", "cvar(0.2)", MIXTURE)
ROWS: dict[str, tuple[str, str]] = {
    "QR-DQN": ("qrdqn", "mean"),
    f"QR-SRM {MIXTURE}": ("qrsrm", MIXTURE),
    "QR-SRM cvar(0.2)": ("qrsrm", "cvar(0.2)"),
    "QR-SRM cvar(0.5)": ("qrsrm", "cvar(0.5)"),
    "QR-SRM cvar(1.0)": ("qrsrm", "cvar(1.0)"),
    "QR-iCVaR 0.5": ("qricvar", "cvar(0.5)"),
    "QR-iCVaR 0.2": ("qricvar", "cvar(0.2)"),
    "QR-CVaR 1.0": ("qrcvar", "cvar(1.0)"),
    "QR-CVaR 0.5": ("qrcvar", "cvar(0.5)"),
    "QR-CVaR 0.2": ("qrcvar", "cvar(0.2)"),
}
"""The paper's rows: agent and measure, the ones that matter most first."""
PAPER = paper_table("windy_lunar_lander").figures
SB3_TIMESTEPS = 300_000
SB3 = dict(zip(MEASURES, (43.6, 20.1, 4.2, 23.9), strict=True))
"""What QR-DQN of stable-baselines3-contrib reached in one run of so many steps: layers of 3 x 128,
50 quantiles, batches of 128, learning rate 1.5e-3 decaying to 0, an update for four steps."""


def main(options: Options) -> bool:
    """Trains, values, writes and prints; there is no optimum to agree with."""
    failed: dict[str, str] = {}
    for preset in options.presets:
        failed |= _train(options, preset)
        _show(read_rows(_path(options, preset)), preset)
    for name, error in failed.items():
        terminal().print(f"{name} failed: {error}", markup=False, soft_wrap=True)
    return not failed


def _path(options: Options, preset: str) -> Path:
    other = "" if _usual(options, preset) else f"-{options.timesteps}"
    return options.folder / f"lunar-lander-{preset}{other}.csv"


def _usual(options: Options, preset: str) -> bool:
    return options.timesteps in (None, TIMESTEPS[preset])


def remaining(options: Options) -> int:
    """How many agents are still to be trained."""
    return sum(
        len(seeds) * len(rows)
        for preset in options.presets
        for seeds, rows in _plan(options, preset).missing(read_rows(_path(options, preset))).items()
    )


class _Plan(NamedTuple):
    """What is asked for."""

    rows: tuple[str, ...]
    seeds: tuple[int, ...]
    preset: str
    timesteps: int
    settings: Mapping[str, Any]
    episodes: int
    folder: Path

    def study(
        self, rows: Sequence[str] | None = None, seeds: Sequence[int] | None = None
    ) -> dict[str, Any]:
        """The whole of it, or these rows and seeds, for `ds.sweep`."""
        return {
            "study": {
                "name": "lunar",
                "seeds": list(self.seeds if seeds is None else seeds),
                "total_timesteps": self.timesteps,
                "episodes": self.episodes,
                "measures": list(MEASURES),
            },
            "environments": [{"id": ENVIRONMENT}],
            # QR-DQN maximises the mean, and takes no measure.
            "agents": [
                {"name": agent, "preset": self.preset, "gamma": GAMMA, **self.settings}
                | ({} if agent == "qrdqn" else {"risks": [risk]})
                for agent, risk in map(ROWS.__getitem__, self.rows if rows is None else rows)
            ],
        }

    def missing(self, found: Sequence[Row]) -> dict[tuple[int, ...], tuple[str, ...]]:
        """The rows that lack seeds, by the seeds that they lack. Runs with other settings than
        today's do not count: they have another key."""
        there = {row.get("settings") for row in found}
        lacking: dict[str, list[int]] = collections.defaultdict(list)
        for cell in read_study(self.study()).cells:
            if cell.key not in there:
                lacking[_name(cell)].append(cell.seed)
        out: dict[tuple[int, ...], tuple[str, ...]] = {}
        for name, seeds in lacking.items():
            out[tuple(seeds)] = (*out.get(tuple(seeds), ()), name)
        return out


def _plan(options: Options, preset: str) -> _Plan:
    names, seeds = tuple(name for name in ROWS if options.wants(name)), options.seeds_or((0, 1, 2))
    if options.quick:
        return _Plan(names[:1], seeds, preset, 3_000, {}, 20, options.folder / "lunar")
    timesteps = options.timesteps or TIMESTEPS[preset]
    settings = SETTINGS[preset] if _usual(options, preset) else {}
    return _Plan(names, seeds, preset, timesteps, settings, EPISODES, Path("runs/lunar"))


def _train(options: Options, preset: str) -> Mapping[str, str]:
    """Trains what is missing, values it, writes it down; the errors of those that failed."""
    path, plan, bar = _path(options, preset), _plan(options, preset), options.bar
    failed: dict[str, str] = {}
    for seeds, rows in plan.missing(read_rows(path)).items():
        with contextlib.nullcontext() if bar is None else bar.paused():
            made = sweep(plan.study(rows, seeds), folder=plan.folder, progress_bar=True)
        if bar is not None:
            for cell in made.study.cells:
                bar.update(("lunar", preset, cell.name), 1.0, f"lunar, {preset}")
        failed |= made.failed
        new = _values(made)
        with locked(path):  # another command may be writing others
            found = _of_today(plan, read_rows(path))
            if not found:  # nor is it said any more what made the others
                path.with_suffix(".json").unlink(missing_ok=True)
            for own in new:
                found = [*without_agent(found, own[0], "row", "seed"), *own]
            if found:
                write_rows(path, found)
                _write_about(path, plan, found)
    return failed


def _of_today(plan: _Plan, found: Sequence[Row]) -> Sequence[Row]:
    """The rows of agents with today's settings: others must not be averaged with them."""
    if not found:
        return found
    there = [name for name in ROWS if any(row["row"] == name for row in found)]
    seeds = sorted({int(row["seed"]) for row in found})
    keys = {cell.key for cell in read_study(plan.study(there, seeds)).cells}
    return [row for row in found if row.get("settings") in keys]


def _write_about(path: Path, plan: _Plan, found: Sequence[Row]) -> None:
    command = f"downside reproduce lunar --preset {plan.preset}"
    command += "" if plan.timesteps == TIMESTEPS[plan.preset] else f" --timesteps {plan.timesteps}"
    there = {row["row"] for row in found}
    if there != set(ROWS):
        command += "".join([" --only", *(f' "{name}"' for name in ROWS if name in there)])
    write_about(
        path.with_suffix(".json"),
        command,
        environment=ENVIRONMENT,
        gamma=GAMMA,
        preset=plan.preset,
        total_timesteps=plan.timesteps,
        settings=dict(plan.settings),
        seeds=sorted({int(row["seed"]) for row in found}),
        episodes=plan.episodes,
    )


def _name(cell: Cell) -> str:
    """The row of a run."""
    names = {(agent, parse(risk)): name for name, (agent, risk) in ROWS.items()}
    return names[cell.agent, parse(cell.risk)]


def _values(made: Sweep) -> list[list[Row]]:
    """What each finished run is worth, by every measure."""
    out: list[list[Row]] = []
    for cell in made.study.cells:
        if cell.name in made.failed:
            continue
        own = made.folder / cell.name
        valued, agent = run_returns(own), load(own)
        rows = [
            {
                "row": _name(cell),
                "seed": cell.seed,
                "measure": measure,
                "value": round(valued.value(measure), 4),
                "standard_error": round(valued.standard_error(measure), 4),
                "timesteps": agent.num_timesteps,
                "seconds": round(float(agent.history[-1]["seconds"]) / cores(), 1),
                "settings": cell.key,
            }
            for measure in MEASURES
        ]
        out.append(rows)
    return out


def _show(rows: Sequence[Row], preset: str) -> None:
    shown: list[list[Any]] = []
    for name in ROWS:
        line, own = [name], []
        for measure in MEASURES:
            own = [
                float(row["value"])
                for row in rows
                if row["row"] == name and row["measure"] == measure
            ]
            if own:
                spread = f" ± {np.std(own, ddof=1):.1f}" if len(own) > 1 else ""
                line.append(f"{np.mean(own):.1f}{spread} ({PAPER[name, measure].mean:.1f})")
        if len(line) > 1:
            shown.append([*line, str(len(own))])
    header = ("agent", *MEASURES[:3], "half and half", "seeds")
    title = f"Windy lunar lander, preset {preset}: mean ± sd of seeds (the paper's)"
    show(terminal(), title, header, shown)
