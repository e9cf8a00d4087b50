"""What the outer search needs to know of a problem: how to solve it for a fixed utility."""

import abc
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from downside.exact.mdp import FiniteMDP
from downside.risk import Distribution, Utility


class Solution(NamedTuple):
    """The best policy for one fixed utility h."""

    value: float
    """max E[h(G)] over all policies, as the recursion computes it."""
    policy: Any
    """A policy that attains it, in whatever form the problem uses."""


class AbstractProblem(abc.ABC):
    """A sequential decision problem that is small enough to be solved for a fixed utility.

    The inner problem is max E[h(G)] over policies that see the state, the accumulated reward and
    the time (section 3.2); the outer search (`outer.py`) looks for the best h.
    """

    @abc.abstractmethod
    def solve(self, utility: Utility) -> Solution:
        """The optimum of the inner problem: backward recursion."""

    @abc.abstractmethod
    def returns(self, policy: Any) -> Distribution:
        """The distribution of the discounted return of a policy that `solve` gave."""

    def simulate(self, policy: Any, episodes: int, seed: int) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of so many episodes under fresh noise.

        Where `returns` is exact, an episode is a draw from it; where it is not, run the policy.
        """
        exact = self.returns(policy)
        chances = np.asarray(exact.probabilities, dtype=float)
        draw = np.random.default_rng(seed).choice
        return draw(np.asarray(exact.values), size=episodes, p=chances / chances.sum())

    def coarse(self) -> "AbstractProblem":
        """A cheaper version of the problem to search on; itself, if it is cheap."""
        return self

    def covers(self, policy: Any) -> bool:
        """Whether the policy stays inside of what was tabulated."""
        del policy
        return True

    def widened(self) -> "AbstractProblem":
        """The same problem, tabulated further out."""
        return self

    @property
    def attainable_returns(self) -> Float[np.ndarray, " n"] | None:
        """Every return an episode can have, where they can be listed; the best knots are there."""
        return None

    @property
    @abc.abstractmethod
    def return_range(self) -> tuple[float, float]:
        """Bounds between which the returns of sensible policies lie: where knots are looked for."""


class AbstractFiniteProblem(AbstractProblem):
    """A finite Markov decision process, with what an explanation asks of it."""

    @property
    @abc.abstractmethod
    def mdp(self) -> FiniteMDP:
        """The problem as it was given."""

    @property
    @abc.abstractmethod
    def horizon(self) -> int:
        """The number of decisions that are looked at."""

    @property
    @abc.abstractmethod
    def exact(self) -> bool:
        """Whether nothing was cut off or put together: the values are exact up to rounding."""

    @property
    @abc.abstractmethod
    def return_error(self) -> float:
        """How far returns are from the true ones where they are not exact."""

    @abc.abstractmethod
    def returns_after(
        self, policy: Any, time: int, state: int, accumulated: float
    ) -> dict[int, Distribution]:
        """For each action that is allowed: the return to come, discounted to `time`, of taking it
        and following the policy from then on."""

    @abc.abstractmethod
    def node(self, time: int, state: int, accumulated: float) -> tuple[int, int, int]:
        """What tells this moment apart from others for the policy."""

    def _check_time(self, time: int) -> None:
        if not 0 <= time < self.horizon:
            raise ValueError(
                f"`time` must be in [0, {self.horizon - 1}], the decisions of this problem, got "
                f"{time}."
            )
