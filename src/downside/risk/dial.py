r"""The dial: a family of risk measures that one policy can serve, from cautious to bold."""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from downside._arrays import real
from downside.risk.base import AbstractSpectralRisk
from downside.risk.measures import CVaR, Mean, number
from downside.risk.parsing import as_risk

_DEFAULT_LEVEL = 0.1
_NAME = "dial"
_TEXT = re.compile(r"\s*dial\s*(?:\(([^(),]*),([^(),]*)\))?\s*", re.IGNORECASE)
_RANKS = (np.arange(2_000) + 0.5) / 2_000
_SLACK = 1e-9


class Member(NamedTuple):
    r"""A measure of the family: $\lambda\,\mathbb{E} + (1 - \lambda)\,\mathrm{CVaR}_\alpha$."""

    level: float
    """α: the worst share of outcomes that the CVaR looks at."""
    share: float
    """λ: the weight of the mean."""

    @property
    def ratio(self) -> float:
        r"""κ: the slope of h above its bend as a share of the slope below.

        $\kappa = \lambda / (\lambda + (1 - \lambda)/\alpha)$: 0 for a CVaR, 1 for the mean.
        """
        below = self.share + (1.0 - self.share) / self.level
        return self.share / below

    @property
    def risk(self) -> AbstractSpectralRisk:
        """The measure."""
        if self.share == 1.0 or self.level == 1.0:
            return Mean()
        if self.share == 0.0:
            return CVaR(self.level)
        return self.share * Mean() + (1.0 - self.share) * CVaR(self.level)


class Dial(eqx.Module):
    r"""All mixtures $\lambda\,\mathbb{E} + (1 - \lambda)\,\mathrm{CVaR}_\alpha$, for one agent.

    The mean is always one of them. `agent.at(measure)` chooses after training.
    """

    levels: tuple[float, float] = eqx.field(static=True)
    """The lowest and the highest level α of the CVaRs."""
    start: AbstractSpectralRisk = eqx.field(static=True)
    """The measure that an agent has until `agent.at` chooses another one."""

    def __init__(
        self,
        levels: Sequence[float] = (0.01, 1.0),
        start: AbstractSpectralRisk | str | None = None,
    ):
        try:
            low, high = (real(level, "levels") for level in levels)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"`levels` must be two numbers, the lowest and the highest level, got {levels!r}. "
                "For example levels=(0.01, 1.0)."
            ) from error
        if not 0.0 < low < high <= 1.0:
            raise ValueError(
                f"`levels` must be two numbers 0 < low < high <= 1, got {levels!r}. For example "
                "levels=(0.01, 1.0): from the worst 1% to the mean."
            )
        self.levels = (low, high)
        if start is None:
            start = Member(min(max(_DEFAULT_LEVEL, low), high), 0.5).risk
        self.start = as_risk(start)
        self.member(self.start)

    def member(self, risk: AbstractSpectralRisk | str) -> Member:
        """Where a measure is in the family; an error that names the nearest one if it is not."""
        risk = as_risk(risk)
        member = _as_member(risk)
        if member is None:
            reason = "which is no mixture of the mean and one CVaR"
        else:
            low, high = self.levels
            if member.share == 1.0:
                return Member(high, 1.0)
            if low - _SLACK <= member.level <= high + _SLACK:
                return Member(min(max(member.level, low), high), member.share)
            reason = f"whose level is not in [{number(low)}, {number(high)}]"
        raise ValueError(
            f"`risk` must be a measure of the dial, share*mean + (1 - share)*cvar(level), got "
            f"{risk}, {reason}. The nearest one is {self.nearest(risk)}; for {risk} itself train "
            "an agent with risk=..."
        )

    def __contains__(self, risk: AbstractSpectralRisk | str) -> bool:
        try:
            self.member(risk)
        except ValueError:
            return False
        return True

    def nearest(self, risk: AbstractSpectralRisk | str) -> AbstractSpectralRisk:
        r"""The measure of the family whose spectrum is nearest: the least
        $\int |\phi - \phi'|$, with level and share rounded to two digits."""
        spectrum: Any = as_risk(risk).spectrum(_RANKS)
        low, high = self.levels
        inside = (
            round(level, 1 - math.floor(math.log10(level))) for level in np.geomspace(low, high, 60)
        )
        levels = sorted({low, high, *(level for level in inside if low <= level <= high)})
        shares = np.linspace(0.0, 1.0, 101)[:, None]
        best, nearest = math.inf, Member(high, 1.0)
        for level in levels:
            tails = np.where(level >= _RANKS, 1.0 / level, 0.0)
            distances = np.abs(shares + (1.0 - shares) * tails - spectrum).mean(axis=1)
            i = int(distances.argmin())
            if distances[i] < best - _SLACK:
                best, nearest = float(distances[i]), Member(level, round(float(shares[i, 0]), 2))
        return nearest.risk

    def __str__(self) -> str:
        low, high = self.levels
        return f"{_NAME}({number(low)}, {number(high)})"


def as_dial(risk: Any) -> Dial | None:
    """The family, if `risk` is one or the text of one: "dial", or "dial(0.05, 1)" with the lowest
    and the highest level. None for anything else."""
    if isinstance(risk, Dial):
        return risk
    match = _TEXT.fullmatch(risk) if isinstance(risk, str) else None
    if match is None:
        return None
    if match[1] is None:
        return Dial()
    try:
        levels = float(match[1]), float(match[2])
    except ValueError as error:
        raise ValueError(
            f"`risk` must be 'dial' or 'dial(low, high)' with two levels, got {risk!r}. For "
            "example 'dial(0.01, 1)'."
        ) from error
    return Dial(levels)


def _as_member(risk: AbstractSpectralRisk) -> Member | None:
    """The level and the share of a mixture of the mean and one CVaR."""
    if not risk.is_finite_mixture:
        return None
    below = [(level, weight) for level, weight in risk.atoms if level < 1.0 and weight > _SLACK]
    if not below:
        return Member(1.0, 1.0)
    if len(below) > 1:
        return None
    ((level, weight),) = below
    return Member(level, 0.0 if weight > 1.0 - _SLACK else 1.0 - weight)
