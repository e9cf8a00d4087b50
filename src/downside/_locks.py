"""Locks on folders, so that one process at a time writes a run.

The operating system keeps the lock (flock): a process that ends, in whatever way, releases it, so
that a lock is never stale. It works between machines that share the disk. The lock file says who
holds it, for others to tell, and is removed on release.
"""

import contextlib
import dataclasses
import json
import os
import shlex
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from downside._files import check_regular, is_alive, make_folder, remove_debris

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

LOCK = ".lock"
"""The name of the file in a folder that is locked."""
_TICK = 0.05
"""Seconds between two attempts to take a lock."""


class FolderLockedError(RuntimeError):
    """Another process writes the folder; the message says which."""


@dataclasses.dataclass
class _Held:
    thread: int
    descriptor: int
    depth: int = 1


_held: dict[str, _Held] = {}
"""The locks of this process, by the real path of the folder."""
_guard = threading.Lock()


def _forget() -> None:
    """In a child process: it must not keep the lock when its parent is gone."""
    global _guard
    _guard = threading.Lock()
    for held in _held.values():
        with contextlib.suppress(OSError):
            os.close(held.descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextlib.contextmanager
def lock(folder: str | Path, *, wait: bool = False, required: bool = False) -> Iterator[None]:
    """Holds the lock of a folder while the block lasts; debris of killed processes is removed.

    A thread that holds it may take it again.

    Arguments:
        folder: the folder; it is made if it is not there.
        wait: whether to wait for another process; if not, it is an error.
        required: whether a disk without locks is an error; if not, it is a warning.

    Raises:
        FolderLockedError: if another process or thread holds it.
    """
    folder = Path(folder)
    make_folder(folder)
    key = os.path.realpath(folder)
    while True:
        try:
            held = _take(folder, key, required)
            break
        except FolderLockedError:
            if not wait:
                raise
            time.sleep(_TICK)
    remove_debris(folder)
    try:
        yield
    finally:
        if held:
            _release(folder, key)


def tidy(folder: str | Path) -> None:
    """Removes what killed processes left in a folder: the lock file and temporary files. Nothing
    happens if somebody writes the folder, or if it cannot be written.

    For folders that are finished, which nobody locks any more.
    """
    if (Path(folder) / LOCK).exists():
        with contextlib.suppress(FolderLockedError, OSError), lock(folder):
            pass


def _take(folder: Path, key: str, required: bool) -> bool:
    """Takes the lock; False where there are none."""
    with _guard:
        held = _held.get(key)
        if held is not None and held.thread == threading.get_ident():
            held.depth += 1
            return True
        if held is not None:
            raise FolderLockedError(f"{folder} is being written by another thread of this program.")
        descriptor = _acquire(folder, required)
        if descriptor is None:
            return False
        _held[key] = _Held(threading.get_ident(), descriptor)
        return True


def _acquire(folder: Path, required: bool) -> int | None:
    path = folder / LOCK
    while True:
        if fcntl is None:
            return _without_locks(folder, "this system has none", required)
        try:  # not through a link, whose file would be emptied
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            if path.is_symlink() or path.is_dir():
                raise OSError(
                    error.errno, f"{path} must be a file, got a link or a folder. Remove it."
                ) from error
            raise
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(descriptor, 4096, 0).decode(errors="replace")
            os.close(descriptor)
            raise FolderLockedError(_describe(folder, text)) from None
        except OSError as error:
            os.close(descriptor)
            return _without_locks(folder, str(error), required)
        if _is_same(path, descriptor):  # not removed by its holder in between
            with contextlib.suppress(OSError):  # a full disk: it is locked all the same
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, _holder().encode(), 0)
            return descriptor
        os.close(descriptor)


def _release(folder: Path, key: str) -> None:
    with _guard:
        held = _held.get(key)
        if held is None:  # a child process has forgotten it
            return
        held.depth -= 1
        if held.depth:
            return
        del _held[key]
        path = folder / LOCK
        with contextlib.suppress(OSError):
            if _is_same(path, held.descriptor):
                path.unlink()
        os.close(held.descriptor)


def _is_same(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _without_locks(folder: Path, reason: str, required: bool) -> None:
    if required:
        raise OSError(
            f"{folder} is on a disk without file locks ({reason}). Pass a `folder` on another "
            "disk; NFS has locks from version 4 on."
        )
    warnings.warn(
        f"{folder} is on a disk without file locks ({reason}): a second command that writes it at "
        "the same time is not noticed.",
        stacklevel=6,
    )


def _holder() -> str:
    return json.dumps(
        {
            "process": os.getpid(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])[:500],
        }
    )


def is_being_written(folder: str | Path) -> bool:
    """Whether a process holds the lock of a folder, as far as its lock file says.

    The lock itself is not touched: to try it would be to hold it for a moment.
    """
    path = Path(folder) / LOCK
    try:
        check_regular(path)
        holder = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        process, host = int(holder["process"]), str(holder["host"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    return host != socket.gethostname() or is_alive(process)


def _describe(folder: Path, text: str) -> str:
    """Who holds the lock, from what the holder wrote."""
    try:
        holder = json.loads(text)
        process, host = int(holder["process"]), str(holder["host"])
        who = f"process {process} on {host} since {holder['since']} ({holder['command']})"
        gone = host == socket.gethostname() and not is_alive(process)
    except (ValueError, KeyError, TypeError):  # it is just being written
        who, gone = "another process", False
    more = " That process is gone, but one that it started still runs." if gone else ""
    return (
        f"{folder} is being written by {who}.{more} Wait until it is done, stop it, or take "
        "another folder."
    )
