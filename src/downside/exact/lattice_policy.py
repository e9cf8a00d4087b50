"""Policies on a lattice of accumulated rewards, and the returns that they achieve."""

from collections.abc import Callable
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import Float, Int

from downside.exact.lattice import Lattice, Windows
from downside.exact.recursion import Table
from downside.risk import AbstractSpectralRisk, Distribution

Choice = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""The actions at a time, for states and lattice points."""

_KNOTS = 500
"""Knots of h for a spectrum that is not a finite sum of CVaRs."""


@final
class LatticePolicy:
    """A policy of a finite problem: one action for each time, state and lattice point.

    Call it with a time, a state and the discounted reward so far: the nearest point answers. Where
    h is a line, and after the lattice is cut, it takes the action that is best for the mean.
    """

    def __init__(self, lattice: Lattice, windows: Windows, tables: tuple[Table, ...]):
        self._lattice, self._windows, self._tables = lattice, windows, tables

    @property
    def lattice(self) -> Lattice:
        """The lattice that it is made for."""
        return self._lattice

    def __call__(self, time: int, state: int, accumulated: float) -> int:
        """The action at the lattice point nearest to `accumulated`."""
        horizon, mdp = self._lattice.mdp.horizon, self._lattice.mdp
        if time < 0 or (horizon is not None and time >= horizon):
            allowed = ">= 0" if horizon is None else f"in [0, {horizon - 1}]"
            raise ValueError(
                f"`time` must be {allowed}, the decisions of this problem, got {time}."
            )
        if not 0 <= state < mdp.num_states or mdp.terminal[state]:
            raise ValueError(
                f"`state` must be one in [0, {mdp.num_states - 1}] that is not terminal, got "
                f"{state}."
            )
        point = np.rint(accumulated / self._lattice.width)
        return int(self.actions(time, np.array([state]), np.array([point]).astype(np.int64))[0])

    def actions(
        self, time: int, states: Int[np.ndarray, " n"], points: Int[np.ndarray, " n"]
    ) -> Int[np.ndarray, " n"]:
        """The actions at many points of one time."""
        rest = self._lattice.rest
        neutral = rest.greedy[rest.left(time)][states]
        if time >= len(self._tables):
            return neutral
        first, count = self._windows.first[time, states], self._windows.sizes[time, states]
        inside = (points >= first) & (points < first + count)
        table, chosen = self._tables[time], neutral.copy()
        places = table.offset[states[inside]] + points[inside] - first[inside]
        chosen[inside] = table.actions[places]
        return chosen

    def __repr__(self) -> str:
        return (
            f"LatticePolicy({len(self._tables)} decisions, {self._windows.sizes.sum():,} points "
            f"of width {self._lattice.width:.3g})"
        )


class AchievedReturns(NamedTuple):
    """The returns of a policy: groups of paths, with the mean and the variance of each group."""

    values: Float[np.ndarray, " n"]
    """The mean return of the paths in each group, in increasing order."""
    probabilities: Float[np.ndarray, " n"]
    """How likely each group is."""
    variances: Float[np.ndarray, " n"]
    """The variance of the returns within each group."""

    def distribution(self) -> Distribution:
        """Every group at its mean."""
        return Distribution(self.values, self.probabilities / self.probabilities.sum())

    def value(self, risk: AbstractSpectralRisk) -> float:
        r"""What the measure is at least.

        $\rho(G) \ge \mathbb{E}[h(G)]$ for every h of the measure's family, here the best one for
        the groups at their means. A group with mean m and variance v has
        $\mathbb{E}[\min(G - b, 0)] \ge \frac{1}{2} (m - b - \sqrt{v + (m - b)^2})$ at each knot b
        (Scarf 1958).
        """
        returns = self.distribution()
        if not risk.is_finite_mixture and self.values.size > _KNOTS:
            ranks = (np.arange(_KNOTS) + 0.5) / _KNOTS
            at = np.searchsorted(np.asarray(returns.cumulative), ranks)
            utility = risk.utility(self.values[np.minimum(at, self.values.size - 1)])
        else:
            utility = risk.utility(returns)
        chances = np.asarray(returns.probabilities, dtype=float)
        total = float(utility.offset) + float(utility.linear) * float(chances @ self.values)
        for knot, drop in zip(np.asarray(utility.knots), np.asarray(utility.drops), strict=True):
            above = self.values - knot
            total += drop * float(chances @ (above - np.sqrt(self.variances + above**2))) / 2
        return total


def asked(policy: Callable[[int, int, float], Any], lattice: Lattice) -> Choice:
    """Any function of (time, state, accumulated reward) as a choice at lattice points."""
    mask = lattice.mdp.action_mask

    def choose(time: int, states: np.ndarray, points: np.ndarray) -> np.ndarray:
        actions = np.empty(states.size, dtype=np.int64)
        for i, (state, point) in enumerate(zip(states.tolist(), points.tolist(), strict=True)):
            action = policy(time, state, point * lattice.width)
            if action not in range(mask.shape[1]) or not mask[state, action]:
                raise ValueError(
                    f"`policy` must give an action that is allowed, got {action!r} at time {time} "
                    f"in state {state}; there {np.flatnonzero(mask[state])} are."
                )
            actions[i] = action
        return actions

    return choose
