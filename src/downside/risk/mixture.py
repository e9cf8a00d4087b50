"""A spectral risk measure as a few arrays of fixed shape: what a compiled program needs of it."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from downside.risk.base import AbstractSpectralRisk
from downside.risk.utility import Utility

_CELLS = 64
"""Into how many CVaRs a spectrum is cut that is not a finite sum of them."""


class CVaRMixture(eqx.Module):
    r"""$\rho \approx \sum_i m_i\, \mathrm{CVaR}_{\alpha_i} + \ell\, \mathbb{E}$ as data.

    A sum of CVaRs is represented exactly. Any other spectrum is cut into cells of equal width;
    $\alpha_i$ is the middle of a cell, where its quantile is taken. Two measures with as many
    levels differ in nothing but numbers, so one compiled program serves both, and a batch of
    measures can be mapped over.
    """

    levels: Float[Array, " k"]
    """α: the ranks whose quantiles are the knots of h, in increasing order."""
    masses: Float[Array, " k"]
    """m: the weight of each CVaR."""
    drops: Float[Array, " k"]
    """m / α (of the whole cell): how much slope h loses at each knot."""
    linear: Float[Array, ""]
    """ℓ: the weight of the plain mean."""

    @classmethod
    def of(cls, risk: AbstractSpectralRisk, cells: int = _CELLS) -> "CVaRMixture":
        """The table of a measure."""
        below = [(level, weight) for level, weight in risk.atoms if level < 1.0]
        levels = np.array([level for level, _ in below])
        masses = np.array([weight for _, weight in below])
        drops = masses / levels
        if not risk.is_finite_mixture:
            edges = np.arange(cells + 1) / cells
            mass, drop = risk._continuous_part(edges, np)  # pyright: ignore[reportArgumentType]
            levels = np.concatenate([levels, (edges[1:] + edges[:-1]) / 2])
            masses = np.concatenate([masses, np.asarray(mass)])
            drops = np.concatenate([drops, np.asarray(drop)])
        order = np.argsort(levels, kind="stable")
        parts = (jnp.asarray(part[order], dtype=float) for part in (levels, masses, drops))
        return cls(*parts, linear=jnp.asarray(1.0 - masses.sum(), dtype=float))

    def padded(self, count: int) -> "CVaRMixture":
        """The same measure with `count` levels; the additional ones weigh nothing."""
        missing = count - self.levels.shape[0]
        if missing < 0:
            raise ValueError(
                f"`count` must be at least {self.levels.shape[0]}, the levels there are; got "
                f"{count}."
            )
        ends = jnp.pad(self.levels, (0, missing), constant_values=1.0)
        masses, drops = (jnp.pad(part, (0, missing)) for part in (self.masses, self.drops))
        return type(self)(ends, masses, drops, self.linear)

    def quantiles(self, ordered: Float[Array, " n"]) -> Float[Array, " k"]:
        """The knots: for each level α the return that the share α lies below (appendix G).

        Of returns in increasing order, the one with the index floor(α n).
        """
        count = ordered.shape[0]
        # A level such as 0.3 of ten returns is meant to be a whole number of them.
        index = jnp.floor(self.levels * count + 1e-4).astype(jnp.int32)
        return ordered[jnp.minimum(index, count - 1)]

    def utility(self, knots: Float[Array, " k"]) -> Utility:
        r"""H with its bends at `knots`: $\sum_i m_i b_i + d_i (z - b_i)^- + \ell z$."""
        offset = (self.masses * knots).sum()
        return Utility(knots, self.drops, linear=self.linear, offset=offset)

    def value(self, ordered: Float[Array, " n"]) -> Float[Array, ""]:
        """The measure's value of equally likely returns in increasing order: E[h] for their h."""
        knots = self.quantiles(ordered)
        shortfall = jnp.minimum(ordered - knots[:, None], 0.0).mean(axis=-1)
        return (
            (self.masses * knots).sum()
            + (self.drops * shortfall).sum()
            + self.linear * ordered.mean()
        )

    def standard_error(self, ordered: Float[Array, " n"]) -> Float[Array, ""]:
        """Of `value`: to first order it varies as the mean of h over the returns does."""
        worth = self.utility(self.quantiles(ordered))(ordered)
        return worth.std() / ordered.shape[0] ** 0.5
