"""What the machine has, and which version of the code runs on it."""

import functools
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> str:
    """System, processor and memory, in words."""
    return ", ".join(
        part
        for part in (f"{platform.system()} {platform.machine()}", _processor(), _memory())
        if part
    )


@functools.cache  # who asks early is told what runs, whatever is committed in the meantime
def commit() -> str | None:
    """The commit that the code is of, with a "+" where it was changed since; None if it was not
    taken from a repository."""
    file = Path(__file__)
    try:
        # Asked for this very file: the folder may lie in the repository of something else.
        _git("ls-files", "--error-unmatch", file.name, folder=file.parent)
        changed = _git("status", "--porcelain", "--untracked-files=no", ".", folder=file.parent)
        return _git("rev-parse", "--short", "HEAD", folder=file.parent) + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def versions(*names: str) -> dict[str, str]:
    """The versions of packages; our own also where it is imported from its source, uninstalled."""
    return {name: _version(name) for name in names}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if name != "downside":
            raise
        from downside import __version__

        return __version__


def _git(*arguments: str, folder: Path) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not on Linux
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.processor()


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not known here
        return ""
    return f"{size / 2**30:.0f} GiB"
