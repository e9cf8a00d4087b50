"""One process at a time for a folder, on this machine and on others that share the disk."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

_CLAIM = ".claim"


@contextlib.contextmanager
def claim(folder: str | Path) -> Iterator[bool]:
    """Whether this process has the folder to itself while the block lasts.

    It is a lock that the operating system keeps: a process that ends, in whatever way, gives it
    back, so that a claim is never left behind by the dead.
    """
    if fcntl is None:
        raise RuntimeError("A study needs file locks (flock), which this system does not have.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _CLAIM).open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError as error:
            raise OSError(
                f"{folder} is on a disk that has no file locks ({error}). Take a `folder` on "
                "another one; NFS has them from version 4 on."
            ) from error
        yield True
