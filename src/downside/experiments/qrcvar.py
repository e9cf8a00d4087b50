"""QR-CVaR beside QR-SRM on mean reversion: do they agree, as the paper says?

Writes `results/mean-reversion-qrcvar.csv`; the rows of QR-SRM are those of `reproduce agents`.
"""

import time
from pathlib import Path

import numpy as np

from downside.evaluation import evaluate
from downside.experiments._study import read_rows, write_about, write_rows
from downside.experiments._tables import show, terminal
from downside.experiments.agents import EPISODES, EVALUATION_SEED, values
from downside.experiments.optimum import ENVIRONMENT, GAMMA
from downside.train import QRCVaR, train_many

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
        begin = time.perf_counter()
        agents = train_many(
            ENVIRONMENT,
            risks=missing,
            seeds=[seed],
            agent=QRCVaR,
            distribution_fraction=0.0,
            progress_bar=True,
        )
        seconds = (time.perf_counter() - begin) / len(missing)
        for risk, agent in zip(missing, agents, strict=True):
            found = evaluate(agent, episodes=EPISODES, seed=EVALUATION_SEED + seed)
            rows.append(
                {
                    "objective": risk,
                    "seed": seed,
                    "measure": risk,
                    "value": round(found.value(risk), 6),
                    "standard_error": round(found.standard_error(risk), 6),
                    "predicted": round(agent.history[-1]["predicted"], 6),
                    "seconds": round(seconds, 1),
                }
            )
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


def _show(rows: list, other: list) -> bool:
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
