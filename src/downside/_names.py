"""Names that nobody knows, and the ones that may have been meant."""

import difflib
from collections.abc import Iterable

_SHARE = 4
"""One mistake for so many letters is a slip; more make another word."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that may have been meant, whatever the case; None if none is close enough.

    Close are names with few letters changed, and longer names that contain this one.
    """
    lowered = {candidate.lower(): candidate for candidate in known}
    wanted = name.lower()
    close = [candidate for candidate in lowered if _is_close(wanted, candidate)]
    ranked = difflib.get_close_matches(wanted, close, n=1, cutoff=0.0)
    return lowered[ranked[0]] if ranked else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean ...?` with the closest known name, or nothing."""
    close = closest(name, known)
    return f" Did you mean {close!r}?" if close else ""


def _is_close(name: str, known: str) -> bool:
    if len(name) >= 4 and name in known and 2 * len(name) >= len(known):
        return True
    allowed = max(1, max(len(name), len(known)) // _SHARE)
    return abs(len(name) - len(known)) <= allowed and distance(name, known) <= allowed < len(known)


def distance(first: str, second: str) -> int:
    """How many letters have to be added, left out, replaced or swapped with their neighbour."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        oldest, before, row = before, row, [i]
        for j, other in enumerate(second, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == other:
                best = min(best, oldest[j - 2] + 1)
            row.append(best)
    return row[-1]
