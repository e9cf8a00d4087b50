"""`downside explain` and `downside report`: parse, call the Python API, print."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import tyro


@dataclasses.dataclass(frozen=True)
class Explain:
    """Explain what a trained agent optimises at every step of an episode, with checks."""

    run_path: tyro.conf.Positional[str]
    """The run: its folder, or a saved agent."""
    episode_seed: int = 0
    """Of the first episode that is explained."""
    episodes: int = 1
    """How many episodes are explained."""
    checks: int = 500
    """How many other episodes the distributions are checked in."""
    learned: bool = False
    """Ask the agent's networks instead of running the policy on from every step, as is done in
    environments in JAX."""
    out: str | None = None
    """The page to write; by default explain.html in the run's folder."""
    open: bool = False
    """Open the page in a browser."""
    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Prints the table and the words, and writes the page."""
        from downside import evaluate, explain
        from downside._files import check_writable
        from downside.reporting import ReportSection, render

        agent = _load(self.run_path)
        path = Path(self.out) if self.out else _folder(self.run_path) / "explain.html"
        check_writable(path)  # find out now, not after the work
        explanation = explain(
            agent,
            episode_seed=self.episode_seed,
            episodes=self.episodes,
            checks=self.checks,
            returns="learned" if self.learned else None,
            label=_name(self.run_path),
        )
        label, checks = explanation.label, explanation.calibration
        section = ReportSection(
            label=label,
            explanation=explanation,
            evaluation=evaluate(agent, episodes=min(5_000, agent.default_episodes), label=label),
            about=explanation.experience,
        )
        _write(path, render([section]))
        if self.json:
            _print_json(
                {
                    "label": label,
                    "risk": str(explanation.risk),
                    "distributions": explanation.kind,
                    "checks": None if checks is None else checks.verdict,
                    "timesteps": explanation.timesteps,
                    "simulated_steps": explanation.simulated_steps,
                    "episodes": [explanation.rows(i) for i in range(len(explanation.episodes))],
                }
            )
        else:
            console = _console()
            for i, episode in enumerate(explanation.episodes):
                console.print(explanation.table(i))
                for step in episode.steps:
                    console.print(f"{step.time:>4}  {step.words}", markup=False)
                console.print()
            verdict = "" if checks is None else checks.words
            for line in (explanation.experience, explanation.note, verdict, f"Page: {path}"):
                if line:
                    console.print(line, markup=False)
            console.print(f"Next: downside report {self.run_path}", markup=False)
        _show(path, self.open)


@dataclasses.dataclass(frozen=True)
class Report:
    """Write one HTML file about one or more runs, and print the same as a table."""

    run_paths: tyro.conf.Positional[tuple[str, ...]]
    """The runs: their folders, or saved agents."""
    out: str = "report.html"
    """The file to write."""
    title: str | None = None
    """Of the page."""
    optimum: bool = False
    """Compute the optimum of each measure, where the planner can."""
    episodes: int | None = None
    """Fresh episodes to evaluate each agent in: by default 20,000, or 1,000 where slow."""
    explained_episodes: int = 3
    """Episodes that are explained step by step."""
    checks: int = 500
    """Episodes that the distributions are checked in."""
    episode_seed: int = 0
    """Of the first episode that is explained."""
    open: bool = False
    """Open the page in a browser."""
    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Evaluates, explains, writes and prints."""
        from downside._files import check_writable
        from downside.reporting import make_section, report

        if not self.run_paths:
            raise ValueError("`run_paths` must name at least one run, e.g. runs/...")
        check_writable(self.out)  # find out now, not after the work
        sections = [
            make_section(
                _load(path),
                label=_name(path),
                episodes=self.episodes,
                explained_episodes=self.explained_episodes,
                checks=self.checks,
                episode_seed=self.episode_seed,
                optimum=self.optimum,
            )
            for path in self.run_paths
        ]
        path = report(*sections, out=self.out, title=self.title)
        rows = [summary(section) for section in sections]
        if self.json:
            _print_json({"path": str(path), "runs": rows})
        else:
            console = _console()
            console.print(_table(rows))
            console.print(f"Report: {path}", markup=False)
            if not self.open:
                console.print("Next: open it in a browser (--open does)")
        _show(path, self.open)


def summary(section: Any) -> dict[str, Any]:
    """A report on one agent as a row; plain types, for JSON."""
    explanation, evaluation = section.explanation, section.evaluation
    risk, checks = explanation.risk, explanation.calibration
    low, high = evaluation.interval(risk)
    return {
        "label": section.label,
        "risk": str(risk),
        "value": evaluation.value(risk),
        "low": low,
        "high": high,
        "mean": evaluation.mean,
        "optimum": section.optimum,
        "checks": None if checks is None else checks.verdict,
        "timesteps": explanation.timesteps,
        "simulated_steps": explanation.simulated_steps,
    }


def _table(rows: list[dict[str, Any]]) -> Any:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("run", "risk"):
        table.add_column(name, overflow="fold")
    for name in ("value", "95% interval", "mean", "optimum", "steps + simulated"):
        table.add_column(name, justify="right")
    table.add_column("checks")
    for row in rows:
        table.add_row(
            escape(row["label"]),
            escape(row["risk"]),
            f"{row['value']:.4f}",
            f"{row['low']:.4f} to {row['high']:.4f}",
            f"{row['mean']:.4f}",
            "-" if row["optimum"] is None else f"{row['optimum']:.4f}",
            _steps(row),
            row["checks"] or "unchecked",
        )
    return table


def _steps(row: dict[str, Any]) -> str:
    """Environment steps and simulated steps, for a narrow column."""
    if row["timesteps"] is None:
        return "-"
    return f"{_compact(row['timesteps'])} + {_compact(row['simulated_steps'])}"


def _compact(count: int) -> str:
    for unit, suffix in ((1_000_000, "M"), (1_000, "k")):
        if count >= unit:
            return f"{count / unit:.3g}{suffix}"
    return str(count)


def _load(path: str) -> Any:
    from downside.runs import load_run

    return load_run(path)


def _name(path: str) -> str:
    return Path(path).resolve().name


def _folder(path: str) -> Path:
    return Path(path) if Path(path).is_dir() else Path(path).parent


def _write(path: Path, text: str) -> None:
    from downside._files import write_text

    write_text(path, text)


def _console() -> Any:
    from rich.console import Console

    console = Console(highlight=False)
    console.width = max(console.width, 80)
    return console


def _show(path: Path, wanted: bool) -> None:
    if wanted:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2, allow_nan=False))  # noqa: T201
