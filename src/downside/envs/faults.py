"""What environments do wrong, in words: the errors that name the line of the user's code."""

import contextlib
import itertools
import linecache
import re
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax


class EnvironmentFaultError(RuntimeError):
    """The environment did something that no agent can learn from."""


class SimulatorError(EnvironmentFaultError):
    """The code of a simulator raised an error, or returned something that it must not."""


_PENDING: dict[int, BaseException] = {}
"""Errors on their way through a compiled program, which passes on their text alone."""
_NUMBERS, _LOCK = itertools.count(1), threading.Lock()
_MOST_PENDING = 64
_TOKEN = "simulator fault number {};"
_PACKAGE = str(Path(__file__).parents[1])
_LIBRARIES = tuple(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib"))


def fault_in(call: str, error: BaseException) -> SimulatorError:
    """What a user's function raised, with the place in their file.

    Arguments:
        call: the function, such as "`step` of Market".
        error: what it raised.
    """
    frame = _user_frame(error)
    where = ""
    if frame is not None:
        line = linecache.getline(frame.filename, frame.lineno or 0).strip()
        where = f" in {frame.filename}, line {frame.lineno}" + (f": `{line}`" if line else "")
    fault = SimulatorError(f"{call} raised {type(error).__name__}: {error}{where}.")
    fault.__cause__ = error
    return fault


def _user_frame(error: BaseException) -> traceback.FrameSummary | None:
    """The innermost frame in code that is neither ours nor a library's."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [
        frame
        for frame in frames
        if not frame.filename.startswith((_PACKAGE, *_LIBRARIES, "<"))
        and "site-packages" not in frame.filename
    ]
    return (users or [None])[-1]


def through_compiled_code(fault: BaseException) -> RuntimeError:
    """An error for a callback to raise, from which `named_faults` finds `fault` again."""
    with _LOCK:
        number = next(_NUMBERS)
        _PENDING[number] = fault
        while len(_PENDING) > _MOST_PENDING:
            _PENDING.pop(next(iter(_PENDING)))
    return RuntimeError(f"{_TOKEN.format(number)} {fault}")


@contextlib.contextmanager
def named_faults(consequence: str = "") -> Iterator[None]:
    """Raises what a simulator raised inside of a compiled program, instead of what JAX makes of it.

    Arguments:
        consequence: a sentence on what is left, added to the error.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # either, by how it was called
        match = re.search(_TOKEN.format(r"(\d+)"), str(error))
        fault = _PENDING.pop(int(match[1]), None) if match else None
        if fault is None:
            raise
        if isinstance(fault, SimulatorError) and consequence:
            raise SimulatorError(f"{fault} {consequence}") from fault.__cause__
        raise fault from fault.__cause__


def ready(tree: Any) -> Any:
    """`tree` once it is computed: before that, nobody knows whether it failed."""
    return jax.block_until_ready(tree)
