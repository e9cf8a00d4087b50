"""Fields of settings: each with a default, a range, the check that enforces it, and a docstring."""

import ast
import dataclasses
import functools
import inspect
import math
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from downside._names import did_you_mean

_LARGEST = 2**31 - 1


def _field(default: Any, check: Callable[[str, Any], Any], allowed: str) -> Any:
    return dataclasses.field(default=default, metadata={"check": check, "range": allowed})


def whole(default: int, least: int, *, odd: bool = False, most: int = _LARGEST) -> Any:
    """A whole number from `least` to `most`."""

    def check(name: str, value: Any) -> int:
        finite = _is_number(value) and math.isfinite(value)
        if not finite or float(value) != int(value) or value < least:
            raise ValueError(f"`{name}` must be a whole number >= {least}, got {value!r}.")
        if value > most:
            raise ValueError(f"`{name}` must be a whole number <= {most:,}, got {value!r}.")
        if odd and value % 2 == 0:
            raise ValueError(f"`{name}` must be odd, so that no shift is among them; got {value}.")
        return int(value)

    return _field(default, check, f">= {least}")


def real(default: float, low: float, high: float, *, open_low: bool = False) -> Any:
    """A number between `low` and `high`; with `open_low` not `low` itself."""
    left, right = "(" if open_low else "[", ")" if high == math.inf else "]"
    allowed = f"{left}{low:g}, {high:g}{right}"

    def check(name: str, value: Any) -> float:
        inside = _is_number(value) and math.isfinite(value) and low <= value <= high
        if not inside or (open_low and value == low):
            raise ValueError(f"`{name}` must be a number in {allowed}, got {value!r}.")
        return float(value)

    return _field(default, check, allowed)


def choice(default: str, *options: str) -> Any:
    """One of some words."""

    def check(name: str, value: Any) -> str:
        if value not in options:
            raise ValueError(
                f"`{name}` must be one of {', '.join(options)}, got {value!r}."
                f"{did_you_mean(str(value), options)}"
            )
        return value

    return _field(default, check, " or ".join(options))


def switch(default: bool) -> Any:
    """True or False."""

    def check(name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"`{name}` must be True or False, got {value!r}.")
        return value

    return _field(default, check, "True or False")


def widths(*default: int) -> Any:
    """Widths of layers."""

    def check(name: str, value: Any) -> tuple[int, ...]:
        given = tuple(value) if isinstance(value, list | tuple) else value
        if not isinstance(given, tuple) or not all(
            isinstance(width, int) and not isinstance(width, bool) and width > 0 for width in given
        ):
            raise ValueError(
                f"`{name}` must be widths of layers, e.g. (128, 128, 128), got {value!r}."
            )
        return given

    return _field(default, check, "whole numbers > 0")


def shares() -> Any:
    """Numbers from 0 to 1 along a run; none by default."""

    def check(name: str, value: Any) -> tuple[float, ...]:
        given = tuple(value) if isinstance(value, list | tuple) else (value,)
        inside = all(_is_number(share) and 0.0 <= share <= 1.0 for share in given)
        if not inside or len(given) == 1:
            raise ValueError(
                f"`{name}` must be empty or at least two numbers in [0, 1], got {value!r}."
            )
        return tuple(float(share) for share in given)

    return _field((), check, "numbers in [0, 1]")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


@functools.cache
def docstrings(kind: type) -> Mapping[str, str]:
    """The docstring of each field, as one line."""
    texts: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if dataclasses.is_dataclass(owner):
            body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
            assert isinstance(body, ast.ClassDef)
            for field, after in zip(body.body, body.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                    text = str(after.value.value) if is_text else ""  # pyright: ignore
                    texts[field.target.id] = " ".join(text.split())
    return texts
