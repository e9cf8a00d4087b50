"""Whether the preset `paper` comes to the paper's figures, in words and a table."""

from collections.abc import Sequence

import numpy as np

from downside.experiments import _md
from downside.experiments._book import Book
from downside.experiments._paper import PaperTable

ROUNDING = 0.005
"""By how much the paper's figures may be off, as it prints two digits."""


def agreement(book: Book, table: PaperTable) -> str:
    """How many figures of mean reversion are the paper's, and on which side the others are."""
    near, far, seeds = 0, [], set()
    sides: dict[str, list[float]] = {measure: [] for measure in table.measures}
    for (row, measure), printed in table.figures.items():
        found = book.range("mean-reversion", "paper", row, measure)
        if found is None:
            continue
        seeds.add(found.seeds)
        gap = found.value - printed.mean
        sides[measure].append(gap)
        if abs(gap) <= 2 * printed.deviation + ROUNDING:
            near += 1
        else:
            far.append((abs(gap), f"{_md.escaped(row)} by `{measure}` {gap:+.2f}"))
    if not near + len(far):
        return ""
    said = (
        f"In the preset `paper` ({_md.span(seeds)} seeds), {near} of {near + len(far)} figures "
        f"lie within two of the paper's standard deviations (and {ROUNDING}, since it rounds) "
        "of the paper's."
    )
    if far:
        said += " The farthest: " + "; ".join(text for _, text in sorted(far)[-5:][::-1]) + "."
    sides = {measure: gaps for measure, gaps in sides.items() if gaps}
    lines = [
        ["agents above the paper's", *map(_above, sides.values())],
        ["mean difference", *(f"{np.mean(gaps):+.2f}" for gaps in sides.values())],
    ]
    header = ("preset paper", *(f"`{measure}`" for measure in sides))
    return f"\n{said}\n\n{_md.table(header, lines)}{_last_and_best(book)}"


def _above(gaps: Sequence[float]) -> str:
    return f"{sum(gap > 0 for gap in gaps)} of {len(gaps)}"


def _last_and_best(book: Book) -> str:
    """What it means that the best policy of a run is kept, where both were written down."""
    rows = [
        row
        for row in book.rows("mean-reversion", "paper")
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
