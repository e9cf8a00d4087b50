"""How much memory there is, and a refusal before more is asked for."""

import os
from pathlib import Path

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def free_memory() -> int | None:
    """Bytes that this process may still take; None where nobody knows."""
    known = [_of_machine(), _of_group()]
    return min((size for size in known if size is not None), default=None)


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvail"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _of_group() -> int | None:
    """Of the control group, as containers have one."""
    root = Path("/sys/fs/cgroup")
    try:
        limit = int((root / "memory.max").read_text())
        return max(0, limit - int((root / "memory.current").read_text()))
    except (OSError, ValueError):  # no group, or "max"
        return None


def in_words(size: float) -> str:
    """A number of bytes, such as 1.5 GiB."""
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.3g} {_UNITS[unit]}"


def check_fits(setting: str, rows: int, row_size: int, what: str, remedy: str = "") -> None:
    """Raises unless so many `rows` of so many bytes fit into memory.

    Arguments:
        setting: the name of the setting that says how many.
        rows: how many.
        row_size: the bytes of each.
        what: what a row is, in the plural.
        remedy: what else helps, as a sentence.
    """
    free, needed = free_memory(), rows * row_size
    if free is None or needed <= free:
        return
    fitting = int(0.5 * free / row_size)
    rounded = fitting // 10 ** max(0, len(str(fitting)) - 2) * 10 ** max(0, len(str(fitting)) - 2)
    raise ValueError(
        f"`{setting}` must fit into memory, got {rows:,}: so many {what} need {in_words(needed)}, "
        f"and {in_words(free)} are free. Take {setting}={rounded:_}, which needs half of it. "
        f"{remedy}".rstrip()
    )
