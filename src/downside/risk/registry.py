"""Which risk measures there are, by name: for `parse`, the command line and the contract tests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from downside.risk.base import AbstractSpectralRisk

_Measure = TypeVar("_Measure", bound=type[AbstractSpectralRisk])


@dataclass(frozen=True, kw_only=True)
class RiskEntry:
    """A named family of risk measures."""

    name: str
    """The name in `parse`, as in `0.5*name(...)`."""
    aliases: tuple[str, ...]
    """Other names that mean the same."""
    factory: type[AbstractSpectralRisk]
    """The class; its arguments are the numbers in the brackets."""
    parameters: tuple[tuple[str, str], ...]
    """Each parameter and its allowed range."""
    formula: str
    """The spectrum, in one line."""
    example: str
    """An expression that `parse` reads."""

    @property
    def description(self) -> str:
        """The first line of the class's docstring."""
        return (self.factory.__doc__ or "").strip().splitlines()[0]


_ENTRIES: dict[str, RiskEntry] = {}


def register(
    name: str,
    *,
    aliases: tuple[str, ...] = (),
    parameters: tuple[tuple[str, str], ...] = (),
    formula: str,
    example: str,
) -> Callable[[_Measure], _Measure]:
    """Gives a risk measure a name, so that `parse` reads it and `downside risks` lists it.

    A new spectrum is one file: a subclass of `AbstractSpectralRisk` under this decorator.
    """
    for each in (name, *aliases):
        if not each.isidentifier():
            raise ValueError(f"`name` must be a Python identifier, got {each!r}.")
        if each.lower() in names():
            raise ValueError(f"`name` {each!r} is taken already; choose another one.")

    def decorate(factory: _Measure) -> _Measure:
        _ENTRIES[name.lower()] = RiskEntry(
            name=name.lower(),
            aliases=tuple(alias.lower() for alias in aliases),
            factory=factory,
            parameters=parameters,
            formula=formula,
            example=example,
        )
        return factory

    return decorate


def entries() -> tuple[RiskEntry, ...]:
    """All registered measures, in the order of their registration."""
    return tuple(_ENTRIES.values())


def names() -> dict[str, RiskEntry]:
    """Every name and alias, with what it stands for."""
    return {name: entry for entry in entries() for name in (entry.name, *entry.aliases)}
