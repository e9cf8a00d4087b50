"""Example 3 (appendix H): how the risk preference of a CVaR 0.5 agent evolves along an episode.

The paper shows one episode of its own agent; ours is another agent under other noise, so the table
has the same rows, not the same figures. Beside the level α_t from the learned distributions stands
the true one of the same policy: its futures from every step, simulated. Writes
`results/example3.csv`, draws `figures/example3`, and writes `example3.html` into the run's folder;
if the table is there, nothing is done.
"""

import json

import numpy as np

from downside.exact import solve
from downside.experiments._figures import save
from downside.experiments._options import Options
from downside.experiments._rows import write_about, write_rows
from downside.experiments._tables import show, terminal
from downside.experiments._training import QUICK
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


def main(options: Options, agent: Agent | None = None) -> bool:
    """Trains, explains, writes; says whether the levels are what they are said to be."""
    console, path = terminal(), options.folder / "example3.csv"
    if agent is None and path.exists():
        console.print(f"{path} is there; delete it to train anew.", highlight=False)
        about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        return options.quick or about["checks"] != "does not hold"
    seed = options.seeds_or((0,))[0]
    changes = QUICK if options.quick else {"distribution_fraction": DISTRIBUTION_FRACTION}
    if agent is None:
        agent = QRSRM(ENVIRONMENT, risk=RISK, seed=seed, gamma=GAMMA, **changes)
        console.print(f"Training {agent.name} for {RISK} on {ENVIRONMENT}")
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

    table = [
        {**{k: v for k, v in row.items() if not isinstance(v, list)}, "true_level": other.level}
        for row, other in zip(learned.rows(), true.steps, strict=True)
    ]
    about = {"environment": ENVIRONMENT, "gamma": GAMMA, "seeds": [seed], "episode": EPISODE}
    verdict = checks.verdict
    write_about(path.with_suffix(".json"), "downside reproduce example3", **about, checks=verdict)
    save(learned.plot(), options.folder, "example3")
    write_rows(path, table)  # the last of them: it says that the others are there
    if options.quick:
        return True
    folder = run_folder(ENVIRONMENT, "qrsrm-example3", agent.risk, seed)
    plan = solve(ENVIRONMENT, RISK, gamma=GAMMA, episodes=100_000)
    chapter = make_chapter(
        agent, label=f"{agent.name}, {RISK}", optimum=plan.value, episode_seed=EPISODE
    )
    page = report(chapter, plan, out=folder / "example3.html", episode_seed=EPISODE, checks=200)
    console.print(f"Written: {path}, and {page}", highlight=False)
    return verdict != "does not hold"


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
