"""A file layer that fails: the n-th write, flush to the disk, rename or removal below a folder.

Everything that Python writes goes through `open`, `os.fsync`, `os.replace`, `os.rename` and
`os.unlink`; what safetensors writes goes through its `save_file`. They are replaced while a
`FaultyFiles` is entered. Only what lies below its folder is counted.
"""

import builtins
import errno
import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy

KINDS = ("open", "write", "fsync", "rename", "unlink")


class FaultyFiles:
    """Counts the operations on files below a folder, and lets one of them fail.

    Arguments:
        folder: whose files count.
        fail_at: the number of the operation that fails, from 0; None for none.
        kill: whether the process is killed there (SIGKILL) instead of getting an error.
        kinds: the operations that count.
    """

    def __init__(self, folder: Any, fail_at: int | None = None, *, kill=False, kinds=KINDS):
        self.folder, self.fail_at, self.kill = os.path.realpath(folder), fail_at, kill
        self.kinds = kinds
        self.operations: list[tuple[str, str]] = []
        self._patch = pytest.MonkeyPatch()
        self._names: dict[int, str] = {}

    @property
    def failed(self) -> tuple[str, str]:
        """The operation that failed, and its file."""
        assert self.fail_at is not None
        return self.operations[self.fail_at]

    def _inside(self, path: Any) -> bool:
        if not isinstance(path, str | os.PathLike):
            return False
        real = os.path.realpath(os.fspath(path))
        return real == self.folder or real.startswith(self.folder + os.sep)

    def happens(self, kind: str, path: Any) -> bool:
        """Notes an operation; whether it is the one that fails."""
        if kind not in self.kinds or not self._inside(path):
            return False
        self.operations.append((kind, Path(path).name))
        return len(self.operations) - 1 == self.fail_at

    def fault(self, path: Any) -> None:
        """What happens then."""
        if self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def __enter__(self) -> "FaultyFiles":
        set_to = self._patch.setattr
        plain_open, os_open = io.open, os.open
        fsync, replace, rename, unlink = os.fsync, os.replace, os.rename, os.unlink
        save_file = safetensors.numpy.save_file

        def opened(file, mode="r", *arguments, **named):
            writes = any(letter in mode for letter in "wax+")
            if writes and self.happens("open", file):
                self.fault(file)
            made = plain_open(file, mode, *arguments, **named)
            if self._inside(file):
                self._names[made.fileno()] = os.fspath(file)
                if writes:
                    return _File(made, self, file)
            return made

        def opened_number(path, flags, *arguments, **named):
            if flags & os.O_CREAT and self.happens("open", path):
                self.fault(path)
            number = os_open(path, flags, *arguments, **named)
            if self._inside(path):
                self._names[number] = os.fspath(path)
            return number

        def flushed(number):
            path = self._names.get(number)
            if path is not None and self.happens("fsync", path):
                self.fault(path)
            fsync(number)

        def replaced(source, target, **named):
            if self.happens("rename", target):
                self.fault(target)
            replace(source, target, **named)

        def renamed(source, target, **named):
            if self.happens("rename", target):
                self.fault(target)
            rename(source, target, **named)

        def unlinked(path, **named):
            if self.happens("unlink", path):
                self.fault(path)
            unlink(path, **named)

        def saved(tensors, path, metadata=None):
            fails = self.happens("write", path)
            save_file(tensors, path, metadata=metadata)
            if fails:  # as after a full disk: some of it is there
                os.truncate(path, os.path.getsize(path) // 2)
                self.fault(path)

        set_to(builtins, "open", opened)
        set_to(io, "open", opened)
        set_to(os, "open", opened_number)
        set_to(os, "fsync", flushed)
        set_to(os, "replace", replaced)
        set_to(os, "rename", renamed)
        set_to(os, "unlink", unlinked)
        set_to(safetensors.numpy, "save_file", saved)
        return self

    def __exit__(self, *_: Any) -> None:
        self._patch.undo()


class _File:
    """A file whose writes can fail: half of what should be written is."""

    def __init__(self, file: Any, layer: FaultyFiles, path: Any):
        self._file, self._layer, self._path = file, layer, path

    def write(self, data: Any) -> Any:
        if self._layer.happens("write", self._path):
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            self._layer.fault(self._path)
        return self._file.write(data)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_File":
        self._file.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._file.__exit__(*error)

    def __iter__(self) -> Any:
        return iter(self._file)


def debris(folder: Any) -> list[str]:
    """Temporary files and locks anywhere below a folder."""
    names = [path.name for path in Path(folder).rglob(".*")]
    return [name for name in names if name.startswith(".tmp-") or name == ".lock"]
