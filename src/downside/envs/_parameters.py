"""Fields that hold an environment's parameters, and the sentences for bad ones."""

import math
import numbers
from typing import Any

import equinox as eqx
import numpy as np

from downside._names import did_you_mean


def as_float(value: Any) -> Any:
    """`value` as a `float` if it is a number; anything else is left for the check to refuse."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return float(value) if is_number else value


def _as_int(value: Any) -> Any:
    number = as_float(value)
    return int(value) if isinstance(number, float) and number.is_integer() else value


def real(*default: float | None) -> Any:
    """A static field for a real number; whole numbers and NumPy scalars become `float`.

    Without a default the parameter has to be given.
    """
    given = {"default": default[0]} if default else {}
    return eqx.field(static=True, converter=as_float, **given)


def reals(*default: float) -> Any:
    """A static field for several real numbers; lists and arrays become tuples of `float`."""
    return eqx.field(static=True, default=default, converter=_as_floats)


def _as_floats(values: Any) -> Any:
    is_list = isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.ndim)
    return tuple(as_float(value) for value in values) if is_list else values


def whole(default: int | None) -> Any:
    """A static field for a whole number; `10.0` and NumPy integers become `int`."""
    return eqx.field(static=True, default=default, converter=_as_int)


def choice(default: str) -> Any:
    """A static field for one of a few names."""
    # With a converter, `__init__` takes anything: it is the check that says what is wrong.
    return eqx.field(static=True, default=default, converter=lambda value: value)


def flag(default: bool) -> Any:
    """A static field for yes or no."""
    return eqx.field(static=True, default=default, converter=_as_bool)


def _as_bool(value: Any) -> Any:
    return bool(value) if isinstance(value, np.bool_) else value


def check_flag(name: str, value: Any) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise _error(value, f"`{name}` must be True or False, got {value!r}.")


def check_real(
    name: str,
    value: Any,
    remedy: str,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
) -> None:
    """Raise unless `value` is a finite number in the range, with a sentence that says all of it."""
    is_finite = isinstance(value, float) and math.isfinite(value)
    if is_finite and above < value < below and least <= value <= most:
        return
    left = f"({above:g}" if above >= least else f"[{least:g}"
    right = f"{below:g})" if below <= most else f"{most:g}]"
    allowed = f"`{name}` must be a finite number in {left}, {right}"
    raise _error(value, f"{allowed}, got {value!r}. {remedy}")


def check_reals(
    name: str, values: Any, remedy: str, *, count: int | None = None, least: float = -math.inf
) -> None:
    """Raise unless `values` are so many finite numbers of at least `least`."""
    if not isinstance(values, tuple) or not values or (count or len(values)) != len(values):
        many = "several" if count is None else str(count)
        raise _error(values, f"`{name}` must be {many} numbers, got {values!r}. {remedy}", tuple)
    for value in values:
        check_real(name, value, remedy, least=least)


def check_whole(name: str, value: Any, remedy: str, *, least: int) -> None:
    """Raise unless `value` is a whole number of at least `least`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return
    raise _error(value, f"`{name}` must be a whole number >= {least}, got {value!r}. {remedy}")


def check_choice(name: str, value: Any, allowed: tuple[str, ...], remedy: str) -> None:
    """Raise unless `value` is one of the `allowed` names."""
    if value in allowed:
        return
    names = " or ".join(repr(one) for one in allowed)
    hint = did_you_mean(str(value), allowed)
    raise _error(value, f"`{name}` must be {names}, got {value!r}.{hint} {remedy}", right=str)


def _error(value: Any, sentence: str, right: type = numbers.Real) -> Exception:
    return ValueError(sentence) if isinstance(value, right) else TypeError(sentence)
