r"""A finite problem with its accumulated reward on a lattice: geometry, rounding, and its cost."""

import functools
import math
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Float, Int

from downside.exact.mdp import FiniteMDP
from downside.exact.transitions import Lists, ReturnsToGo, Transitions, to_go
from downside.risk import Utility

SNAP = 1e-9
"""A shift this close to a whole number of cells is that number."""
_FAR = np.int64(2**40)


class Windows(NamedTuple):
    """For each time, the lattice points of each state at which the value is tabulated.

    Below `first` the value follows the line of h below its knots, and from `first + sizes` on that
    above them, each at the mean of what is still to come.
    """

    first: Int[np.ndarray, "T S"]
    """The first point, as a multiple of the lattice's width."""
    sizes: Int[np.ndarray, "T S"]
    """How many."""


@final
class Lattice:
    r"""A finite problem in which the accumulated reward s moves on multiples of a `width` δ.

    A reward moves s by $\gamma^t r$, which rarely is a multiple. It is then split between the two
    multiples around it so that its mean stays what it is; where actions share lists of outcomes
    (`Lists`), what the pair pays and what the list pays each are. All these errors along a path add
    up to N, a martingale, and the lattice is the original problem with returns G + N.

    *Upper bounds.* A spectral measure is superadditive, $\rho(G + N) \ge \rho(G) + \rho(N)$,
    however G and N depend on each other. So the optimum of the lattice is at least the true one
    plus ρ(N), which `allowance` bounds:
    $-\mathrm{CVaR}_\alpha(N) \le \frac{1}{\eta} \log(\mathbb{E}[e^{-\eta N}] / \alpha)$ for every
    η > 0, and the expectation is at most the largest over all policies, a recursion over time
    and state. It is of the size $\delta \sqrt{T}$, not $\delta T$, because errors cancel. Rewards
    that fit the lattice are not rounded and need no allowance.

    *Lines.* Where all that can still come leaves s on one side of the knots of h, the value is the
    line of h at the best mean. For a concave h that is an upper bound everywhere (Jensen), so
    points are tabulated only within `reach` deviations of where the mean leads: of the policy
    that is best for the mean, or 64ths of the range of what can come where they are larger.

    *Cut.* With a discount, from `cut` on all that can still come differs by two cells at the most;
    its best mean takes its place, which again only raises the value of a concave h.

    Arguments:
        mdp: the problem.
        width: δ.
        reach: how many deviations are tabulated.
        transitions: the outcomes as a list, if they are known already.
        lists: what actions share of them, if it is known already.
        rest: what is still to come, if it is known already.
    """

    def __init__(
        self,
        mdp: FiniteMDP,
        width: float,
        *,
        reach: float = 6.0,
        transitions: Transitions | None = None,
        lists: Lists | None = None,
        rest: ReturnsToGo | None = None,
    ):
        self.mdp, self.width, self.reach = mdp, width, reach
        self.transitions = Transitions.of(mdp) if transitions is None else transitions
        self.lists = Lists.of(self.transitions) if lists is None else lists
        self.rest = to_go(mdp, self.transitions) if rest is None else rest
        self.cut = self._cut()

    def _cut(self) -> int:
        rest, gamma, horizon = self.rest, self.mdp.gamma, self.mdp.horizon
        spans = (rest.high - rest.low).max(axis=1)
        if horizon is not None and len(spans) > horizon:
            enough = 2 * self.width if gamma < 1.0 else 0.0
            small = gamma ** np.arange(horizon + 1) * spans[::-1] <= enough
            return max(1, int(np.argmax(small)))
        widest = float(spans[-1])
        if widest <= 2 * self.width:
            return 1
        early = math.ceil(math.log(2 * self.width / widest) / math.log(gamma))
        return max(1, early if horizon is None else min(early, horizon))

    def same(self, width: float, reach: float) -> "Lattice":
        """The same problem on another lattice."""
        known = {"transitions": self.transitions, "lists": self.lists, "rest": self.rest}
        return Lattice(self.mdp, width, reach=reach, **known)

    @property
    def start(self) -> Float[np.ndarray, " S"]:
        """How likely an episode starts in each state; those that are over at once come last."""
        start = np.append(np.where(self.mdp.terminal, 0.0, self.mdp.start), 0.0)
        start[-1] = 1.0 - start.sum() if self.mdp.terminal.any() else 0.0
        return np.maximum(start, 0.0)

    @property
    def best_mean(self) -> float:
        """The optimum of the mean."""
        return float(self.start @ self.rest.mean[self.rest.left(0)])

    @property
    def return_range(self) -> tuple[float, float]:
        """The smallest and the largest return that any path has."""
        row, begin = self.rest.left(0), self.start > 0
        return float(self.rest.low[row][begin].min()), float(self.rest.high[row][begin].max())

    @property
    def deviation(self) -> float:
        """The standard deviation of the returns of the policy that is best for the mean."""
        row = self.rest.left(0)
        mean = self.rest.mean[row] - self.best_mean
        return math.sqrt(float(self.start @ (self.rest.deviation[row] ** 2 + mean**2)))

    @property
    def rounding(self) -> float:
        """A bound on the errors of floating-point sums, and of shifts taken as whole cells."""
        largest = max(np.abs(self.rest.low).max(), np.abs(self.rest.high).max())
        shared = self.cut * self.lists.slack
        return 1e-14 * (self.cut + 100) * float(largest) + self.cut * SNAP * self.width + shared

    def mean_left(self, time: int) -> Float[np.ndarray, " S"]:
        """The best mean of what is still to come, as it counts at the start."""
        return self.mdp.gamma**time * self.rest.mean[self.rest.left(time)]

    def shifts(self, time: int) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """How many cells each outcome of a list moves s by: whole ones, and the part of another."""
        return self.split(self.mdp.gamma**time * self.lists.rewards)

    def pair_shifts(self, time: int) -> tuple[Int[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """How many cells each pair of state and action moves s by besides."""
        return self.split(self.mdp.gamma**time * self.lists.amounts)

    def split(self, amounts: Float[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
        """Amounts as whole cells and the part of one more."""
        exact = amounts / self.width
        whole = np.floor(exact + SNAP)
        part = exact - whole
        part[part < SNAP] = 0.0
        return whole.astype(np.int64), part

    # --- what rounding can cost -----------------------------------------------------------------

    def allowance(self, levels: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """For each level of CVaR, by how much rounding can have lowered it at the most."""
        levels = np.asarray(levels, dtype=float)
        # The best η is about sqrt(2 log(1/α)) / σ, with σ of the size δ sqrt(T / 6).
        base = 1.0 / (self.width * math.sqrt(self.cut / 6 + 0.2))
        etas = base * 1.5 ** np.arange(-1, 9)
        moments = self._moments(etas)
        if np.all(moments == 1.0):  # nothing was rounded
            return np.zeros(levels.size)
        usable = np.isfinite(moments)
        bounds = (np.log(moments[usable, None]) - np.log(levels)) / etas[usable, None]
        return np.where(levels < 1.0, bounds.min(axis=0, initial=np.inf), 0.0)

    def _moments(self, etas: Float[np.ndarray, " e"]) -> Float[np.ndarray, " e"]:
        """The largest E[exp(-η N)] over all policies, for each η."""
        chances, leads_to, _, begins, of_pair, *_ = self.lists
        *_, live, _, first_pairs = self.transitions
        steps = (etas * self.width)[:, None]

        def of(part: np.ndarray) -> np.ndarray:  # the error is 1 - part up, or part down
            exact = (1 - part) * np.exp(steps * part) + part * np.exp(-steps * (1 - part))
            return np.where(part > 0.0, exact, 1.0)

        _, part = self.split(self.mean_left(self.cut))
        with np.errstate(over="ignore", invalid="ignore"):
            moments = of(part)
            for time in range(self.cut - 1, -1, -1):
                _, part = self.shifts(time)
                score = np.add.reduceat(chances * of(part) * moments[:, leads_to], begins, axis=1)
                score = score[:, of_pair]
                if self.lists.amounts.any():
                    score *= of(self.pair_shifts(time)[1])
                moments = np.ones_like(moments)
                moments[:, live] = np.maximum.reduceat(score, first_pairs, axis=1)
            return moments @ self.start

    # --- where points are needed ----------------------------------------------------------------

    def windows(self, utility: Utility, *, everywhere: bool = False) -> Windows:
        """The points at which h does not turn out to be a line, among those that can be reached.

        With `everywhere`, those that can be reached from any accumulated reward at time 0.
        """
        shape = (self.cut + 1, self.mdp.num_states + 1)
        first, count = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        knots = np.asarray(utility.knots, dtype=float)
        if knots.size == 0:
            return Windows(first, count)
        low, high = self._reached(everywhere)
        for time in range(self.cut + 1):
            row, discount = self.rest.left(time), self.mdp.gamma**time
            mean, low_rest, high_rest = (part[row] for part in self.rest[:3])
            likely = np.maximum(self.rest.deviation[row], (high_rest - low_rest) / 64)
            highest = np.minimum(high_rest, mean + self.reach * likely)
            lowest = np.maximum(low_rest, mean - self.reach * likely)
            begin = np.floor((knots[0] - discount * highest) / self.width - SNAP) - 1
            end = np.ceil((knots[-1] - discount * lowest) / self.width + SNAP) + 1
            begin, end = begin.astype(np.int64), end.astype(np.int64)
            first[time] = np.clip(low[time], begin, end + 1)
            count[time] = np.maximum(np.minimum(end, high[time]) - first[time] + 1, 0)
        return Windows(first, count)

    def _reached(self, everywhere: bool) -> tuple[np.ndarray, np.ndarray]:
        shape = (self.cut + 1, self.mdp.num_states + 1)
        low, high = np.full(shape, _FAR), np.full(shape, -_FAR)
        if everywhere:
            return high, low
        low[0, self.start > 0] = high[0, self.start > 0] = 0
        lists, states = self.lists, self.pair_states
        list_of = np.repeat(np.arange(lists.begins.size), lists.sizes)
        for time in range(self.cut):
            whole, part = self.pair_shifts(time)
            begin, end = np.full(lists.begins.size, _FAR), np.full(lists.begins.size, -_FAR)
            np.minimum.at(begin, lists.of_pair, low[time, states] + whole)
            np.maximum.at(end, lists.of_pair, high[time, states] + whole + (part > 0))
            known = begin[list_of] < _FAR // 2
            whole, part = (column[known] for column in self.shifts(time))
            at, to = list_of[known], lists.next_states[known]
            np.minimum.at(low[time + 1], to, begin[at] + whole)
            np.maximum.at(high[time + 1], to, end[at] + whole + (part > 0))
        return low, high

    @functools.cached_property
    def pair_states(self) -> Int[np.ndarray, " m"]:
        """The state of each pair of state and action."""
        return self.transitions.states[self.transitions.pairs]

    @functools.cached_property
    def pair_numbers(self) -> Int[np.ndarray, "S A"]:
        """The number of each pair of state and action."""
        numbers = np.full((self.mdp.num_states, self.mdp.num_actions), -1)
        listed = self.transitions
        numbers[self.pair_states, listed.actions[listed.pairs]] = np.arange(listed.pairs.size)
        return numbers

    def size(self, windows: Windows) -> tuple[int, int]:
        """The number of points, and of points times outcomes: memory and work of a recursion."""
        lists, decided = self.lists, windows.sizes[: self.cut]
        pairs = np.bincount(self.pair_states, minlength=decided.shape[1])
        work = int((decided @ pairs).sum())
        order = np.argsort(lists.of_pair, kind="stable")
        begins = np.searchsorted(lists.of_pair[order], np.arange(lists.begins.size))
        for sizes in decided:
            most = np.maximum.reduceat(sizes[self.pair_states[order]], begins)
            work += int(most @ lists.sizes)
        return int(decided.sum()), work
