"""Markdown: tables and their cells."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from downside.evaluation.seeds import Estimate
from downside.experiments._claims import Claim, Verdict, margin
from downside.experiments._options import SEEDS

_DIGITS = {"put": 4, "lunar": 1}
"""Of differences, where they are not three."""


def made_with(all_of: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Machines, and versions with their commits, as text."""
    machines, commits = {}, {}
    for made in all_of:
        count = made.get("cores")  # missing in the oldest files
        cores = None if count is None else "1 core" if count == 1 else f"{count} cores"
        parts = (made.get("machine"), cores, f"Python {made['python']}")
        machines[", ".join(part for part in parts if part)] = None
        versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
        known = commits.setdefault(versions, [])
        if made.get("commit") and made["commit"] not in known:
            known.append(made["commit"])
    lines = [f"{name} (commit {', '.join(ids)})" if ids else name for name, ids in commits.items()]
    return "; ".join(machines), "; ".join(lines)


def span(numbers: Collection[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def price(price: float) -> str:
    return "never" if np.isnan(price) else f"{price:.3f}"


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(header)
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, rule, *lines))


def interval(estimate: Estimate, digits: int = 3, seeds: int = len(SEEDS)) -> str:
    """The mean and its interval; the number of seeds if there are fewer than wanted."""
    value = f"{estimate.value:.{digits}f}"
    if estimate.seeds < 2:
        return f"{value} (one seed)"
    fewer = f" ({estimate.seeds} seeds)" if estimate.seeds < seeds else ""
    return f"{value} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]{fewer}"


def signed(estimate: Estimate, digits: int) -> str:
    """A difference with its interval, unless there is a single seed."""
    interval = (
        f" [{estimate.low:+.{digits}f}, {estimate.high:+.{digits}f}]" if estimate.seeds > 1 else ""
    )
    return f"{estimate.value:+.{digits}f}{interval}"


def share(value: float, best: float) -> str:
    return f"{value / best:.0%}" if value > 0 and best > 0 else f"{value - best:+.3f}"


def verdict(claim: Claim, judged: Verdict) -> str:
    """The judgement of a claim, with the difference that decides it."""
    if judged.estimate is None:
        return "not yet run"
    estimate, pair = judged.estimate, judged.pair
    by = f" by `{pair.measure}`" if len({p.measure for p in claim.pairs}) > 1 else ""
    versus = f" to {pair.second}" if len({p.second for p in claim.pairs}) > 1 else ""
    whose = f" of {pair.first}" if len({p.first for p in claim.pairs}) > 1 else ""
    digits = _DIGITS.get(claim.study, 3)
    text = escaped(f"**{judged.word}**: {signed(estimate, digits)}{whose}{by}{versus}")
    if estimate.seeds < len(SEEDS):
        text += ", one seed" if estimate.seeds == 1 else f", {estimate.seeds} seeds"
    if estimate[:3] == (0.0, 0.0, 0.0):
        text += ", the same runs"
    if judged.paper is None:
        return text
    beyond = claim.rule == "alike" and abs(judged.paper) > margin(claim, pair)
    return f"{text} (paper {judged.paper:+.2f}{', beyond the bound too' if beyond else ''})"


def escaped(text: str) -> str:
    """Escapes the stars outside code that do not mark bold type."""
    parts = text.split("`")
    parts[::2] = [
        part.replace("**", "\0").replace("*", r"\*").replace("\0", "**") for part in parts[::2]
    ]
    return "`".join(parts)


def number(text: str, digits: int) -> str:
    return "" if text in ("", "None") else f"{float(text):.{digits}f}"


def not_run(command: str) -> str:
    return f"*not yet run: `{command}`*"
