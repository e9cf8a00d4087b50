"""Files that are there whole or not at all: atomic writes, JSON with a digest, careful reads."""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import socket
import stat
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_TEMPORARY = re.compile(r"\.tmp-([0-9a-f]{8})-(\d+)-([0-9a-f]{8})-[a-z0-9_]{8}-(.+)", re.DOTALL)
"""Machine, process, a token of the process, and the name of the file that is being written."""
_MAX_NAME = 120
"""Characters of a file's name that go into that of its temporary file."""
_OLD = 24 * 3600.0
"""Seconds after which a temporary file of another machine is debris."""
_MAX_JSON = 64 * 2**20
"""Bytes of a JSON file that are read at most."""


class DamagedFileError(ValueError):
    """A file that is not what was written; the message names it and says why."""


# --- writing ----------------------------------------------------------------------------------


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """A temporary path to write to; renamed to `path` when the block ends without an error.

    File and folder are flushed to the disk before it returns. An `OSError` names `path`. What a
    killed process left of an earlier write of `path` is removed.
    """
    path = Path(path)
    temporary = None
    try:
        make_folder(path.parent)
        _check_no_device(path)
        remove_debris(path.parent, path.name)
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=_prefix(), suffix=f"-{path.name[-_MAX_NAME:]}"
        )
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o644)
        os.replace(temporary, path)
        temporary = None
        sync_folder(path.parent)
    except OSError as error:
        raise _named(error, path) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, data: Mapping[str, Any]) -> None:
    """Writes a JSON object atomically, with a digest of itself; `read_json` checks it."""
    write_text(path, json.dumps({**data, "sha256": _digest(data)}, indent=2) + "\n")


def check_writable(path: str | Path) -> None:
    """An error now, before the work, if a file could not be written; makes its folder."""
    path = Path(path)
    try:
        make_folder(path.parent)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        _check_no_device(path)
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _named(error, path) from error


def _check_no_device(path: Path) -> None:
    """An error for a device or its link, such as /dev/stdout, which a file would replace."""
    mode = os.stat(path).st_mode if path.exists() else 0
    if path.parent == Path("/dev") or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "it is a device. Name a file")


def make_folder(folder: str | Path) -> None:
    """Makes a folder and those above it, and flushes their names to the disk."""
    folder = Path(folder)
    missing = []
    while not folder.is_dir() and folder != folder.parent:
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        try:
            new.mkdir(exist_ok=True)
            sync_folder(new.parent)
        except OSError as error:
            there = isinstance(error, FileExistsError)
            reason = "there is a file of that name" if there else error.strerror or str(error)
            raise OSError(
                error.errno,
                f"The folder {new} could not be made: {reason}. Take another place",
            ) from error


def sync_folder(folder: str | Path) -> None:
    """Flushes the names in a folder to the disk; without effect where folders cannot be opened."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _named(error: OSError, path: Path) -> OSError:
    """The error with the name of the file that could not be written."""
    if str(path) in str(error) and "could not be written" in str(error):
        return error
    message = f"{path} could not be written: {error.strerror or error}"
    return OSError(error.errno, message) if error.errno is not None else OSError(message)


# --- what a killed process leaves behind ------------------------------------------------------

_HOST = f"{zlib.crc32(socket.gethostname().encode()):08x}"
_token = secrets.token_hex(4)
"""Tells this process from an earlier one with the same number."""


def _new_token() -> None:
    global _token
    _token = secrets.token_hex(4)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_token)


def _prefix() -> str:
    return f".tmp-{_HOST}-{os.getpid()}-{_token}-"


def remove_debris(folder: str | Path, name: str | None = None) -> list[str]:
    """Removes temporary files of processes that are gone; those of others stay.

    Arguments:
        folder: where to look; not in the folders below it.
        name: only those of this file.

    Returns:
        The names of the files that were removed.
    """
    removed = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _TEMPORARY.fullmatch(entry.name)
            if match is None or (name is not None and match[4] != name[-_MAX_NAME:]):
                continue
            with contextlib.suppress(OSError):
                if _is_debris(match[1], int(match[2]), match[3], entry.stat().st_mtime):
                    os.unlink(entry.path)
                    removed.append(entry.name)
    return removed


def _is_debris(host: str, process: int, token: str, written: float) -> bool:
    if host == _HOST and process == os.getpid():
        return token != _token
    if host == _HOST and not is_alive(process):
        return True
    return time.time() - written > _OLD


def is_alive(process: int) -> bool:
    """Whether a process of this machine is there."""
    if os.name == "nt":  # there is no harmless signal
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


# --- reading ----------------------------------------------------------------------------------


def check_regular(path: str | Path) -> int:
    """The size of a regular file; an error for a folder, a pipe or a device, which could block."""
    mode = os.stat(path)
    if not stat.S_ISREG(mode.st_mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(mode.st_mode), "a device")
        raise DamagedFileError(f"{path} must be a regular file, got {kind}.")
    return mode.st_size


def file_digest(path: str | Path) -> str:
    """The SHA-256 digest of a file."""
    check_regular(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file that `write_json` wrote, without its digest.

    A file without a digest, from an earlier version, is taken as it is.

    Raises:
        DamagedFileError: if it is something else, or not what was written.
        FileNotFoundError: if it is not there.
    """
    size = check_regular(path)
    if size > _MAX_JSON:
        raise DamagedFileError(f"{path} has {size:,} bytes; at most {_MAX_JSON:,} are read.")
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(
            f"{path} is no JSON: {error}. It may have been cut short."
        ) from error
    if not isinstance(data, dict):
        raise DamagedFileError(f"{path} must hold a JSON object, got {type(data).__name__}.")
    digest = data.pop("sha256", None)
    if digest is not None and digest != _digest(data):
        raise DamagedFileError(
            f"{path} was changed after it was written: its digest does not match."
        )
    return data


def _digest(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
