"""What the header of a checkpoint may hold: types, ranges, and a limit on every size.

It is checked before anything is built from it. A check is a function of a value and of its place
in the header, and raises `SchemaError`.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any, str], None]

_LARGEST = 2**31 - 1
MAX_GYMNASIUM_ENVS = 1_024
"""Gymnasium environments that are made because a file says so."""


class SchemaError(ValueError):
    """A header that is not what a checkpoint has; the message names the entry."""


def _fail(place: str, allowed: str, value: Any) -> SchemaError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
    return SchemaError(f"`{place}` must be {allowed}, got {shown}")


# --- parts --------------------------------------------------------------------------------------


def whole(low: int, high: int) -> Check:
    """A whole number between two others."""

    def check(value: Any, place: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _fail(place, f"a whole number in [{low}, {high}]", value)

    return check


def text(longest: int) -> Check:
    """A text of so many characters at most."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, str) or len(value) > longest:
            raise _fail(place, f"a text of at most {longest:,} characters", value)

    return check


def optional(inner: Check) -> Check:
    """Null, or what `inner` allows."""

    def check(value: Any, place: str) -> None:
        if value is not None:
            inner(value, place)

    return check


def sequence(inner: Check, longest: int, shortest: int = 0) -> Check:
    """A list of so many entries."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, list) or not shortest <= len(value) <= longest:
            count = f"at most {longest:,}" if shortest == 0 else f"{shortest:,} to {longest:,}"
            raise _fail(place, f"a list of {count} entries", value)
        for i, entry in enumerate(value):
            inner(entry, f"{place}[{i}]")

    return check


def table(required: Mapping[str, Check], others: Check | None = None, most: int = 1_000) -> Check:
    """A JSON object with these entries; `others` checks those that are not named."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict) or len(value) > most:
            raise _fail(place or "header", f"a JSON object of at most {most:,} entries", value)
        for name in required:
            if name not in value:
                raise SchemaError(f"it does not say `{_joined(place, name)}`")
        for name, entry in value.items():
            inner = required.get(name, others)
            if len(name) > 200 or inner is None:
                raise SchemaError(f"`{_joined(place, name[:80])}` is no entry that there is")
            inner(entry, _joined(place, name))

    return check


def number(value: Any, place: str) -> None:
    """A number; it may be infinite where nothing is known yet."""
    valid = isinstance(value, int | float) and not isinstance(value, bool)
    if not valid or (isinstance(value, int) and abs(value) > 2**63):
        raise _fail(place, "a number", value)


def finite(value: Any, place: str) -> None:
    """A number that is not infinite."""
    number(value, place)
    if not math.isfinite(value):
        raise _fail(place, "a finite number", value)


def count(value: Any, place: str) -> None:
    """A number of steps."""
    number(value, place)
    if not 0 <= value <= 1e15:
        raise _fail(place, "a number in [0, 1e15]", value)


def plain(deepest: int, most: int) -> Check:
    """Anything that JSON has, so deep and of so many parts at most."""

    def check(value: Any, place: str) -> None:
        parts = [(value, 0)]
        for count in range(most + 1):
            if not parts:
                return
            part, depth = parts.pop()
            if isinstance(part, list | dict):
                if depth >= deepest:
                    raise SchemaError(f"`{place}` must be nested at most {deepest} deep")
                inner = part.values() if isinstance(part, dict) else part
                parts += [(entry, depth + 1) for entry in inner]
            elif isinstance(part, str):
                text(10_000)(part, place)
            elif part is not None and not isinstance(part, bool):
                number(part, place)
            if count + len(parts) > most:
                break
        raise SchemaError(f"`{place}` must have at most {most:,} parts")

    return check


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


# --- the header ---------------------------------------------------------------------------------


def _setting(value: Any, place: str) -> None:
    """A setting of an agent; its class checks its range."""
    if isinstance(value, list):
        sequence(_setting_in_list, 64)(value, place)
    elif isinstance(value, str):
        text(200)(value, place)
    elif isinstance(value, int) and not isinstance(value, bool):
        whole(-_LARGEST, _LARGEST)(value, place)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _fail(place, "a finite number", value)
    elif value is not None and not isinstance(value, bool):
        raise _fail(place, "a number, a text, true, false, null or a list", value)


def _setting_in_list(value: Any, place: str) -> None:
    if isinstance(value, list):
        raise _fail(place, "a number or a text", value)
    if isinstance(value, int) and not isinstance(value, bool):
        whole(0, 2**20)(value, place)
    _setting(value, place)


_SETTINGS = table({}, _setting, most=200)
_LIMITS: Mapping[str, Check] = {
    "quantiles": whole(1, 2**20),
    "num_critics": whole(1, 2**10),
    "history_length": whole(0, 2**10),
    "num_envs": whole(1, 2**24),
}
"""Settings whose size costs something as soon as an agent is made."""


def _settings(value: Any, place: str) -> None:
    _SETTINGS(value, place)
    for name, check in _LIMITS.items():
        if name in value:
            check(value[name], _joined(place, name))


_ENV = table(
    {
        "description": text(1_000_000),
        "id": optional(text(500)),
        "parameters": table({}, plain(deepest=8, most=100_000), most=200),
        "num_envs": optional(whole(1, MAX_GYMNASIUM_ENVS)),
    },
    text(100),  # a digest
    most=10,
)
_RECORD = table(
    {"timesteps": count, "simulated_steps": count, "value": number, "best": number},
    plain(deepest=3, most=1_000),  # what else is measured, also by callbacks of the user
    most=200,
)
_HEADER = table(
    {
        "schema": whole(1, _LARGEST),
        "agent": text(500),
        "env": _ENV,
        "risk": text(10_000_000),
        "levels": whole(0, 100_000),
        "settings": _settings,
        "preset": text(100),
        "seed": whole(0, 2**63 - 1),
        "chunks": whole(1, _LARGEST),
        "fitted": whole(0, _LARGEST),
        "history": sequence(_RECORD, 200_000),
    },
    plain(deepest=4, most=1_000),  # versions, and what a later version may add
    most=50,
)


check_dial = table(
    {
        "levels": sequence(finite, 2, 2),
        "start": text(1_000),
        "targets": table({}, sequence(finite, 2, 2), most=10_000),
    }
)
"""What a checkpoint says of a dial: its levels, and the target and value of each measure where it
has stood."""


def check_header(header: Any) -> None:
    """Raises `SchemaError` unless it is the header of a checkpoint."""
    _HEADER(header, "")
    history, chunks = header["history"], header["chunks"]
    if len(history) > chunks:
        raise _fail("history", f"a list of at most `chunks` ({chunks}) entries", len(history))
    steps = [record["timesteps"] for record in history]
    if any(later < earlier for earlier, later in itertools.pairwise(steps)):
        raise SchemaError("`history` must go on from one entry to the next, got steps that fall")
