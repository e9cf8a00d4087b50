"""One dial for each problem, at every measure, beside the optimum and what else there is.

Writes `results/dial.csv`: one row for each problem, method, seed and measure. `--only` names
problems. Methods: the dial; dedicated PG-SRM agents (mean reversion and hedging); the best band
around the delta, tuned for each measure (hedging). The optimum is the planner's, where it can solve
the problem. What has its rows is not run again.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from downside.baselines import DeltaBand
from downside.envs import make_jax
from downside.evaluation import Evaluation, evaluate
from downside.exact import solve
from downside.experiments._experiment import EPISODES, QUICK_SHARE
from downside.experiments._options import Options
from downside.experiments._rows import Row, add_rows, read_rows, select
from downside.experiments._tables import show, terminal
from downside.experiments.optimum import ENVIRONMENT
from downside.runs import evaluation_seed
from downside.studies.frontiers import mixtures
from downside.train import PGSRM, Agent, load

_QUICK: Mapping[str, Any] = {
    "updates": 4,
    "batch_size": 32,
    "hidden_sizes": (8,),
    "outer_interval": 2,
    "outer_episodes": 108,
}
_TUNING_SEED = 5_000_000
_WIDTHS = np.round(np.arange(0.0, 0.2001, 0.01), 3)
_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem, and the measures that its dial is turned to."""

    env: str
    measures: tuple[str, ...]
    dedicated: tuple[str, ...] = ()
    """Measures for which an agent is trained besides."""
    planned: bool = True
    """Whether the planner can solve it."""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Of the dial and the dedicated agents."""


_TAILS = ("mean", *(f"cvar({level:g})" for level in _LEVELS))
PROBLEMS = {
    "mean-reversion": Problem(
        ENVIRONMENT,
        (
            *(str(risk) for _, risk in mixtures("mean", "cvar(0.1)", 9)),
            *(f"cvar({level:g})" for level in (0.2, 0.3, 0.5, 0.8)),
        ),
        ("mean", "cvar(0.5)", "0.625*mean + 0.375*cvar(0.1)", "cvar(0.2)"),
    ),
    "hedging": Problem(
        "downside/Hedging-v0",
        ("cvar(0.5)", "cvar(0.2)", "cvar(0.05)", "cvar(0.01)"),
        ("cvar(0.2)", "cvar(0.05)"),
        planned=False,
        settings={"updates": 2000, "batch_size": 4096, "hidden_sizes": (48, 48)},
    ),
    "betting": Problem("downside/BettingGame-v0", _TAILS),
    "machine": Problem("downside/MachineReplacement-v0", _TAILS),
    "cliff-walk": Problem("downside/CliffWalk-v0", ("mean", "cvar(0.5)", "cvar(0.2)", "cvar(0.1)")),
}


def main(options: Options) -> bool:
    """Trains, evaluates, writes and prints; returns whether no dial exceeds the optimum by more
    than its error."""
    path = options.folder / "dial.csv"
    book = _Book(options, read_rows(path))
    for name, problem in PROBLEMS.items():
        if options.only and not any(part in name for part in options.only):
            continue
        measures = problem.measures[:2] if options.quick else problem.measures
        if problem.planned:
            book.optima(name, problem, measures)
        if name == "hedging":
            book.bands(name, problem, measures)
        for seed in options.seeds_or((0, 1, 2)):
            book.dial(name, problem, seed, measures)
            for measure in problem.dedicated[: 0 if options.quick else None]:
                book.agent(name, problem, seed, measure)
    return _show(book.rows)


class _Book:
    """The rows so far, written after each."""

    def __init__(self, options: Options, rows: list[Row]):
        self._options, self.rows = options, rows
        self._path = options.folder / "dial.csv"

    def _missing(self, measures: Sequence[str], **key: Any) -> list[str]:
        return [measure for measure in measures if not select(self.rows, measure=measure, **key)]

    def _add(self, value: float, error: float, **row: Any) -> None:
        numbers = {"value": round(value, 6), "standard_error": round(error, 6)}
        blank = {"setting": "", "seconds": "", "cpu_seconds": ""}
        new = {**row, **numbers, **blank, **{k: row[k] for k in blank if k in row}}
        keys = ("problem", "method", "seed", "measure")
        add_rows(self._path, self.rows, [new], keys, "downside reproduce dial", _facts)

    def _evaluate(self, subject: Any, seed: int) -> Evaluation:
        episodes = EPISODES // QUICK_SHARE if self._options.quick else EPISODES
        return evaluate(subject, episodes=episodes, seed=evaluation_seed(seed))

    def _train(self, name: str, problem: Problem, seed: int, risk: str) -> Agent:
        """The agent, read if it was trained before."""
        storage = self._options.storage("dial")
        text = "dial" if risk == "dial" else risk.replace("*", "")
        path = storage / f"{name}__{text}__{seed}.safetensors"
        if path.exists():
            return load(path)
        quick = _QUICK if self._options.quick else {}
        agent = PGSRM(problem.env, risk=risk, seed=seed, **{**problem.settings, **quick})
        begin = time.process_time()
        agent.learn(progress_bar=True)
        agent.history[-1]["cpu_seconds"] = time.process_time() - begin
        storage.mkdir(parents=True, exist_ok=True)
        agent.save(path)
        return agent

    def _cost(self, agent: Agent) -> Row:
        last = agent.history[-1]
        cpu = last.get("cpu_seconds", float("nan"))
        return {"seconds": round(last["seconds"], 1), "cpu_seconds": round(cpu, 1)}

    def dial(self, name: str, problem: Problem, seed: int, measures: Sequence[str]) -> None:
        """One training, turned to each measure."""
        key = {"problem": name, "method": "dial", "seed": seed}
        missing = self._missing(measures, **key)
        if not missing:
            return
        dial = self._train(name, problem, seed, "dial")
        for measure in missing:
            result = self._evaluate(dial.at(measure), seed)
            self._add(
                result.value(measure),
                result.standard_error(measure),
                **key,
                measure=measure,
                setting=round(dial.targets[measure].target, 4),
                **self._cost(dial),
            )
        dial.save(self._options.storage("dial") / f"{name}__dial__{seed}.safetensors")

    def agent(self, name: str, problem: Problem, seed: int, measure: str) -> None:
        """An agent for one measure."""
        key = {"problem": name, "method": "dedicated", "seed": seed}
        if self._missing([measure], **key):
            agent = self._train(name, problem, seed, measure)
            result = self._evaluate(agent, seed)
            error = result.standard_error(measure)
            self._add(result.value(measure), error, **key, measure=measure, **self._cost(agent))

    def optima(self, name: str, problem: Problem, measures: Sequence[str]) -> None:
        """The planner's value of each measure; those of `downside reproduce frontier` are read."""
        key = {"problem": name, "method": "optimum", "seed": ""}
        known: dict[str, float] = {}
        if problem.env == ENVIRONMENT and not self._options.quick:
            rows = read_rows(self._options.folder / "frontier.csv")
            known = {row["risk"]: float(row["optimum"]) for row in rows if row["optimum"]}
        for measure in self._missing(measures, **key):
            value = known.get(measure)
            if value is None:
                env = make_jax(problem.env)
                assert env is not None
                limits: dict[str, Any] = {"episodes": 1_000 if self._options.quick else 10_000}
                gamma = PGSRM(problem.env, risk="mean").settings.gamma
                value = solve(env, measure, gamma=gamma, **limits).value
            self._add(value, 0.0, **key, measure=measure)

    def bands(self, name: str, problem: Problem, measures: Sequence[str]) -> None:
        """The best half-width of a band around the delta, chosen in other episodes."""
        key = {"problem": name, "method": "band", "seed": ""}
        missing = self._missing(measures, **key)
        if not missing:
            return
        env: Any = make_jax(problem.env)
        episodes = EPISODES // QUICK_SHARE if self._options.quick else EPISODES
        tried = {
            width: evaluate(DeltaBand(env, half_width=width), episodes=episodes, seed=_TUNING_SEED)
            for width in (_WIDTHS[:2] if self._options.quick else _WIDTHS).tolist()
        }
        for measure in missing:
            width = max(tried, key=lambda width: tried[width].value(measure))
            result = self._evaluate(DeltaBand(env, half_width=width), 0)
            error = result.standard_error(measure)
            self._add(result.value(measure), error, **key, measure=measure, setting=width)


def _facts(rows: Sequence[Row]) -> Row:
    seeds = sorted({int(row["seed"]) for row in rows if row["seed"] != ""})
    return {"seeds": seeds, "episodes": EPISODES}


def _show(rows: list[Row]) -> bool:
    console, possible = terminal(110), True
    for problem in dict.fromkeys(row["problem"] for row in rows):
        mine = select(rows, problem=problem)
        shown = []
        for measure in dict.fromkeys(row["measure"] for row in mine):
            cells = [measure]
            optimum = [
                float(row["value"]) for row in select(mine, measure=measure, method="optimum")
            ]
            for method in ("dial", "dedicated", "band"):
                selected = select(mine, measure=measure, method=method)
                values = [float(row["value"]) for row in selected]
                cells.append("/".join(f"{value:.4f}" for value in values) or "-")
                if method == "dial" and optimum:
                    errors = [float(row["standard_error"]) for row in selected]
                    over = (
                        v - optimum[0] > 4 * e + 5e-3 for v, e in zip(values, errors, strict=True)
                    )
                    possible &= not any(over)
            cells.append(f"{optimum[0]:.4f}" if optimum else "-")
            shown.append(cells)
        header = ("measure", "dial (each seed)", "dedicated", "best band", "optimum")
        show(console, problem, header, shown)
    return possible
