"""The results of a study: the mean over the seeds of each group of runs, with an interval."""

import csv
import dataclasses
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from downside._files import write_text
from downside.evaluation import Evaluation
from downside.evaluation.seeds import Estimate, estimate_value
from downside.runs import run_returns
from downside.studies.labels import labels
from downside.studies.spec import RunSpec
from downside.studies.study import Study


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """The runs of one environment, agent and measure."""

    env: str
    """The environment, with the parameters that the study varies."""
    agent: str
    """The agent, with the settings that the study varies."""
    risk: str
    """The measure that it maximises."""
    runs: tuple[RunSpec, ...]
    """Its runs, one for each seed."""
    finished: int
    """How many runs are finished."""
    failed: int
    estimates: Mapping[str, Estimate]
    """By measure: its own, and those of the study. Empty if no run is finished.

    Intervals are over seeds; with a single seed, over its episodes."""


def read_evaluations(
    storage: Path, runs: Iterable[RunSpec]
) -> tuple[dict[str, Evaluation], dict[str, str]]:
    """The evaluations of finished runs by the names of their folders, and what is wrong with those
    that cannot be read."""
    evaluations, damaged = {}, {}
    for run in runs:
        try:
            evaluations[run.name] = run_returns(storage / run.name)
        except (ValueError, OSError) as error:  # changed since it was looked at
            damaged[run.name] = f"{error} The same command makes it again."
    return evaluations, damaged


def summarise(
    study: Study, evaluations: Mapping[str, Evaluation], failed: Collection[str] = ()
) -> tuple[Group, ...]:
    """The groups of a study, in the order of the file.

    Arguments:
        study: the study.
        evaluations: of the runs that are finished, by the names of their folders.
        failed: names of runs.
    """
    together: dict[str, list[RunSpec]] = {}
    for run in study.runs:
        together.setdefault(run.group, []).append(run)
    names = labels(study.runs)
    return tuple(
        _group(*names[runs[0].key], runs, study, evaluations, failed) for runs in together.values()
    )


def _group(
    env: str,
    agent: str,
    runs: Sequence[RunSpec],
    study: Study,
    evaluations: Mapping[str, Evaluation],
    failed: Collection[str],
) -> Group:
    risk = runs[0].risk
    finished = [evaluations[run.name] for run in runs if run.name in evaluations]
    measures = dict.fromkeys([risk, *study.measures]) if finished else ()
    return Group(
        env=env,
        agent=agent,
        risk=risk,
        runs=tuple(runs),
        finished=len(finished),
        failed=sum(run.name in failed for run in runs),
        estimates={measure: estimate_value(finished, measure) for measure in measures},
    )


# --- as a table -------------------------------------------------------------------------------


def summary_tables(groups: Sequence[Group], measures: Sequence[str]) -> list[Table]:
    """For the terminal: one for each environment, with a row for each group."""
    return [
        _table(env, [group for group in groups if group.env == env], measures)
        for env in dict.fromkeys(group.env for group in groups)
    ]


def _table(env: str, groups: Sequence[Group], measures: Sequence[str]) -> Table:
    table = Table(title=escape(env), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in ("agent", "trained for"):
        table.add_column(column, overflow="fold")
    for column in ("seeds", "its value", "95% interval", *measures):
        table.add_column(column, justify="right", no_wrap=True)
    for group in groups:
        estimate = group.estimates.get(group.risk)
        failed = f" ({group.failed} failed)" if group.failed else ""
        value = f"{estimate.value:.3g}" if estimate else "-"
        interval = f"{estimate.low:.3g} to {estimate.high:.3g}" if estimate else "-"
        others = (f"{group.estimates[m].value:.3g}" if group.estimates else "-" for m in measures)
        table.add_row(
            escape(group.agent),
            escape(group.risk),
            f"{group.finished}/{len(group.runs)}{failed}",
            value,
            interval,
            *others,
        )
    return table


def write_summary(path: Path, groups: Sequence[Group]) -> None:
    """A CSV file with a row for each group and measure."""
    text = io.StringIO()
    names = ("environment", "agent", "trained_for", "measure", "value", "low", "high", "seeds")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for group in groups:
        for measure, estimate in group.estimates.items():
            numbers = (f"{number:.6g}" for number in estimate[:3])
            writer.writerow([group.env, group.agent, group.risk, measure, *numbers, group.finished])
    write_text(path, text.getvalue())
