"""How the preset `paper` compares with the paper's figures, in words and a table."""

from collections.abc import Sequence

import numpy as np

from downside.experiments import _md
from downside.experiments._paper import PaperTable
from downside.experiments._results import Results

ROUNDING = 0.005
"""The rounding error of the paper's figures, which have two digits."""


def agreement(results: Results, table: PaperTable) -> str:
    """How many figures of mean reversion agree with the paper's, and the signs of the others."""
    near, far, seeds = 0, [], set()
    sides: dict[str, list[float]] = {measure: [] for measure in table.measures}
    for (row, measure), printed in table.figures.items():
        estimate = results.estimate("mean-reversion", "paper", row, measure)
        if estimate is None:
            continue
        seeds.add(estimate.seeds)
        gap = estimate.value - printed.mean
        sides[measure].append(gap)
        if abs(gap) <= 2 * printed.deviation + ROUNDING:
            near += 1
        else:
            far.append((abs(gap), f"{_md.escaped(row)} by `{measure}` {gap:+.2f}"))
    if not near + len(far):
        return ""
    text = (
        f"In the preset `paper` ({_md.span(seeds)} seeds), {near} of {near + len(far)} figures "
        f"lie within two of the paper's standard deviations (and {ROUNDING}, since it rounds) "
        "of the paper's."
    )
    if far:
        text += " The farthest: " + "; ".join(line for _, line in sorted(far)[-5:][::-1]) + "."
    sides = {measure: gaps for measure, gaps in sides.items() if gaps}
    lines = [
        ["agents above the paper's", *map(_above, sides.values())],
        ["mean difference", *(f"{np.mean(gaps):+.2f}" for gaps in sides.values())],
    ]
    header = ("preset paper", *(f"`{measure}`" for measure in sides))
    return f"\n{text}\n\n{_md.table(header, lines)}{_last_and_best(results)}"


def _above(gaps: Sequence[float]) -> str:
    return f"{sum(gap > 0 for gap in gaps)} of {len(gaps)}"


def _last_and_best(results: Results) -> str:
    """What keeping the best policy of a run adds, where both values are written."""
    rows = [
        row
        for row in results.rows("mean-reversion", "paper")
        if row.get("last") and row["measure"] == row["objective"]
    ]
    if not rows:
        return ""
    gains = [float(row["best"]) - float(row["last"]) for row in rows]
    return (
        "\nThe policy that is kept is the best of a run's fifty, in the episodes that all of "
        f"them are measured in. In the {len(rows)} runs where both were written down, it was worth "
        f"more there than the last one by {np.median(gains):.3f} in the middle one of them, and "
        f"from {min(gains):.3f} to {max(gains):.3f}, by the agent's own objective. The paper does "
        "not say which of a run's policies it values.\n"
    )
