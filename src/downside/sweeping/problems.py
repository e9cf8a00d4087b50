"""All that is wrong with a study, each with its place, said at once."""

import re
from collections.abc import Iterable, Mapping

from downside._names import did_you_mean
from downside.sweeping.lines import Path


class StudyError(ValueError):
    """A study that cannot be run; the message lists everything that is wrong with it."""


class Problems:
    """Collects what is wrong, and raises it in the end.

    Arguments:
        source: what the study is called: its file, or nothing if it came from Python.
        lines: the line of each key and entry, of a file.
    """

    def __init__(self, source: str, lines: Mapping[Path, int]):
        self._source, self._lines = source, lines
        self._found: dict[tuple[int, str], None] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, path: Path, message: str | BaseException) -> None:
        """Something is wrong there."""
        text = str(message).strip() or type(message).__name__
        text = text.replace("\n", "\n    ")
        line = self._line(path)
        place = f"{self._source}:{line}" if line else _spelled(path) or "study"
        self._found[line, f"{place}: {text}"] = None

    def keys(
        self, table: Mapping[str, object], path: Path, known: Iterable[str], owner: str
    ) -> None:
        """Every key of a table that is not known: `owner` has no such."""
        known = tuple(known)
        for name in table:
            if name not in known:
                hint = did_you_mean(name, known) or f" There are: {', '.join(known)}."
                self.add((*path, name), f"{owner} has no `{name}`.{hint}")

    def check(self) -> None:
        """Raises everything at once, in the order of the file."""
        if self._found:
            count = f"{len(self)} errors" if len(self) > 1 else "an error"
            said = "\n".join(text for _, text in sorted(self._found, key=lambda one: one[0]))
            raise StudyError(f"the study has {count}; nothing was started.\n{said}")

    def _line(self, path: Path) -> int:
        """Of the place, or of the closest thing around it that has one; 0 if nothing has."""
        for end in range(len(path), 0, -1):
            if path[:end] in self._lines:
                return self._lines[path[:end]]
        return 1 if self._lines else 0


def named_in(message: str | BaseException, names: Iterable[str]) -> str | None:
    """The first of the names that an error mentions."""
    words = re.findall(r"\w+", str(message))
    return next((word for word in words if word in set(names)), None)


def _spelled(path: Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")
