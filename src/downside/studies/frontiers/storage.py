"""The storage of a frontier: its runs, the curve in numbers, a figure and a page.

runs/<env>__<agent>__frontier__<start>__<end>/
    <env>__<agent>__<risk>__<seed>/   a run folder for each agent (see `downside.runs`)
    exact.json                        the optima
    frontier.json, frontier.csv       the points
    frontier.png, frontier.html       the curve; the page explains the policy of each point
"""

import csv
import io
import json
from pathlib import Path
from typing import Any

from downside._files import atomic_write, write_text
from downside.risk import AbstractSpectralRisk, as_risk
from downside.runs import run_folder
from downside.studies.frontiers.curve import Frontier


def frontier_folder(
    env: str, agent: str, start: AbstractSpectralRisk | str, end: AbstractSpectralRisk | str
) -> Path:
    """`runs/<env>__<agent>__frontier__<start>__<end>`."""
    ends = [run_folder(env, agent, as_risk(risk), 0).name.split("__") for risk in (start, end)]
    (name, kind, first, _), (_, _, last, _) = ends
    return Path("runs") / "__".join([name, kind, "frontier", first, last])


def write_folder(frontier: Frontier, folder: str | Path, **options: Any) -> Path:
    """Writes the curve beside its runs, and returns the path of the page.

    Arguments:
        frontier: the frontier.
        folder: the storage.
        **options: as for `Frontier.report`.
    """
    folder, summary, rows = Path(folder), frontier.summary(), io.StringIO()
    write_text(folder / "frontier.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")
    writer = csv.DictWriter(rows, list(summary["points"][0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(summary["points"])
    write_text(folder / "frontier.csv", rows.getvalue())
    with atomic_write(folder / "frontier.png") as temporary:
        frontier.plot().savefig(temporary, dpi=150)
    return frontier.report(folder / "frontier.html", **options)
