"""The named spectral risk measures of the paper."""

import math
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import numpy as np

from downside._arrays import real
from downside._typing import Array
from downside.risk.base import AbstractSpectralRisk, join
from downside.risk.registry import register


def number(value: float) -> str:
    """The shortest text that reads back as the same float: 0.2, 1, 1e-07."""
    text = repr(float(value))
    return text.removesuffix(".0")


def _as_real(name: str) -> Any:
    return eqx.field(static=True, converter=lambda value: real(value, name))


@register("mean", aliases=("expectation", "e"), formula="φ(u) = 1", example="mean")
class Mean(AbstractSpectralRisk):
    r"""The expected return: no aversion to risk.

    $\phi(u) = 1$.
    """

    def _spectrum(self, u: Array, xp: Any) -> Array:
        return xp.ones_like(u)

    def _cumulative(self, u: Array, xp: Any) -> Array:  # noqa: ARG002
        return u

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        """All of it at level 1."""
        return ((1.0, 1.0),)

    @property
    def support(self) -> float:
        """Every outcome matters."""
        return 1.0

    def __repr__(self) -> str:
        return "Mean()"

    def __str__(self) -> str:
        return "mean"


@register(
    "cvar",
    aliases=("es", "avar", "expected_shortfall"),
    parameters=(("alpha", "in (0, 1]"),),
    formula="φ(u) = 1/α for u ≤ α, else 0",
    example="cvar(0.2)",
)
class CVaR(AbstractSpectralRisk):
    r"""Mean of the worst `alpha` share of returns.

    $\phi(u) = \frac1\alpha 1\{u \le \alpha\}$.
    """

    alpha: float = _as_real("alpha")
    """The worst share, in (0, 1]: 0.05 for the worst 5%, 1 for the mean."""

    def __check_init__(self):
        if not 0.0 < self.alpha <= 1.0:
            raise ValueError(
                f"`alpha` must be in (0, 1], got {self.alpha}. For the worst 5% pass alpha=0.05."
            )

    def _spectrum(self, u: Array, xp: Any) -> Array:
        return xp.where(u <= self.alpha, 1.0 / self.alpha, 0.0).astype(u.dtype)

    def _cumulative(self, u: Array, xp: Any) -> Array:
        return xp.minimum(u / self.alpha, 1.0)

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        """All of it at level `alpha`."""
        return ((self.alpha, 1.0),)

    @property
    def support(self) -> float:
        """The worst `alpha` of outcomes."""
        return self.alpha

    def __repr__(self) -> str:
        return f"CVaR({self.alpha!r})"

    def __str__(self) -> str:
        return f"cvar({number(self.alpha)})"


class WeightedCVaR(AbstractSpectralRisk):
    r"""A weighted sum of CVaRs at several levels (WSCVaR in the paper).

    $\phi(u) = \sum_i \frac{w_i}{\alpha_i} 1\{u \le \alpha_i\}$ with `levels` $\alpha_i$ and
    `weights` $w_i$. Levels are kept in increasing order; equal ones are joined.
    """

    levels: tuple[float, ...] = eqx.field(static=True)
    """The levels, each in (0, 1]; 1 is the plain mean."""
    weights: tuple[float, ...] = eqx.field(static=True)
    """The weight of each level: non-negative, 1 in total."""

    def __init__(self, levels: Iterable[float], weights: Iterable[float]):
        levels = _numbers(levels, "levels")
        weights = _numbers(weights, "weights")
        if len(levels) != len(weights) or not levels:
            raise ValueError(
                f"`levels` and `weights` must have the same length, at least 1, got {len(levels)} "
                f"and {len(weights)}."
            )
        for level in levels:
            if not 0.0 < level <= 1.0:
                raise ValueError(f"`levels` must be in (0, 1], got {level}.")
        check_weights(weights)
        joined = join(zip(levels, weights, strict=True))
        self.levels = tuple(sorted(level for level in joined if joined[level] > 0))
        self.weights = tuple(joined[level] for level in self.levels)

    def _spectrum(self, u: Array, xp: Any) -> Array:
        height = xp.zeros_like(u)
        for level, weight in self.atoms:
            height = height + xp.where(u <= level, weight / level, 0.0)
        return height

    def _cumulative(self, u: Array, xp: Any) -> Array:
        area = xp.zeros_like(u)
        for level, weight in self.atoms:
            area = area + weight * xp.minimum(u / level, 1.0)
        return area

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        """The levels with their weights."""
        return tuple(zip(self.levels, self.weights, strict=True))

    @property
    def support(self) -> float:
        """The largest level."""
        return self.levels[-1]

    def __repr__(self) -> str:
        return f"WeightedCVaR({list(self.levels)!r}, {list(self.weights)!r})"

    def __str__(self) -> str:
        if len(self.levels) == 1:
            return f"cvar({number(self.levels[0])})"
        return " + ".join(f"{number(weight)}*cvar({number(level)})" for level, weight in self.atoms)


@register(
    "exponential",
    aliases=("exp", "erm"),
    parameters=(("lam", "> 0"),),
    formula="φ(u) = λ exp(-λu) / (1 - exp(-λ))",
    example="exponential(4)",
)
class Exponential(AbstractSpectralRisk):
    r"""Weights that fall exponentially from worst to best.

    $\phi(u) = \lambda e^{-\lambda u} / (1 - e^{-\lambda})$ with `lam` $\lambda$; ERM in the paper.
    """

    lam: float = _as_real("lam")
    """The aversion to risk, above 0: close to 0 is the mean, 4 strong, 12 extreme."""

    def __check_init__(self):
        if not (0.0 < self.lam < math.inf):
            raise ValueError(
                f"`lam` must be a finite number above 0, got {self.lam}. Without aversion to risk "
                "use Mean()."
            )

    def _spectrum(self, u: Array, xp: Any) -> Array:
        return xp.exp(-self.lam * u) * (self.lam / -math.expm1(-self.lam))

    def _cumulative(self, u: Array, xp: Any) -> Array:
        return xp.expm1(-self.lam * u) / math.expm1(-self.lam)

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        """The mean's share; the rest is spread over all levels."""
        at_one = self.spectrum_at_one
        return ((1.0, at_one),) if at_one > 0 else ()

    @property
    def support(self) -> float:
        """Every outcome matters."""
        return 1.0

    def __repr__(self) -> str:
        return f"Exponential({self.lam!r})"

    def __str__(self) -> str:
        return f"exponential({number(self.lam)})"


@register(
    "dual_power",
    aliases=("dual", "dprm"),
    parameters=(("nu", ">= 1"),),
    formula="φ(u) = ν (1-u)^(ν-1)",
    example="dual_power(2)",
)
class DualPower(AbstractSpectralRisk):
    r"""The expected worst of `nu` independent tries.

    $\phi(u) = \nu (1 - u)^{\nu - 1}$; DPRM in the paper. For a whole $\nu$,
    $\rho(Z) = \mathbb{E}[\min(Z_1, \dots, Z_\nu)]$ with independent copies of Z.
    """

    nu: float = _as_real("nu")
    """The number of tries, at least 1: 1 is the mean, 2 the mean of the worse of two."""

    def __check_init__(self):
        if not (1.0 <= self.nu < math.inf):
            raise ValueError(
                f"`nu` must be a finite number of at least 1, got {self.nu}. Below 1 the spectrum "
                "would increase, i.e. love risk."
            )

    def _spectrum(self, u: Array, xp: Any) -> Array:
        if self.nu == 1.0:
            return xp.ones_like(u)
        return self.nu * (1.0 - u) ** (self.nu - 1.0)

    def _cumulative(self, u: Array, xp: Any) -> Array:  # noqa: ARG002
        return 1.0 - (1.0 - u) ** self.nu

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        """None, unless `nu` is 1: the best outcome does not count at all."""
        return ((1.0, 1.0),) if self.nu == 1.0 else ()

    @property
    def support(self) -> float:
        """Every outcome matters, but for the very best."""
        return 1.0

    def __repr__(self) -> str:
        return f"DualPower({self.nu!r})"

    def __str__(self) -> str:
        return f"dual_power({number(self.nu)})"


def _numbers(values: Iterable[float], name: str) -> list[float]:
    if np.ndim(values) != 1:  # pyright: ignore[reportArgumentType]
        raise TypeError(f"`{name}` must be a list of numbers, got {values!r}.")
    return [real(value, name) for value in values]


def check_weights(weights: list[float]) -> None:
    """Raises unless the weights of a sum are non-negative and add up to 1."""
    for weight in weights:
        if not 0.0 <= weight < math.inf:
            raise ValueError(f"`weights` must be non-negative, got {weight}.")
    if abs(sum(weights) - 1.0) > 1e-9:
        raise ValueError(f"`weights` must sum to 1, got a sum of {sum(weights):.10g}.")
