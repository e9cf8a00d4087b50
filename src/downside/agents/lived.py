"""What the algorithms of AC-SRM have in common: one measure, or a dial."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from downside.agents.algorithm import AbstractAlgorithm
from downside.envs import AbstractMemoryInput, Memory, ReturnInput

FARTHEST = 5.0
"""Inputs of the memory are clipped here, in standard deviations of the return."""
LEAST_DISCOUNT = 1e-3
_TABLE = 1024
"""Quantiles of the last returns that an outer step comes from: what is compiled has one size."""


class AbstractLivedAlgorithm(AbstractAlgorithm):
    """An actor and a critic learn from lived episodes: a transition pays what it adds to a utility.

    An episode may have a *position*: what it is played and judged by beside the outer variable.
    None where all episodes share one measure. The outer variable has the fields `short`, 1 if
    episodes are so short that the networks see marks of the steps, and `spread`, the standard
    deviation of returns.
    """

    has_clock: bool = eqx.field(static=True, default=False)
    """Whether the last number of an observation is the number of the step."""
    step_inputs: int = eqx.field(static=True, default=0)
    """Inputs that mark the step."""

    def memory_input(self, outer: Any) -> AbstractMemoryInput:
        """(s, c)."""
        del outer
        return ReturnInput()

    def marked(
        self, observation: Float[Array, " d"], memory: Memory, short: Float[Array, ""]
    ) -> Float[Array, " e"]:
        """The observation and, where episodes are short, the marks of the step."""
        number = observation[-1] if self.has_clock else self._steps_done(memory.discount_so_far)
        marks = short * (jnp.arange(self.step_inputs) == jnp.round(number)).astype(float)
        return jnp.concatenate([observation.astype(float), marks])

    def _steps_done(self, discount: Float[Array, ""]) -> Float[Array, ""]:
        """From the discount so far; nothing without a discount."""
        if self.gamma == 1.0:
            return jnp.asarray(-1.0)
        return jnp.log(jnp.maximum(discount, 1e-30)) / jnp.log(self.gamma)

    # --- positions ----------------------------------------------------------------------------

    @abc.abstractmethod
    def positions(self, key: Key[Array, ""], count: int, outer: Any) -> Any:
        """Of so many episodes, stacked; or None."""

    @abc.abstractmethod
    def placed(self, outer: Any, position: Any) -> Any:
        """The outer variable in an episode with this position."""

    @abc.abstractmethod
    def emphasis(self, positions: Any) -> Float[Array, "*n"]:
        """What advantages are multiplied by before they are normalised, and errors of the critic
        before they are squared; ones if all episodes have the same."""

    @property
    @abc.abstractmethod
    def recorded(self) -> int:
        """How many numbers `record` has."""

    @abc.abstractmethod
    def record(self, positions: Any, count: int) -> Float[np.ndarray, "n r"]:
        """What is remembered of the positions of `count` episodes, beside their returns."""

    # --- what a transition pays, and the outer step -------------------------------------------

    @abc.abstractmethod
    def utilities(self, accumulated: Any, positions: Any, outer: Any) -> Any:
        """The utility of a return, for NumPy: a transition pays what it adds to it."""

    @abc.abstractmethod
    def summary(self, returns: Float[np.ndarray, " n"], records: Float[np.ndarray, "n r"]) -> Any:
        """What the outer step needs of the last episodes, in arrays of one size."""

    @abc.abstractmethod
    def next_outer(
        self, outer: Any, lived: Any, mean_share: Float[Array, ""], rate: Float[Array, ""]
    ) -> Any:
        """The outer variable, a share `rate` of the way to that of the last episodes, of which
        `lived` is the summary."""

    @abc.abstractmethod
    def judged(
        self, lived: Any, count: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The value of the policy in the last episodes, and its standard error if they
        are worth `count` independent ones."""


def table_of(returns: Float[np.ndarray, " n"]) -> Float[Array, " m"]:
    """Quantiles of the returns, in increasing order; always as many."""
    ranks = (np.arange(_TABLE) + 0.5) / _TABLE
    return jnp.asarray(np.quantile(returns, ranks, method="inverted_cdf"), jnp.float32)
