"""Everything that is wrong with a study, each with the path of its key."""

import re
from collections.abc import Iterable, Mapping

from downside._names import did_you_mean

KeyPath = tuple[str | int, ...]
"""Keys and positions from the top of a study to a value."""


class StudyError(ValueError):
    """A study that cannot run; the message lists everything that is wrong with it."""


class Problems:
    """Collects problems, and raises them together.

    Arguments:
        source: the name of the study's file; empty if it comes from Python.
    """

    def __init__(self, source: str = ""):
        self._source = f"{source}: " if source else ""
        self._messages: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, path: KeyPath, message: str | BaseException) -> None:
        """Adds a problem with the value at a path."""
        text = (str(message).strip() or type(message).__name__).replace("\n", "\n    ")
        self._messages[f"{self._source}{spelled(path)}: {text}"] = None

    def check_keys(
        self, table: Mapping[str, object], path: KeyPath, known: Iterable[str], owner: str
    ) -> None:
        """Adds every key of a table that is not known: `owner` has no such key."""
        known = tuple(known)
        for name in table:
            if name not in known:
                hint = did_you_mean(name, known) or f" There are: {', '.join(known)}."
                self.add((*path, name), f"{owner} has no `{name}`.{hint}")

    def check(self) -> None:
        """Raises all problems together, if there are any."""
        if self._messages:
            count = f"{len(self)} errors" if len(self) > 1 else "an error"
            lines = "\n".join(self._messages)
            raise StudyError(f"the study has {count}; nothing was started.\n{lines}")


def spelled(path: KeyPath) -> str:
    """A path as text: `agents[1].gamma`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "study"


def named_in(message: str | BaseException, names: Iterable[str]) -> str | None:
    """The first of the names that an error mentions."""
    words = re.findall(r"\w+", str(message))
    return next((word for word in words if word in set(names)), None)
