"""Example 3 (appendix H): how the risk preference of a CVaR 0.5 agent evolves along an episode.

The paper shows one episode of its own agent; ours is another agent under other noise, so the table
has the same rows, not the same figures. Beside the level α_t from the learned distributions stands
the true one of the same policy: its futures from every step, simulated. Writes
`results/example3-PRESET.csv`, draws `figures/example3-PRESET`, and writes `example3.html` into the
run's folder; what is there is not made again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from downside.exact import solve
from downside.experiments._figures import save
from downside.experiments._options import Options
from downside.experiments._rows import Row, read_about, write_about, write_rows
from downside.experiments._tables import show, terminal
from downside.experiments._training import QUICK, fingerprint
from downside.experiments.optimum import ENVIRONMENT, GAMMA
from downside.explanation import Story, explain
from downside.reporting import make_chapter, report
from downside.runs import run_folder
from downside.train import QRSRM, Agent

RISK = "cvar(0.5)"
EPISODES = 100
LOW, HIGH = 0.2, 0.6
"""The episode that is shown is the first of so many in which the learned level goes below the one
and above the other, as it does in the paper's; if there is none, the first of all."""
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
"""The rows of the paper's table, and the true levels: what they are in words, and in the data."""
DISTRIBUTION_FRACTION = 0.3
"""The default learns the quantiles for too short a time to be read: news of a step travels back to
the one before at the pace of the target network, and an episode has ten of them."""


def main(options: Options) -> bool:
    """Trains, explains, writes; says whether the levels are what they are said to be."""
    verdicts = [_one(options, preset) for preset in options.presets]
    return options.quick or "does not hold" not in verdicts


def _one(options: Options, preset: str) -> str:
    """What the checks say of one preset's agent."""
    console, path = terminal(), options.folder / f"example3-{preset}.csv"
    agent = _agent(options, preset)
    about = read_about(path.with_suffix(".json"))
    settings = fingerprint(agent, options.quick)
    made = {"settings": settings, "seeds": [agent.seed]}
    if path.exists() and all(about.get(name) == value for name, value in made.items()):
        console.print(f"{path} is there; delete it to train anew.", highlight=False)
        return about["checks"]
    console.print(f"Training {agent.name} for {RISK} on {ENVIRONMENT}, preset {preset}")
    agent.learn(progress_bar=True)
    episode = 0 if options.quick else telling_episode(agent)
    learned = explain(agent, episode_seed=episode, checks=1000)
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

    path.unlink(missing_ok=True)  # written last: it says that the others are there
    write_about(
        path.with_suffix(".json"),
        f"downside reproduce example3 --preset {preset}",
        environment=ENVIRONMENT,
        gamma=GAMMA,
        **made,
        episode=episode,
        threshold=round(line, 4),
        checks=checks.verdict,
    )
    save(learned.plot(), options.folder, f"example3-{preset}")
    write_rows(path, written)
    if not options.quick:
        page = _report(agent, preset, episode)
        console.print(f"Written: {path}, and {page}", highlight=False)
    return checks.verdict


def _agent(options: Options, preset: str) -> Agent:
    seed = options.seeds_or((0,))[0]
    longer = {"distribution_fraction": DISTRIBUTION_FRACTION} if preset == "default" else {}
    changes = QUICK if options.quick else longer
    return QRSRM(ENVIRONMENT, risk=RISK, seed=seed, gamma=GAMMA, preset=preset, **changes)


def telling_episode(agent: Agent) -> int:
    """The seed of an episode in which the agent's attitude changes both ways."""
    for episode in range(EPISODES):
        steps = explain(agent, episode_seed=episode, checks=0).steps
        levels = [step.level for step in steps[:-1]]  # when it is over there is nothing to risk
        if min(levels) < LOW and max(levels) > HIGH:
            return episode
    return 0


def _report(agent: Agent, preset: str, episode: int) -> Path:
    name = "qrsrm-example3" if preset == "default" else f"qrsrm-example3-{preset}"
    folder = run_folder(ENVIRONMENT, name, agent.risk, agent.seed)
    plan = solve(ENVIRONMENT, RISK, gamma=GAMMA, episodes=100_000)
    chapter = make_chapter(
        agent, label=f"{agent.name}, {RISK}", optimum=plan.value, episode_seed=episode
    )
    return report(chapter, plan, out=folder / "example3.html", episode_seed=episode, checks=200)


def table(learned: Story, true: Story) -> list[Row]:
    """The steps as they are written down, each with the trade and its true level."""
    out = []
    for row, step, other in zip(learned.rows(), learned.steps, true.steps, strict=True):
        own = {name: value for name, value in row.items() if not isinstance(value, list)}
        trade = _amount(step.action_name)
        out.append({**own, "trade": "" if trade is None else trade, "true_level": other.level})
    return out


def rows(written: Sequence[Row]) -> list[tuple[str, ...]]:
    """The table as it is shown, from what is written down."""

    def shown(value: Any) -> str:
        return "" if value in ("", None) else f"{float(value):.3f}"

    return [(name, *(shown(row[column]) for row in written)) for name, column in COLUMNS.items()]


def _amount(action: str) -> float | None:
    """The trade that an action's name stands for."""
    if not action:
        return None
    word, _, size = action.partition(" ")
    return {"buy": 1.0, "sell": -1.0}.get(word, 0.0) * (float(size) if word != "do" else 0.0)
