"""Makes what README.md shows from `results/`: its table and its picture.

python docs/readme.py            # the table and the picture, from the results
python docs/readme.py --train    # trains the two agents of the picture first
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import downside as ds
from downside._files import write_text
from downside.experiments._paper import paper_table
from downside.experiments._rows import read_rows, select, values, write_about, write_rows
from downside.experiments.optimum import optimum

ROOT = Path(__file__).parents[1]
RESULTS, README = ROOT / "results", ROOT / "README.md"
RETURNS = RESULTS / "readme-returns.csv"
FIRST, LAST = "| agent |", "| *optimum* |"
"""How the first and the last line of the table begin."""
MEASURES = {"cvar(1.0)": "mean", "cvar(0.5)": "cvar(0.5)", "cvar(0.2)": "cvar(0.2)"}
"""The measures of the table, as the paper and the dial have them."""
STEPS = {"QR-SRM": (0.8, 54), "PG-SRM": (0, 175), "dial": (0, 273)}
"""Millions of environment steps of one training: lived through, and simulated. The same for every
seed: `agent.num_timesteps` and `agent.simulated_steps` of the runs in the results."""
PICTURED = {"mean": "#999999", "cvar(0.2)": "#0072B2"}
RANKS = 400


def table() -> str:
    """The table: each agent by its own objective, its steps and its seconds; and the optimum."""
    paper, best = paper_table("mean_reversion"), optimum(RESULTS / "mean-reversion-optimum.csv")
    critics = read_rows(RESULTS / "mean-reversion-default.csv")
    actors = read_rows(RESULTS / "actors.csv")
    dials = [row for row in read_rows(RESULTS / "dial.csv") if row["problem"] == "mean-reversion"]
    peers = [row for row in read_rows(RESULTS / "peers.csv") if row["problem"] == "mean-reversion"]
    names = [f"`{name}`" for name in MEASURES.values()]
    lines = [
        f"{FIRST} {' | '.join(names)} | million steps lived, simulated | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
        _line(
            "QR-SRM in the paper",
            [paper.figures[f"QR-SRM {measure}", measure].mean for measure in MEASURES],
        ),
    ]
    for method, measures in (("PPO", ["mean"]), ("PPO+RiskReward", ["cvar(0.2)"])):
        rows = select(peers, method=method)
        figures = [_mean(rows, m) if m in measures else None for m in MEASURES.values()]
        name = "PPO of stable-baselines3" + (", with `ds.RiskReward`" if "+" in method else "")
        steps = (round(_mean(rows, "lived") / 1e6, 1), 0)
        lines.append(_line(name, figures, steps, _numbers(rows, "seconds")))
    quick = {"mean": select(peers, method="PGSRM mean")}
    quick["cvar(0.2)"] = select(peers, method="PGSRM cvar(0.2)")
    rows = [row for each in quick.values() for row in each]
    figures = [_mean(quick[m], m) if m in quick else None for m in MEASURES.values()]
    simulated = _mean(rows, "lived") + _mean(rows, "simulated")  # all of them are
    steps = (0, round(simulated / 1e6))
    lines.append(_line("PG-SRM, 20 seconds", figures, steps, _numbers(rows, "seconds")))
    agents = [{"algorithm": "QR-SRM", "objective": m, "measure": m} for m in MEASURES]
    rows = [row for agent in agents for row in select(critics, **agent)]
    means = [values(critics, **agent).mean() for agent in agents]
    lines.append(_line("QR-SRM", means, STEPS["QR-SRM"], _numbers(rows, "seconds")))
    agents = [{**agent, "algorithm": "PG-SRM"} for agent in agents]
    means = [values(actors, **agent).mean() for agent in agents]
    alone = select(dials, method="dedicated")
    lines.append(_line("PG-SRM", means, STEPS["PG-SRM"], _numbers(alone, "cpu_seconds")))
    turned = select(dials, method="dial")
    means = [values(turned, measure=measure).mean() for measure in MEASURES.values()]
    name = "one dial of PG-SRM for all measures"
    lines.append(_line(name, means, STEPS["dial"], _numbers(turned, "cpu_seconds")))
    last = _line("*optimum*", [best[measure] for measure in MEASURES])
    return "\n".join([*lines, last])


def _line(
    name: str,
    figures: Sequence[float | None],
    steps: tuple[float, float] | None = None,
    seconds: Sequence[float] = (),
) -> str:
    shown = " | ".join("" if value is None else f"{value:.3f}" for value in figures)
    counted = "" if steps is None else f"{steps[0]:g}, {steps[1]:g}"
    return f"| {name} | {shown} | {counted} | {f'{np.mean(seconds):.0f}' if seconds else ''} |"


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float:
    return float(np.mean(_numbers(rows, column)))


def _numbers(rows: Sequence[Mapping[str, Any]], column: str) -> list[float]:
    return [float(row[column]) for row in rows]


def shown_table() -> str:
    """The table that README.md has now."""
    lines = README.read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(FIRST))
    last = next(i for i, line in enumerate(lines) if line.startswith(LAST))
    return "\n".join(lines[first : last + 1])


def train() -> None:
    """Trains an agent for the mean and one for the worst 20%, and writes their returns."""
    rows = []
    for risk in PICTURED:
        agent = ds.PGSRM("downside/MeanReversion-v0", risk=risk, seed=0, updates=2_000).learn()
        returns = np.sort(ds.evaluate(agent, episodes=100_000, seed=1).returns)
        ranks = (np.arange(RANKS) + 0.5) / RANKS
        rows += [
            {"objective": risk, "rank": rank, "value": round(float(value), 4)}
            for rank, value in zip(ranks, np.quantile(returns, ranks), strict=True)
        ]
    write_rows(RETURNS, rows)
    write_about(
        RETURNS.with_suffix(".json"), "python docs/readme.py --train", seeds=[0], updates=2_000
    )


def draw() -> None:
    """The returns of both agents, and the mean of the worst 20% of each."""
    rows = read_rows(RETURNS)
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, axis = plt.subplots(figsize=(9, 3.4), layout="constrained")
    grid = np.linspace(-6.0, 8.0, 600)
    for risk, colour in PICTURED.items():
        returns = values_of(rows, risk)
        tail = returns[: RANKS // 5]
        width = 0.9 * returns.std() * RANKS**-0.2
        kernel = np.exp(-0.5 * ((grid[:, None] - returns) / width) ** 2).mean(axis=1)
        density = kernel / (width * np.sqrt(2.0 * np.pi))
        name = "trained for the mean" if risk == "mean" else "trained for the worst 20%"
        label = f"{name}: mean {returns.mean():.2f}, worst 20% {tail.mean():.2f}"
        axis.plot(grid, density, color=colour, linewidth=2.0, label=label)
        axis.fill_between(grid, density, where=grid <= tail[-1], color=colour, alpha=0.35)
    axis.axvline(0.0, color="#222222", linewidth=0.8, linestyle=":")
    axis.set(xlabel="return of an episode of mean-reversion trading", yticks=[], ylim=(0.0, None))
    axis.spines["left"].set_visible(False)
    axis.legend(frameon=False, loc="upper right", title="shaded: the worst 20% of episodes")
    figure.savefig(ROOT / "docs" / "images" / "readme.png", dpi=160)


def values_of(rows: list[dict], risk: str) -> np.ndarray:
    """The quantiles of the returns of an agent."""
    return np.array([float(row["value"]) for row in rows if row["objective"] == risk])


def main() -> None:
    """Makes both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--train", action="store_true", help="train the agents of the picture")
    if parser.parse_args().train:
        train()
    draw()
    write_text(README, README.read_text(encoding="utf-8").replace(shown_table(), table()))


if __name__ == "__main__":
    main()
