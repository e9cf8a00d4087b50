"""Example 3 (appendix H): how the risk preference of a CVaR 0.5 agent evolves along an episode.

The paper shows one episode of its agent; ours is another agent under other noise, so the table has
the same rows, not the same figures. Beside the level α_t from the learned distributions is the true
level of the same policy, from simulated futures at every step. Writes
`results/example3-PRESET.csv`, `figures/example3-PRESET`, and `example3.html` in the run's folder.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from downside.exact import solve
from downside.experiments._experiment import QUICK
from downside.experiments._figures import save
from downside.experiments._options import Options
from downside.experiments._rows import Row, read_about, write_about, write_rows
from downside.experiments._tables import show, terminal
from downside.experiments.optimum import ENVIRONMENT, GAMMA
from downside.explanation import Explanation, explain
from downside.reporting import make_section, report
from downside.runs import run_folder
from downside.studies import Study, read_study, sweep
from downside.train import Agent, load

RISK = "cvar(0.5)"
EPISODES = 100
LOW, HIGH = 0.2, 0.6
"""The episode that is shown is the first of `EPISODES` whose learned level goes below `LOW` and
above `HIGH`, as in the paper's; without one, the first."""
COLUMNS = {
    "price P": "price",
    "inventory q": "inventory",
    "earned so far s": "s",
    "discount so far c": "c",
    "trade a": "trade",
    "reward r": "reward",
    "level α, learned": "level",
    "level α, true": "true_level",
}
"""The rows of the paper's table and the true levels, by the columns of the data."""
DISTRIBUTION_FRACTION = 0.3
"""The default fits the quantiles too briefly to read them: information travels back one step at a
time, at the rate of the target network, and an episode has ten steps."""


def main(options: Options) -> bool:
    """Trains, explains, writes; returns whether the levels pass their check."""
    verdicts = [_run(options, preset) for preset in options.presets]
    return options.quick or "does not hold" not in verdicts


def _run(options: Options, preset: str) -> str:
    """The verdict of the checks for one preset."""
    console, path = terminal(), options.folder / f"example3-{preset}.csv"
    study = _study(options, preset)
    (spec,) = study.runs
    about = read_about(path.with_suffix(".json"))
    known = {spec.group_key, *about.get("kept_settings", ())}
    if path.exists() and about["settings"] in known and about["seeds"] == [spec.seed]:
        console.print(f"{path} is there; delete it to train again.", highlight=False, markup=False)
        return about["checks"]
    result = sweep(study, folder=options.storage(study.name), progress_bar=True)
    if result.failed:
        raise RuntimeError(f"The run failed: {next(iter(result.failed.values()))}")
    agent = load(result.folder / spec.name)
    episode = 0 if options.quick else telling_episode(agent)
    learned = explain(agent, episode_seed=episode, checks=1000, returns="learned")
    true = explain(agent, episode_seed=episode, checks=0, returns="simulated")
    line = float(np.asarray(learned.steps[0].risk.thresholds)[0])
    header = ("", *(str(step.time) for step in learned.steps))
    written = table(learned, true)
    show(console, f"Example 3: λ(0.5) = {line:.3f}", header, rows(written))
    for step in learned.steps:
        console.print(f"{step.time:>3}  {step.words}", highlight=False)
    checks = learned.calibration
    assert checks is not None
    console.print(checks.words, highlight=False)

    path.unlink(missing_ok=True)  # written last: it says that the other files are there
    write_about(
        path.with_suffix(".json"),
        f"downside reproduce example3 --preset {preset}",
        environment=ENVIRONMENT,
        gamma=GAMMA,
        settings=spec.group_key,
        seeds=[spec.seed],
        episode=episode,
        threshold=round(line, 4),
        checks=checks.verdict,
    )
    save(learned.plot(), options.folder, f"example3-{preset}")
    write_rows(path, written)
    if not options.quick:
        page = _report(agent, preset, episode)
        console.print(f"Written: {path}, and {page}", highlight=False, markup=False)
    return checks.verdict


def _study(options: Options, preset: str) -> Study:
    """The study of one run."""
    longer = {"evaluation_fraction": DISTRIBUTION_FRACTION} if preset == "default" else {}
    changes = QUICK if options.quick else longer
    return read_study(
        {
            "study": {
                "name": f"example3-{preset}",
                "seeds": [options.seeds_or((0,))[0]],
                "risks": [RISK],
                "episodes": 1_000,
            },
            "environments": [{"id": ENVIRONMENT}],
            "agents": [{"name": "qrsrm", "gamma": GAMMA, "preset": preset, **changes}],
        }
    )


def telling_episode(agent: Agent) -> int:
    """The seed of an episode in which the level goes both down and up."""
    for episode in range(EPISODES):
        steps = explain(agent, episode_seed=episode, checks=0, returns="learned").steps
        levels = [step.level for step in steps[:-1]]  # at the end there is nothing left to risk
        if min(levels) < LOW and max(levels) > HIGH:
            return episode
    return 0


def _report(agent: Agent, preset: str, episode: int) -> Path:
    name = "qrsrm-example3" if preset == "default" else f"qrsrm-example3-{preset}"
    folder = run_folder(ENVIRONMENT, name, agent.risk, agent.seed)
    plan = solve(ENVIRONMENT, RISK, gamma=GAMMA, episodes=100_000)
    section = make_section(
        agent, label=f"{agent.name}, {RISK}", optimum=plan.value, episode_seed=episode
    )
    return report(section, plan, out=folder / "example3.html", episode_seed=episode, checks=200)


def table(learned: Explanation, true: Explanation) -> list[Row]:
    """A row for each step, with the trade and the true level."""
    rows = []
    for row, step, other in zip(learned.rows(), learned.steps, true.steps, strict=True):
        plain = {name: value for name, value in row.items() if not isinstance(value, list)}
        trade = _amount(step.action_name)
        rows.append({**plain, "trade": "" if trade is None else trade, "true_level": other.level})
    return rows


def rows(written: Sequence[Row]) -> list[tuple[str, ...]]:
    """The table on the terminal, from the rows."""

    def shown(value: Any) -> str:
        return "" if value in ("", None) else f"{float(value):.3f}"

    return [(name, *(shown(row[column]) for row in written)) for name, column in COLUMNS.items()]


def _amount(action: str) -> float | None:
    """The trade of an action, from its name."""
    if not action:
        return None
    word, _, size = action.partition(" ")
    return {"buy": 1.0, "sell": -1.0}.get(word, 0.0) * (float(size) if word != "do" else 0.0)
