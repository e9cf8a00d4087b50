"""QR-CVaR beside QR-SRM on mean reversion: do they agree, as the paper says?

Writes `results/mean-reversion-qrcvar.csv`; the rows of QR-SRM are those of `reproduce agents`.
"""

from pathlib import Path

import numpy as np

from downside.experiments._study import (
    EPISODES,
    Row,
    read_rows,
    train_cells,
    write_about,
    write_rows,
)
from downside.experiments._tables import show, terminal
from downside.experiments.agents import values
from downside.experiments.optimum import ENVIRONMENT, GAMMA
from downside.train import QRCVaR

RISKS = ("cvar(0.5)", "cvar(0.2)")


def main(results: Path = Path("results"), seeds: tuple[int, ...] = (0, 1, 2)) -> bool:
    """Trains, writes and prints; says whether the two differ by no more than their seeds do."""
    path = results / "mean-reversion-qrcvar.csv"
    rows = read_rows(path)
    done = {(row["objective"], int(row["seed"])) for row in rows}
    for seed in seeds:
        missing = [risk for risk in RISKS if (risk, seed) not in done]
        if not missing:
            continue
        cells = train_cells(ENVIRONMENT, missing, [seed], agent=QRCVaR, distribution_fraction=0.0)
        rows += [row for cell in cells for row in cell.row(cell.risk)]
        write_rows(path, rows)
        write_about(
            path.with_suffix(".json"),
            "downside reproduce qrcvar",
            environment=ENVIRONMENT,
            gamma=GAMMA,
            seeds=sorted({int(row["seed"]) for row in rows}),
            episodes=EPISODES,
        )
    return _show(rows, read_rows(results / "mean-reversion-agents.csv"))


def _show(rows: list[Row], other: list[Row]) -> bool:
    shown, agree = [], True
    for risk in RISKS:
        target, ours = values(rows, risk, risk), values(other, risk, risk)
        if len(ours) < 2 or len(target) < 2:
            continue
        gap = target.mean() - ours.mean()
        error = np.sqrt(target.var(ddof=1) / len(target) + ours.var(ddof=1) / len(ours))
        agree &= bool(abs(gap) <= 2 * error)
        shown.append(
            [risk, f"{target.mean():.4f}", f"{ours.mean():.4f}", f"{gap:+.4f} ± {error:.4f}"]
        )
    header = ("objective", "QR-CVaR", "QR-SRM", "difference and its standard error")
    show(terminal(), "QR-CVaR beside QR-SRM, mean over seeds", header, shown)
    return agree
