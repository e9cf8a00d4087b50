"""`downside explain` and `downside report`: parse, call the Python API, print."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import tyro


@dataclasses.dataclass(frozen=True)
class Explain:
    """Say what a trained agent is optimising at every step of an episode, and how sure that is."""

    run_path: tyro.conf.Positional[str]
    """The run: its folder, or a saved agent."""
    episode_seed: int = 0
    """Of the first episode that is told."""
    episodes: int = 1
    """How many episodes are told."""
    checks: int = 500
    """How many other episodes the distributions are checked in."""
    simulated: bool = False
    """Run the policy on from every step instead of asking the networks (environments in JAX)."""
    out: str | None = None
    """The page to write; by default explain.html in the run's folder."""
    open: bool = False
    """Open the page in a browser."""
    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Prints the table and the words, and writes the page."""
        from downside import evaluate, explain
        from downside.reporting import Chapter, render

        agent = _load(self.run_path)
        story = explain(
            agent,
            episode_seed=self.episode_seed,
            episodes=self.episodes,
            checks=self.checks,
            returns="simulated" if self.simulated else None,
            label=_name(self.run_path),
        )
        found = evaluate(agent, episodes=min(5_000, agent.default_episodes), label=story.label)
        path = Path(self.out) if self.out else _folder(self.run_path) / "explain.html"
        _write(path, render([Chapter(label=story.label, story=story, evaluation=found)]))
        if self.json:
            _print_json(
                {
                    "label": story.label,
                    "risk": str(story.risk),
                    "distributions": story.kind,
                    "checks": None if story.calibration is None else story.calibration.verdict,
                    "episodes": [story.rows(i) for i in range(len(story.episodes))],
                }
            )
        else:
            console = _console()
            for i, episode in enumerate(story.episodes):
                console.print(story.table(i))
                for step in episode.steps:
                    console.print(f"{step.time:>4}  {step.words}", markup=False)
                console.print()
            if story.note:
                console.print(story.note, markup=False)
            if story.calibration is not None:
                console.print(story.calibration.words, markup=False)
            console.print(f"Page: {path}", markup=False)
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
    """Fresh episodes that each agent is valued in: by default 20,000, or 1,000 where slow."""
    told: int = 3
    """Episodes that are told step by step."""
    checks: int = 500
    """Episodes that the distributions are checked in."""
    episode_seed: int = 0
    """Of the first episode that is told."""
    open: bool = False
    """Open the page in a browser."""
    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Evaluates, explains, writes and prints."""
        from downside.reporting import make_chapter, report

        if not self.run_paths:
            raise ValueError("`run_paths` must name at least one run, e.g. runs/...")
        chapters = [
            make_chapter(
                _load(path),
                label=_name(path),
                episodes=self.episodes,
                told=self.told,
                checks=self.checks,
                episode_seed=self.episode_seed,
                optimum=self.optimum,
            )
            for path in self.run_paths
        ]
        path = report(*chapters, out=self.out, title=self.title)
        rows = [summary(chapter) for chapter in chapters]
        if self.json:
            _print_json({"path": str(path), "runs": rows})
        else:
            console = _console()
            console.print(_table(rows))
            console.print(f"Report: {path}", markup=False)
        _show(path, self.open)


def summary(chapter: Any) -> dict[str, Any]:
    """What a report says of one agent, in a row; plain types, for JSON."""
    risk, found = chapter.story.risk, chapter.evaluation
    low, high = found.interval(risk)
    checks = chapter.story.calibration
    return {
        "label": chapter.label,
        "risk": str(risk),
        "value": found.value(risk),
        "low": low,
        "high": high,
        "mean": found.mean,
        "optimum": chapter.optimum,
        "checks": None if checks is None else checks.verdict,
    }


def _table(rows: list[dict[str, Any]]) -> Any:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for i, name in enumerate(
        ("run", "risk", "value", "95% interval", "mean", "optimum", "explanation")
    ):
        table.add_column(name, justify="right" if 2 <= i <= 5 else "left", overflow="fold")
    for row in rows:
        table.add_row(
            escape(row["label"]),
            escape(row["risk"]),
            f"{row['value']:.4f}",
            f"{row['low']:.4f} to {row['high']:.4f}",
            f"{row['mean']:.4f}",
            "-" if row["optimum"] is None else f"{row['optimum']:.4f}",
            row["checks"] or "unchecked",
        )
    return table


def _load(path: str) -> Any:
    from downside import load

    return load(path)


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
