"""Example 3 (appendix H): how the risk preference of a CVaR 0.5 agent evolves along an episode.

The paper shows one episode of its own agent; ours is another agent under other noise, so the table
has the same rows, not the same figures. Beside the level α_t from the learned distributions stands
the true one of the same policy: its futures from every step, simulated. Writes
`results/example3-PRESET.csv`, draws `figures/example3-PRESET`, and writes `example3.html` into the
run's folder; what is there is not made again.
"""

from pathlib import Path

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
EPISODE = 6
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
    if path.exists() and about.get("settings") == settings:
        console.print(f"{path} is there; delete it to train anew.", highlight=False)
        return about["checks"]
    console.print(f"Training {agent.name} for {RISK} on {ENVIRONMENT}, preset {preset}")
    agent.learn(progress_bar=True)
    learned = explain(agent, episode_seed=EPISODE, checks=1000)
    true = explain(agent, episode_seed=EPISODE, checks=0, returns="simulated")
    line = float(np.asarray(learned.steps[0].risk.thresholds)[0])
    header = ("", *(str(step.time) for step in learned.steps))
    show(console, f"Example 3: λ(0.5) = {line:.3f}", header, rows(learned, true))
    for step in learned.steps:
        console.print(f"{step.time:>3}  {step.words}", highlight=False)
    checks = learned.calibration
    assert checks is not None
    console.print(checks.words, highlight=False)

    write_about(
        path.with_suffix(".json"),
        f"downside reproduce example3 --preset {preset}",
        environment=ENVIRONMENT,
        gamma=GAMMA,
        seeds=[agent.seed],
        episode=EPISODE,
        settings=settings,
        checks=checks.verdict,
    )
    save(learned.plot(), options.folder, f"example3-{preset}")
    write_rows(path, table(learned, true))  # the last of them: it says that the others are there
    if not options.quick:
        page = _report(agent, preset)
        console.print(f"Written: {path}, and {page}", highlight=False)
    return checks.verdict


def _agent(options: Options, preset: str) -> Agent:
    seed = options.seeds_or((0,))[0]
    longer = {"distribution_fraction": DISTRIBUTION_FRACTION} if preset == "default" else {}
    changes = QUICK if options.quick else longer
    return QRSRM(ENVIRONMENT, risk=RISK, seed=seed, gamma=GAMMA, preset=preset, **changes)


def _report(agent: Agent, preset: str) -> Path:
    name = "qrsrm-example3" if preset == "default" else f"qrsrm-example3-{preset}"
    folder = run_folder(ENVIRONMENT, name, agent.risk, agent.seed)
    plan = solve(ENVIRONMENT, RISK, gamma=GAMMA, episodes=100_000)
    chapter = make_chapter(
        agent, label=f"{agent.name}, {RISK}", optimum=plan.value, episode_seed=EPISODE
    )
    return report(chapter, plan, out=folder / "example3.html", episode_seed=EPISODE, checks=200)


def table(learned: Story, true: Story) -> list[Row]:
    """The steps as they are written down, each with its true level."""
    return [
        {**{k: v for k, v in row.items() if not isinstance(v, list)}, "true_level": other.level}
        for row, other in zip(learned.rows(), true.steps, strict=True)
    ]


def rows(learned: Story, true: Story) -> list[tuple[str, ...]]:
    """The rows of the paper's table, and the true levels."""
    steps = learned.steps

    def row(name: str, values: list[float | None]) -> tuple[str, ...]:
        return (name, *("" if value is None else f"{value:.3f}" for value in values))

    trades = [_amount(step.action_name) for step in steps]
    return [
        row("P", [step.seen["price"] for step in steps]),
        row("q", [step.seen["inventory"] for step in steps]),
        row("s", [step.accumulated for step in steps]),
        row("c", [step.discount_so_far for step in steps]),
        row("a", trades),
        row("r", [step.reward for step in steps]),
        row("α, learned", [step.level for step in steps]),
        row("α, true", [step.level for step in true.steps]),
    ]


def _amount(action: str) -> float | None:
    """The trade that an action's name stands for."""
    if not action:
        return None
    word, _, size = action.partition(" ")
    return {"buy": 1.0, "sell": -1.0}.get(word, 0.0) * (float(size) if word != "do" else 0.0)
