"""How fine a lattice a finite problem needs, and how fine its limits allow."""

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from downside.exact.lattice import Lattice
from downside.exact.mdp import FiniteMDP
from downside.exact.transitions import TooLargeError
from downside.risk import Utility

SHARE = 0.005
"""By default bounds are to be this share of the deviation of returns apart."""
_PER_POINT = 2e-9
"""Seconds for one point and outcome."""
_PER_OUTCOME, _PER_TIME = 2e-6, 5e-4
"""Seconds for one time and outcome, and for one time, whatever the number of points."""
_RECURSIONS = 8
"""A plan takes at least so many recursions."""
_REACHES = (6.0, 12.0, 24.0, math.inf)


class Limits(NamedTuple):
    """When to stop refining."""

    tolerance: float | None = None
    """How far apart the bounds may stay; None is half a percent of the deviation of returns."""
    seconds: float = 40.0
    """About how long to work."""
    memory: float = 2.0
    """GiB for the tables of a recursion."""


def check_horizon(mdp: FiniteMDP, limits: Limits) -> None:
    """Refuses at once an undiscounted problem whose decisions are too many to be gone through."""
    most = int(2 * limits.seconds / (_RECURSIONS * _PER_TIME))
    if mdp.gamma == 1.0 and mdp.horizon is not None and mdp.horizon > most:
        raise TooLargeError(
            f"`mdp` is too large for the planner: {mdp.horizon:,} decisions count (`horizon` "
            f"{mdp.horizon}, `gamma` 1.0); at most {most:,} can be gone through in "
            f"{limits.seconds:g} s. Use a smaller `horizon`, or raise `time_limit`."
        )


class Refinement:
    """Lattices of one problem, and how fine they can be within the limits."""

    def __init__(self, mdp: FiniteMDP, limits: Limits):
        self.limits, self.begin = limits, time.perf_counter()
        self.base = Lattice(mdp, 1.0)
        low, high = self.base.return_range
        self.range = max(high - low, 1e-12 * max(abs(high), abs(low), 1e-300))
        spread = self.base.deviation or self.range
        wanted = SHARE * spread if limits.tolerance is None else limits.tolerance
        self.tolerance = max(wanted, 10 * self.base.same(self.range, 6.0).rounding)
        self.reach = _REACHES[0]
        self.common = _common_step(mdp) if mdp.gamma == 1.0 else None

    def check(self) -> None:
        """Refuses at once what would take far longer than the limit."""
        lattice = self.base.same(self.range / 256, self.reach)
        outcomes = lattice.lists.probabilities.size + lattice.lists.of_pair.size
        once = lattice.cut * (outcomes * _PER_OUTCOME + _PER_TIME)
        if _RECURSIONS * once > 2 * self.limits.seconds:
            raise TooLargeError(self.sizes("that many cannot be gone through"))

    @property
    def deadline(self) -> float:
        """When to stop."""
        return self.begin + self.limits.seconds

    def lattice(self, width: float) -> Lattice:
        """A lattice of the problem."""
        return self.base.same(width, self.reach)

    @property
    def coarse(self) -> float:
        """A width for searches, and to begin with."""
        return self.fitting(max(self.base.deviation, self.range / 256) / 24)

    def cost(self, lattice: Lattice, utility: Utility, *, everywhere: bool) -> tuple[float, float]:
        """Points times outcomes of one recursion, and seconds beyond those that any width takes;
        infinite if it does not fit."""
        windows = lattice.windows(utility, everywhere=everywhere)
        points, work = lattice.size(windows)
        widest = 8.0 * float((windows.sizes.max(axis=1) * (lattice.mdp.num_states + 1)).max())
        if 4 * widest + points > self.limits.memory * 2**30:
            return math.inf, math.inf
        return float(work), work * _PER_POINT

    def width_for_work(self, utility: Utility, work: float, *, everywhere: bool) -> float:
        """The width at which a recursion takes about so many points times outcomes."""
        width = self.range / 64
        for _ in range(6):
            lattice = self.lattice(width)
            now, _ = self.cost(lattice, utility, everywhere=everywhere)
            if not math.isfinite(now):
                width *= 4
                continue
            ratio = work / max(now, 1.0)
            if 0.7 < ratio < 1.4:
                break
            width = max(width / min(max(ratio, 1e-3), 1e3), self.tolerance / 50)
        return self.fitting(width)

    def width_for(self, levels: Sequence[float], weights: Sequence[float], target: float) -> float:
        """The width at which rounding costs at most `target`."""
        width = self.range / 256
        for _ in range(4):
            allowed = float(np.dot(weights, self.lattice(width).allowance(np.array(levels))))
            if allowed <= 0.0:
                break
            width = min(width * target / allowed, self.range / 16)
        return self.fitting(width)

    def fitting(self, width: float) -> float:
        """The width, or one nearby of which all rewards are multiples."""
        if self.common is None:
            return width
        return (
            self.common / max(1, math.ceil(self.common / width))
            if width < self.common
            else (self.common * max(1, math.floor(width / self.common)))
        )

    def within(
        self, width: float, utility: Utility, seconds: float, *, everywhere: bool = False
    ) -> float:
        """The width, or the finest one that fits into memory and takes about so long."""
        for _ in range(80):
            _, takes = self.cost(self.lattice(width), utility, everywhere=everywhere)
            if takes <= seconds:
                return width
            width = self.fitting(width * 1.3) if self.common is None else 2 * width
        raise TooLargeError(self.sizes("even the coarsest lattice does not fit"))

    def sizes(self, what: str) -> str:
        """Why it cannot be done, in numbers."""
        lattice, mdp = self.base.same(self.range / 64, self.reach), self.base.mdp
        return (
            f"`mdp` is too large for the planner: {mdp.num_states:,} states, "
            f"{lattice.transitions.states.size:,} outcomes and {lattice.cut:,} decisions that "
            f"count (`horizon` {mdp.horizon}, `gamma` {mdp.gamma}); {what} within "
            f"{self.limits.seconds:g} s and {self.limits.memory:g} GiB. Use a smaller `gamma` or "
            "`horizon`, or raise `time_limit` and `memory_limit`."
        )

    def choose_reach(self, upper: Callable[[Lattice], float], width: float) -> None:
        """As far out as makes a difference: tried on a coarse lattice."""
        bounds = []
        for reach in _REACHES:
            self.reach = reach
            bounds.append(upper(self.lattice(width)))
            if len(bounds) > 1 and bounds[-2] - bounds[-1] <= 0.05 * self.tolerance:
                self.reach = _REACHES[len(bounds) - 2]
                return


def _common_step(mdp: FiniteMDP) -> float | None:
    """A number of which all rewards are multiples, if there is one that is not tiny."""
    rewards = np.unique(np.abs(mdp.rewards[mdp.probabilities > 0]))
    rewards = rewards[rewards > 0]
    if not rewards.size:
        return None
    step, slack = float(rewards[0]), 1e-9 * float(rewards[-1])
    for reward in rewards.tolist():
        while reward > slack:  # Euclid's algorithm
            left = math.fmod(step, reward)
            step, reward = reward, 0.0 if reward - left < slack else left
        if step < 1e4 * slack:
            return None
    return step
