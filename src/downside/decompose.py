r"""Theorem 2: the risk measure that a policy optimises at a later state.

At a state with accumulated reward s and discount so far c, the return of the whole episode is
$s + c\, G_t$ with $G_t$ the return still to come. The worst share of the episode's outcomes is
another share of the outcomes from here, with another weight: after a gain the bad tail is far away,
after a loss it is near.
"""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from downside._arrays import as_floats, check_finite, is_concrete, namespace, rounding_error
from downside._typing import Array, ArrayLike
from downside.risk import AbstractSpectralRisk, Distribution, WeightedCVaR, as_distribution, as_risk


class ConditionalRisk(eqx.Module):
    r"""The risk measure at a later state: $\sum_i$ `weights[i]` $\mathrm{CVaR}$(`levels[i]`).

    Leading axes are a batch of later states; index it like an array to pick one.
    """

    start_levels: Float[Array, " k"]
    r"""$\alpha_i$: the levels of the measure seen from the start."""
    start_weights: Float[Array, " k"]
    r"""$\mu_i$: their weights."""
    thresholds: Float[Array, " k"]
    r"""$\lambda_{\alpha_i}$: the episode's return that bounds the worst $\alpha_i$ of outcomes."""
    xi_per_level: Float[Array, "*batch k"]
    r"""$\xi_t^{\alpha_i}$: how much likelier than average the worst $\alpha_i$ is from here."""
    xi: Float[Array, "*batch"]
    r"""$\xi = \sum_i \mu_i \xi_t^{\alpha_i}$: how much this state weighs in the episode's value."""
    levels: Float[Array, "*batch k"]
    r"""$\alpha_i \xi_t^{\alpha_i}$: the worst share that matters from here on."""
    weights: Float[Array, "*batch k"]
    r"""$\mu_i \xi_t^{\alpha_i} / \xi$: how much each of these levels counts."""
    value: Float[Array, "*batch"]
    r"""$\rho_\xi(G_t)$: the conditional risk measure of the return still to come."""

    def __getitem__(self, index: Any) -> "ConditionalRisk":
        if np.ndim(self.xi) == 0:
            raise IndexError("This is the risk measure at one state; there is nothing to index.")
        picked = {
            name: getattr(self, name)[index]
            for name in ("xi_per_level", "xi", "levels", "weights", "value")
        }
        return ConditionalRisk(self.start_levels, self.start_weights, self.thresholds, **picked)

    @property
    def risk(self) -> WeightedCVaR | None:
        """The measure, for one state; None where no outcome from here is in any tail.

        There (xi is 0) every continuation is equally good for the episode's risk.
        """
        if np.ndim(self.xi) != 0:
            raise ValueError(
                f"`risk` is for one state, got a batch of shape {np.shape(self.xi)}; index it "
                "first."
            )
        if not float(self.xi) > 0:
            return None
        weights = np.asarray(self.weights, dtype=float)
        levels = np.asarray(self.levels, dtype=float)
        kept = (weights > 0) & (levels > 0)
        return WeightedCVaR(levels[kept], weights[kept] / weights[kept].sum())


def conditional_risk(
    risk: AbstractSpectralRisk | str,
    start: Distribution | ArrayLike,
    later: Distribution | ArrayLike,
    s: ArrayLike = 0.0,
    c: ArrayLike = 1.0,
) -> ConditionalRisk:
    r"""The risk measure that is being optimised at a later state (Theorem 2, `alphaxi4`).

    $\alpha\, \xi_t^\alpha = F_{G_t}(y) - p_{G_t}(y)\, \frac{F_G(\lambda_\alpha) - \alpha}
    {p_G(\lambda_\alpha)}$ with $y = (\lambda_\alpha - s) / c$ and $\lambda_\alpha =
    F_G^{-1}(\alpha)$, where $G$ is `start` and $G_t$ is `later`. Then $\rho(G) =
    \mathbb{E}[\xi\, (s + c\, \rho_\xi(G_t))]$ over the later states.

    Arguments:
        risk: the measure at the start.
        start: the distribution of the episode's return, seen from the start. An array is read as a
            quantile representation (appendix G); pass a `Distribution` for values with
            probabilities (section 3). They differ where a level falls on a jump.
        later: the distribution of the return still to come at the later state; leading axes are
            a batch of states.
        s: the discounted reward accumulated on the way there, one number for each later state.
        c: the discount so far, gamma to the power of the number of steps.

    A continuous spectrum is split at the cumulative probabilities of `start`, which is exact:
    between two of them everything above is linear in the level (`AbstractSpectralRisk.mixture`).
    Values that differ by rounding alone count as equal.

    Differs: level 1 keeps $\xi = 1$, as it must (appendix F), even where learned distributions
    disagree about the largest return. Where every $\xi_t^\alpha$ is 0, the weights stay what they
    were and the value is the worst return, the limit of CVaR at level 0; it has no weight.
    """
    risk = as_risk(risk)
    start, later = as_distribution(start), as_distribution(later)
    xp = namespace(start.values, later.values, s, c)
    s, c = as_floats(s, "s", xp), as_floats(c, "c", xp)
    check_finite(s, "s")
    check_finite(c, "c")
    if is_concrete(c) and not np.all(np.asarray(c) > 0):
        raise ValueError(
            f"`c` must be positive, got {np.min(np.asarray(c))}. It is the discount so far, "
            "gamma ** t, and 1 at the start."
        )
    if start.values.ndim != 1:
        raise ValueError(
            f"`start` must be one distribution, got a batch of shape {start.values.shape[:-1]}."
        )

    edges = xp.concatenate([xp.zeros_like(start.values[:1]), start.cumulative])
    alpha, mu = risk.mixture(edges)
    alpha = xp.asarray(alpha, dtype=start.values.dtype)
    mu = xp.asarray(mu, dtype=start.values.dtype)
    thresholds = start.quantile(alpha)
    # One tolerance for equality, at the start and later: s + c G_t cancels up to |s|.
    rounding = rounding_error(start.values.dtype)
    slack = rounding * (xp.abs(thresholds) + start.typical + xp.abs(s)[..., None])
    below, atom = _below_and_at(start, thresholds, slack)
    # How much of the atom at the threshold belongs to the worst share alpha. The sum below is
    # equation alphaxi4 without its difference of two numbers of size one.
    part = alpha - below
    part = xp.where(part < rounding * alpha, 0.0, part) / xp.where(atom > 0, atom, 1.0)
    later_below, later_atom = _below_and_at(later.affine(s, c), thresholds, slack)
    level = later_below + later_atom * xp.clip(part, 0.0, 1.0)
    level = xp.where(alpha >= 1.0, 1.0, xp.clip(level, 0.0, 1.0))
    xi_per_level = xp.where(alpha > 0, level / xp.where(alpha > 0, alpha, 1.0), 0.0)
    xi = (mu * xi_per_level).sum(axis=-1)
    relevant = xi[..., None] > 0
    weights = xp.where(relevant, mu * xi_per_level / xp.where(relevant, xi[..., None], 1.0), mu)
    value = (weights * later.tail_mean(level)).sum(axis=-1)
    return ConditionalRisk(alpha, mu, thresholds, xi_per_level, xi, level, weights, value)


def _below_and_at(
    distribution: Distribution, points: Array, slack: Array
) -> tuple[Float[Array, "*batch k"], Float[Array, "*batch k"]]:
    """P(Z < z) and P(Z = z), where closer than `slack` is equal."""
    at = distribution.pmf(points, slack=slack)
    return distribution.cdf(points, slack=slack) - at, at
