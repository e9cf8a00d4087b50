r"""What makes an algorithm of the family: how the state is augmented, how an action is scored, and
what the outer step updates.

| agent | augmentation | score of an action with return G | outer step |
| --- | --- | --- | --- |
| QR-DQN | none | E[G] | none |
| QR-iCVaR | none | SRM(G) | none |
| QR-CVaR | b, with b' = (b - r)/γ | -E[(b - G)^+] | search for b at the start |
| QR-SRM | (s, c), with s' = s + c r, c' = γ c | E[h(s + c G)] | h from the return at the start |

The variable of the outer step, the *goal*, is a pytree: h, b, or nothing. Everything here is about
one observation and pure; the learner (`learner.py`) maps over batches.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from downside.agents.settings import Settings
from downside.envs import AbstractJaxEnv
from downside.risk import AbstractSpectralRisk, Tabulated

Goal = Any
"""What the outer step updates: a pytree of arrays."""


class Decision(NamedTuple):
    """A state in which something was decided, and what several actions lead to from there.

    With one action and one outcome it is a transition as it was lived through.
    """

    observation: Float[Array, " d"]
    """What the agent saw, with what it remembers."""
    actions: Int[Array, " b"]
    """The actions."""
    emphasis: Float[Array, " b"]
    """How much each of them counts."""
    rewards: Float[Array, "b K"]
    """What each outcome of each action paid."""
    next_observations: Float[Array, "b K d"]
    """What the agent sees next; of an episode that ended, its last observation."""
    next_masks: Bool[Array, "b K A"]
    """Which actions are legal there."""
    terminated: Bool[Array, "b K"]
    """Whether the problem was over: nothing can be earned from there on. Not set by a time limit
    that is no part of the problem: there is a future, and it is worth something."""
    discounts: Float[Array, "b K"]
    """What a reward counts that comes next: γ, or its power where several steps are one."""


class Measured(NamedTuple):
    """What the outer step knows of each candidate."""

    goals: Goal
    """The candidates, stacked."""
    values: Float[Array, " m"]
    """The risk measure's value of each one's policy, measured in episodes."""
    returns: Float[Array, "m n"]
    """The returns of those episodes, in increasing order."""


class AbstractAlgorithm(eqx.Module):
    """One algorithm of the family, for one risk measure."""

    objective: Tabulated
    """The risk measure, as data."""
    gamma: float = eqx.field(static=True)
    """The discount factor."""

    name: ClassVar[str]
    """As the paper calls it."""
    fixed: ClassVar[Mapping[str, Any]] = {}
    """Settings that the algorithm cannot do without."""
    preset: ClassVar[Mapping[str, Any]] = {}
    """Where its default settings differ from those of `Settings`."""
    lived_preset: ClassVar[Mapping[str, Any]] = {}
    """Where they differ from those for environments that are not written in JAX (`LIVED`)."""

    @classmethod
    def check(cls, risk: AbstractSpectralRisk) -> None:
        """Raises unless the algorithm can optimise this measure."""
        del risk

    @classmethod
    def make(
        cls, risk: AbstractSpectralRisk, settings: Settings, levels: int | None = None
    ) -> "AbstractAlgorithm":
        """The algorithm for a measure, of which `levels` numbers are kept (as many as it needs)."""
        cls.check(risk)
        table = Tabulated.of(risk)
        return cls(table if levels is None else table.padded(levels), settings.gamma)

    # --- augmentation -------------------------------------------------------------------------

    @abc.abstractmethod
    def wrap(self, env: AbstractJaxEnv, goal: Goal) -> AbstractJaxEnv:
        """The environment, with what the agent remembers appended to what it observes."""

    @abc.abstractmethod
    def remembered(
        self, accumulated: Float[Array, ""], discount_so_far: Float[Array, ""], goal: Goal
    ) -> Float[Array, " m"]:
        """What the environment with its memory appends, after so much was earned."""

    def relabel(
        self,
        observation: Float[Array, " d"],
        next_observations: Float[Array, "b K d"],
        amount: Float[Array, ""],
    ) -> tuple[Float[Array, " d"], Float[Array, "b K d"]]:
        """The decision as it would look with another memory; the environment does not see it."""
        del amount
        return observation, next_observations

    def view(self, observation: Float[Array, " d"], goal: Goal) -> Float[Array, " d"]:
        """The observation as the networks see it."""
        del goal
        return observation

    @property
    def hidden_at_first(self) -> int:
        """How many inputs, the last ones, `view` sets to 0 until the goal asks for them."""
        return 0

    # --- score --------------------------------------------------------------------------------

    @abc.abstractmethod
    def quantile_scores(
        self, quantiles: Float[Array, "A N"], observation: Float[Array, " d"], goal: Goal
    ) -> Float[Array, " A"]:
        """The score of every action, from the quantiles of its return."""

    def anchored(
        self, relative: Float[Array, " A"], observation: Float[Array, " d"], goal: Goal
    ) -> Float[Array, " A"]:
        """The scores, from what each action adds to the score of an episode that is over here.

        That is what a critic learns where episodes need not end (`Networks.anchored`). In units in
        which its recursion contracts by γ; without such a form, the scores themselves.
        """
        del observation, goal
        return relative

    def critic_target(
        self,
        next_observation: Float[Array, " d"],
        next_score: Float[Array, ""],
        terminated: Bool[Array, ""],
        discount: Float[Array, ""] | float,
        goal: Goal,
    ) -> Float[Array, ""]:
        """The recursion of the score itself, where it has one: its value one step earlier, with
        the `discount` of that step."""
        del next_observation, next_score, terminated, discount, goal
        raise TypeError(f"The score of {self.name} obeys no recursion: use critic='quantiles'.")

    def predicted_value(self, score: Float[Array, ""], goal: Goal) -> Float[Array, ""]:
        """The risk measure's value that a score at the start stands for."""
        del goal
        return score

    # --- outer step ---------------------------------------------------------------------------

    @abc.abstractmethod
    def first_goal(self, returns: Float[Array, " n"]) -> Goal:
        """The goal before anything is known but `returns` of random play: maximise the mean."""

    def candidates(
        self,
        goal: Goal,
        spread: Float[Array, ""],
        settings: Settings,
        start_score: Callable[[Goal], Float[Array, ""]],
    ) -> Goal:
        """Goals to choose from, stacked; the one in the middle is `goal` itself.

        `start_score` is what the networks expect at the start under a goal.
        """
        del spread, settings, start_score
        return jax.tree.map(lambda leaf: leaf[None], goal)

    def outer_step(
        self, goal: Goal, measured: Measured, rate: float, first: Bool[Array, ""]
    ) -> Goal:
        """The next goal, from candidates that were measured; `first`: so far it was the mean."""
        del measured, rate, first
        return goal

    def lived_outer_step(
        self, goal: Goal, returns: Float[Array, " n"], rate: Float[Array, ""] | float
    ) -> Goal:
        """The next goal from the returns of the last episodes (in increasing order)."""
        del returns, rate
        return goal

    def learned_outer_step(
        self,
        goal: Goal,
        start: Float[Array, " n"],
        start_score: Callable[[Goal], Float[Array, ""]],
        rate: Float[Array, ""] | float,
    ) -> Goal:
        """The next goal from the learned return at the start (in increasing order), as in the
        paper."""
        del start, start_score, rate
        return goal


def start_distribution(
    objective: Tabulated, quantiles: Float[Array, "m A N"], masks: Bool[Array, "m A"]
) -> Float[Array, " mN"]:
    """The learned return at the start, sorted: in each of m start states the action with the
    highest risk value (section 4), and the mixture over these states."""
    ordered = jnp.sort(quantiles, axis=-1)
    values = jnp.where(masks, jax.vmap(jax.vmap(objective.value))(ordered), -jnp.inf)
    best = jnp.argmax(values, axis=-1)
    return jnp.sort(jnp.take_along_axis(ordered, best[:, None, None], axis=1).ravel())
