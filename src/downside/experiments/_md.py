"""What is in the cells of the page, and tables of them, as Markdown."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from downside.experiments._book import Range
from downside.experiments._claims import Claim, Verdict, margin
from downside.experiments._options import SEEDS

_DIGITS = {"put": 4, "lunar": 1}
"""Of differences, where they are not three."""


def made_with(all_of: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Machines, and versions with the commits that were run with them, in words."""
    machines, commits = {}, {}
    for one in all_of:
        count = one.get("cores")  # once it was not written down
        cores = None if count is None else "1 core" if count == 1 else f"{count} cores"
        parts = (one.get("machine"), cores, f"Python {one['python']}")
        machines[", ".join(part for part in parts if part)] = None
        versions = ", ".join(f"{name} {what}" for name, what in one["versions"].items())
        own = commits.setdefault(versions, [])
        if one.get("commit") and one["commit"] not in own:
            own.append(one["commit"])
    said = [f"{name} (commit {', '.join(own)})" if own else name for name, own in commits.items()]
    return "; ".join(machines), "; ".join(said)


def span(numbers: Collection[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def price(price: float) -> str:
    return "never" if np.isnan(price) else f"{price:.3f}"


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(header)
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, rule, *lines))


def interval(found: Range, digits: int = 3, seeds: int = len(SEEDS)) -> str:
    """The mean and its interval; how many seeds there are where there should be more."""
    value = f"{found.value:.{digits}f}"
    if found.seeds < 2:
        return f"{value} (one seed)"
    fewer = f" ({found.seeds} seeds)" if found.seeds < seeds else ""
    return f"{value} [{found.low:.{digits}f}, {found.high:.{digits}f}]{fewer}"


def signed(found: Range, digits: int) -> str:
    """A difference, with its interval if there is one."""
    interval = f" [{found.low:+.{digits}f}, {found.high:+.{digits}f}]" if found.seeds > 1 else ""
    return f"{found.value:+.{digits}f}{interval}"


def share(value: float, best: float) -> str:
    return f"{value / best:.0%}" if value > 0 and best > 0 else f"{value - best:+.3f}"


def verdict(claim: Claim, one: Verdict) -> str:
    if one.found is None:
        return "not yet run"
    found = one.found
    by = f" by `{one.pair.measure}`" if len({pair.measure for pair in claim.pairs}) > 1 else ""
    versus = f" to {one.pair.second}" if len({pair.second for pair in claim.pairs}) > 1 else ""
    whose = f" of {one.pair.first}" if len({pair.first for pair in claim.pairs}) > 1 else ""
    digits = _DIGITS.get(claim.study, 3)
    said = escaped(f"**{one.word}**: {signed(found, digits)}{whose}{by}{versus}")
    if found.seeds < len(SEEDS):
        said += ", one seed" if found.seeds == 1 else f", {found.seeds} seeds"
    if found[:3] == (0.0, 0.0, 0.0):
        said += ", the same runs"
    if one.paper is None:
        return said
    beyond = claim.rule == "alike" and abs(one.paper) > margin(claim, one.pair)
    return f"{said} (paper {one.paper:+.2f}{', beyond the bound too' if beyond else ''})"


def escaped(text: str) -> str:
    """Stars outside code, other than those of bold type, as they are."""
    parts = text.split("`")
    parts[::2] = [
        part.replace("**", "\0").replace("*", r"\*").replace("\0", "**") for part in parts[::2]
    ]
    return "`".join(parts)


def number(text: str, digits: int) -> str:
    return "" if text in ("", "None") else f"{float(text):.{digits}f}"


def not_run(command: str) -> str:
    return f"*not yet run: `{command}`*"
