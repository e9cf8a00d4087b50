"""A finite problem on a lattice, as the outer search and the explanation see it."""

from typing import final

import numpy as np
from jaxtyping import Float

from downside.exact.forward import Group, achieved
from downside.exact.lattice import Lattice
from downside.exact.lattice_policy import AchievedReturns, Choice, LatticePolicy, asked
from downside.exact.mdp import FiniteMDP
from downside.exact.node_policy import Rule
from downside.exact.problem import AbstractFiniteProblem, Solution
from downside.exact.recursion import backward, start_value
from downside.risk import Distribution, Utility

_REST = 1e-4
"""Simulated episodes of an endless problem stop where the rest is this share of a cell."""


@final
class LatticeProblem(AbstractFiniteProblem):
    """A finite problem whose accumulated rewards are rounded to a lattice to find a policy.

    `solve` is the optimum of the lattice (`recursion.py`). `achieved` is what a policy earns in the
    problem as it is: only which paths share a decision depends on the lattice. `simulate` looks
    decisions up by the accumulated reward as it is.

    Arguments:
        lattice: the lattice.
        follow: how many times finer than the lattice paths are kept apart to evaluate a policy.
    """

    def __init__(self, lattice: Lattice, *, follow: int = 4):
        self._lattice, self._follow = lattice, follow

    @property
    def mdp(self) -> FiniteMDP:
        """The problem as it was given."""
        return self._lattice.mdp

    @property
    def lattice(self) -> Lattice:
        """The lattice."""
        return self._lattice

    @property
    def horizon(self) -> int:
        """The number of decisions that are looked at."""
        horizon = self._lattice.mdp.horizon
        return self._lattice.cut if horizon is None else min(horizon, self._simulated)

    @property
    def _simulated(self) -> int:
        """After so many decisions nothing that matters can come."""
        lattice = self._lattice
        finest = _REST * lattice.width
        most = float(np.maximum(np.abs(lattice.rest.low), np.abs(lattice.rest.high)).max())
        if lattice.mdp.gamma == 1.0 or most <= finest:
            return lattice.mdp.horizon or lattice.cut
        steps = int(np.ceil(np.log(finest / most) / np.log(lattice.mdp.gamma)))
        steps = max(steps, lattice.cut)
        return steps if lattice.mdp.horizon is None else min(steps, lattice.mdp.horizon)

    @property
    def exact(self) -> bool:
        """Never: paths are put together."""
        return False

    @property
    def return_error(self) -> float:
        """The width of the cells in which paths are put together."""
        return self._lattice.width

    @property
    def return_range(self) -> tuple[float, float]:
        """Where returns of sensible policies lie."""
        lattice = self._lattice
        low, high = lattice.return_range
        far = 8 * lattice.deviation
        return max(low, lattice.best_mean - far), min(high, lattice.best_mean + far)

    def solve(self, utility: Utility) -> Solution:
        """The optimum of the lattice for a fixed h. Of equal actions the first is taken."""
        windows = self._lattice.windows(utility)
        result = backward(self._lattice, utility, windows, keep_actions=True)
        policy = LatticePolicy(self._lattice, windows, result.tables)
        return Solution(start_value(self._lattice, utility, windows, result), policy)

    def achieved(
        self, policy: LatticePolicy | Rule, *, follow: int | None = None
    ) -> AchievedReturns:
        """What a policy earns, with groups of paths `follow` times finer than the lattice."""
        lattice = self._lattice
        states = np.flatnonzero(lattice.start)
        nothing = np.zeros(states.size)
        groups = Group(states, lattice.start[states], nothing, nothing)
        width = lattice.width / (self._follow if follow is None else follow)
        return achieved(lattice, 0, groups, self._choice(policy), width=width)

    def returns(self, policy: LatticePolicy | Rule) -> Distribution:
        """The distribution of the discounted return of a policy, groups of paths at their means."""
        return self.achieved(policy).distribution()

    def returns_after(
        self, policy: LatticePolicy | Rule, time: int, state: int, accumulated: float
    ) -> dict[int, Distribution]:
        """For each action that is allowed: the return to come, discounted to `time`, of taking it
        and following the policy from then on."""
        self._check_time(time)
        mdp, discount = self.mdp, self.mdp.gamma**time
        after = {}
        for action in np.flatnonzero(mdp.action_mask[state]):
            chances = mdp.probabilities[state, action]
            (outcome,) = np.nonzero(chances)
            at = state, action, outcome
            groups = Group(
                states=np.where(mdp.ends[at], mdp.num_states, mdp.next_states[at]),
                mass=chances[outcome],
                money=accumulated + discount * mdp.rewards[at],
                variance=np.zeros(outcome.size),
            )
            if mdp.horizon is not None and time + 1 >= mdp.horizon:
                groups = groups._replace(states=np.full_like(groups.states, mdp.num_states))
            whole = achieved(self._lattice, time + 1, groups, self._choice(policy))
            after[int(action)] = whole.distribution().affine(-accumulated / discount, 1 / discount)
        return after

    def node(self, time: int, state: int, accumulated: float) -> tuple[int, int, int]:
        """What the policy tells apart: time, state and lattice point."""
        return time, state, int(np.rint(accumulated / self._lattice.width))

    def simulate(
        self, policy: LatticePolicy | Rule, episodes: int, seed: int
    ) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of so many episodes, decisions by the reward as it is."""
        rng = np.random.default_rng(seed)
        mdp, choose = self.mdp, self._choice(policy)
        chances = np.cumsum(mdp.probabilities, axis=2)
        last = np.count_nonzero(mdp.probabilities, axis=2) - 1  # 1 can be missed by rounding
        states = rng.choice(mdp.num_states, size=episodes, p=mdp.start)
        total, running = np.zeros(episodes), np.flatnonzero(~mdp.terminal[states])
        for time in range(self._simulated):
            x = states[running]
            points = np.rint(total[running] / self._lattice.width).astype(np.int64)
            action = choose(time, x, points)
            drawn = (rng.random(running.size)[:, None] >= chances[x, action]).sum(axis=1)
            at = x, action, np.minimum(drawn, last[x, action])
            total[running] += mdp.gamma**time * mdp.rewards[at]
            states[running] = mdp.next_states[at]
            running = running[~mdp.ends[at]]
            if not running.size:
                break
        return total

    def _choice(self, policy: LatticePolicy | Rule) -> Choice:
        native = isinstance(policy, LatticePolicy) and policy.lattice is self._lattice
        return policy.actions if native else asked(policy, self._lattice)  # pyright: ignore
