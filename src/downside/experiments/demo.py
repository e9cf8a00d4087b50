"""The main job in a few minutes: train QR-SRM on mean reversion, and compare with the optimum."""

import time
from pathlib import Path

import numpy as np

from downside._files import atomic_write
from downside.evaluation import Evaluation, evaluate
from downside.exact import Plan, solve
from downside.experiments._experiment import EPISODES, QUICK
from downside.experiments._options import Options
from downside.experiments._paper import paper_table
from downside.experiments._tables import show, terminal
from downside.experiments.optimum import ENVIRONMENT, GAMMA
from downside.reporting import make_section, report
from downside.runs import evaluation_seed, run_folder
from downside.train import QRSRM, Agent

RISK = "cvar(0.5)"
DISTRIBUTION_FRACTION = 0.2
"""Twice the default, so that the learned distributions pass their check."""


def main(options: Options) -> bool:
    """Trains, solves, compares; returns whether the agent beats the paper's."""
    console = terminal()
    seed = options.seeds_or((0,))[0]
    changes = QUICK if options.quick else {"evaluation_fraction": DISTRIBUTION_FRACTION}
    agent = QRSRM(ENVIRONMENT, risk=RISK, seed=seed, gamma=GAMMA, **changes)
    console.print(f"Training {agent.name} for {agent.risk} on {ENVIRONMENT}")
    begin = time.perf_counter()
    agent.learn(progress_bar=True)
    seconds = time.perf_counter() - begin
    evaluation = evaluate(agent, episodes=EPISODES, seed=evaluation_seed(seed))
    plan = solve(ENVIRONMENT, RISK, gamma=GAMMA, episodes=200_000, progress_bar=True)

    value, (low, high) = evaluation.value(RISK), evaluation.interval(RISK)
    paper = paper_table("mean_reversion").figures[f"QR-SRM {RISK}", RISK].mean
    rows = [
        ("doing nothing", "0.0000", "", "0%"),
        ("QR-SRM in the paper", f"{paper:.4f}", "", f"{paper / plan.value:.0%}"),
        ("QR-SRM, ours", f"{value:.4f}", f"{low:.4f} to {high:.4f}", f"{value / plan.value:.0%}"),
        ("the optimum (exact planner)", f"{plan.value:.4f}", "", "100%"),
    ]
    header = ("mean of the worse half of outcomes", "value", "95% interval", "of the optimum")
    show(
        console, f"Mean-reversion trading, {RISK}, {len(evaluation):,} fresh episodes", header, rows
    )
    folder = options.results or run_folder(ENVIRONMENT, "qrsrm", agent.risk, seed)
    image = folder / "demo.png"
    _draw(agent, evaluation, plan, paper, image)
    console.print(f"Trained in {seconds:.0f} s. Figure: {image}", markup=False)
    section = make_section(agent, label=f"{agent.name}, {RISK}", optimum=plan.value, checks=300)
    page = report(section, out=folder / "report.html")
    console.print(f"Report, to be opened in a browser: {page}", markup=False)
    return value > paper or options.quick


def _draw(agent: Agent, evaluation: Evaluation, plan: Plan, paper: float, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    steps = [entry["timesteps"] / 1000 for entry in agent.history]
    left.plot(steps, [entry["value"] for entry in agent.history], color="#0072B2", label="achieved")
    left.plot(
        steps,
        [entry["predicted"] for entry in agent.history],
        color="#56B4E9",
        linestyle=":",
        label="predicted by the networks",
    )
    left.axhline(plan.value, color="#D55E00", label=f"optimum, {plan.value:.3f}")
    left.axhline(paper, color="#999999", linestyle="--", label=f"the paper's agent, {paper:.2f}")
    left.set(
        title=f"{agent.risk} while learning",
        xlabel="thousand environment steps",
        ylabel="value",
        ylim=(plan.value - 1.2, plan.value + 0.3),
    )
    left.legend(frameon=False, loc="lower right")
    low, high = np.quantile(plan.returns, [0.001, 0.999])
    bins = list(np.linspace(low, high, 80))
    right.hist(plan.returns, bins, density=True, color="#D55E00", alpha=0.35, label="the optimum")
    right.hist(
        evaluation.returns, bins, density=True, histtype="step", color="#0072B2", label="the agent"
    )
    right.axvline(plan.value, color="#D55E00")
    right.axvline(evaluation.value(agent.risk), color="#0072B2")
    right.set(
        title="Returns of an episode, and their value (lines)",
        xlabel="discounted return",
        yticks=[],
    )
    right.legend(frameon=False)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150)
