"""Names that nobody knows, and the ones that may have been meant."""

import difflib
from collections.abc import Iterable


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to `name`, whatever the case; None if none is close."""
    lowered = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.6)
    return lowered[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean ...?` with the closest known name, or nothing."""
    close = closest(name, known)
    return f" Did you mean {close!r}?" if close else ""
