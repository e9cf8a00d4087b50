"""Makes what README.md shows from `results/`: its table and its picture.

python docs/readme.py            # the table and the picture, from the results
python docs/readme.py --train    # trains the two agents of the picture first
"""

import argparse
from pathlib import Path

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
FIRST, LAST = "| measure |", "| seconds of training |"
"""How the first and the last line of the table begin."""
MEASURES = {"cvar(1.0)": "mean", "cvar(0.5)": "cvar(0.5)", "cvar(0.2)": "cvar(0.2)"}
"""The measures of the table, as the paper and the dial have them."""
PICTURED = {"mean": "#999999", "cvar(0.2)": "#0072B2"}
RANKS = 400


def table() -> str:
    """The table: the paper's QR-SRM, ours, one dial and the optimum, by measure."""
    paper, best = paper_table("mean_reversion"), optimum(RESULTS / "mean-reversion-optimum.csv")
    critics = read_rows(RESULTS / "mean-reversion-default.csv")
    dials = read_rows(RESULTS / "dial.csv")
    lines = [
        f"{FIRST} QR-SRM in the paper | QR-SRM here | one dial (PG-SRM) | optimum |",
        "| --- | --- | --- | --- | --- |",
    ]
    seconds: list[list[float]] = [[], []]
    for measure, name in MEASURES.items():
        agents = {"algorithm": "QR-SRM", "objective": measure, "measure": measure}
        turned = {"problem": "mean-reversion", "method": "dial", "measure": name}
        figures = (
            paper.figures[f"QR-SRM {measure}", measure].mean,
            values(critics, **agents).mean(),
            values(dials, **turned).mean(),
            best[measure],
        )
        lines.append(f"| `{name}` | {' | '.join(f'{value:.3f}' for value in figures)} |")
        seconds[0] += [float(row["seconds"]) for row in select(critics, **agents)]
        seconds[1] += [float(row["cpu_seconds"]) for row in select(dials, **turned)]
    shown = " | ".join(f"{np.mean(each):.0f}" for each in seconds)
    return "\n".join([*lines, f"{LAST} | {shown}, for all measures | |"])


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
