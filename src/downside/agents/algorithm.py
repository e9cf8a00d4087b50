r"""What makes an algorithm of the family: what it remembers, how it scores actions, and what the
outer step updates.

| agent | memory | score of an action with return G | outer step |
| --- | --- | --- | --- |
| QR-DQN | none | E[G] | none |
| QR-iCVaR | none | SRM(G) | none |
| QR-CVaR | b, with b' = (b - r)/γ | -E[(b - G)^+] | search for b at the start |
| QR-SRM | (s, c), with s' = s + c r, c' = γ c | E[h(s + c G)] | h from the return at the start |
| PG-SRM | (s, c) | none: an actor decides | h from the returns of each batch |
| PG-SRM with a dial | (s - b, c) and κ | none: an actor decides | targets b of the family |
| the same, unordered actions | (s - b, c) and κ | E[u(s + c G - b)] | the range of b |
| AC-SRM | (s, c) | none: an actor decides | h from the returns of the last episodes |
| AC-SRM with a dial | (s - b, c) and κ | none: an actor decides | targets b, from lived episodes |

The outer variable is a pytree: h, b, or nothing. Everything here is about one observation and pure;
learners map over batches.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from downside.agents.settings import Settings
from downside.envs import AbstractJaxEnv, AbstractMemoryInput, Memory
from downside.envs.memory import append_memory
from downside.ops import greedy
from downside.risk import AbstractSpectralRisk, CVaRMixture, Dial

OuterVariable = Any
"""What the outer step updates: a pytree of arrays."""


class BranchedTransition(NamedTuple):
    """A state, and what several actions lead to from there.

    With one action and one outcome it is a transition of the replay buffer.
    """

    observation: Float[Array, " d"]
    memory: Memory
    """(s, c) before the action."""
    actions: Int[Array, " b"]
    weights: Float[Array, " b"]
    """Loss weight of each action."""
    rewards: Float[Array, "b K"]
    """Of each outcome of each action."""
    next_observations: Float[Array, "b K d"]
    """Of an episode that ended, its last observation."""
    next_memory: Memory
    """(s, c) after the reward, of each outcome of each action."""
    next_masks: Bool[Array, "b K A"]
    """Which actions are legal there."""
    terminated: Bool[Array, "b K"]
    """Whether the problem was over: nothing can be earned from there on. Not set by a time limit
    that is no part of the problem."""
    discounts: Float[Array, "b K"]
    """Discount of the value that follows: γ, or its power for n-step returns."""

    def relabel(self, amount: Float[Array, ""]) -> "BranchedTransition":
        """The transition if `amount` more had been earned before it."""
        memory, after = self.memory.relabel(amount), self.next_memory.relabel(amount)
        return self._replace(memory=memory, next_memory=after)


class CandidateReturns(NamedTuple):
    """What the outer step knows of each candidate."""

    candidates: OuterVariable
    """Values of the outer variable, stacked."""
    values: Float[Array, " m"]
    """The risk measure's value of each candidate's policy, measured in episodes."""
    returns: Float[Array, "m n"]
    """The returns of those episodes, in increasing order."""


class AbstractAlgorithm(eqx.Module):
    """One algorithm of the family, for one risk measure: its memory and its outer step.

    How it learns and decides is in a subclass: `AbstractQuantileAlgorithm`.
    """

    objective: CVaRMixture
    """The risk measure, as data."""
    gamma: float = eqx.field(static=True)
    """The discount factor."""

    name: ClassVar[str]
    """The name in the paper."""
    default_risk: ClassVar[str | None] = None
    """The measure that is optimised unless the user says otherwise; None if they must say."""
    static: ClassVar[bool] = True
    """Whether the measure is applied to the return of the whole episode."""
    fixed: ClassVar[Mapping[str, Any]] = {}
    """Settings that the algorithm cannot do without."""
    preset: ClassVar[Mapping[str, Any]] = {}
    """Its defaults for JAX environments, where they differ from `SimulatorSettings`."""
    gymnasium_preset: ClassVar[Mapping[str, Any]] = {}
    """Its defaults for other environments, where they differ from `GYMNASIUM`."""

    @classmethod
    def check(cls, risk: AbstractSpectralRisk) -> None:
        """Raises unless the algorithm can optimise this measure."""
        del risk

    @classmethod
    def make(
        cls, risk: AbstractSpectralRisk, settings: Settings, levels: int | None = None
    ) -> "AbstractAlgorithm":
        """The algorithm for a measure that is kept in `levels` numbers (by default its own)."""
        cls.check(risk)
        table = CVaRMixture.of(risk)
        return cls(table if levels is None else table.padded(levels), settings.gamma)

    # --- memory -------------------------------------------------------------------------------

    @abc.abstractmethod
    def memory_input(self, outer: OuterVariable) -> AbstractMemoryInput:
        """What of the memory (s, c) is appended to observations: by `agent.wrap`, and for the
        networks unless `network_input` says otherwise."""

    def network_input(
        self, observation: Float[Array, " d"], memory: Memory, outer: OuterVariable
    ) -> Float[Array, " e"]:
        """What the networks see."""
        return append_memory(observation, memory, self.memory_input(outer))

    def memory_shift(self, memory: Memory, amount: Float[Array, ""]) -> Float[Array, ""]:
        """How much more return to pretend, for an `amount` of noise in what the networks see."""
        del memory
        return amount

    @property
    def inputs_hidden_at_first(self) -> int:
        """How many inputs, the last ones, `network_input` sets to 0 until risk matters."""
        return 0

    # --- outer step ---------------------------------------------------------------------------

    @abc.abstractmethod
    def initial_outer(self, returns: Float[Array, " n"]) -> OuterVariable:
        """The outer variable that maximises the mean, given some `returns` of random play."""

    def utility(self, outer: OuterVariable) -> Any:
        """The utility h whose expectation is maximised; None where there is none."""
        del outer

    def logged(self, outer: OuterVariable) -> Mapping[str, Float[Array, ""]]:
        """Numbers of the outer variable for the log."""
        del outer
        return {}

    def candidates(
        self,
        outer: OuterVariable,
        spread: Float[Array, ""],
        settings: Any,
    ) -> OuterVariable:
        """Values of the outer variable to choose from, stacked; the middle one is `outer`.

        `spread` is the standard deviation of the present returns.
        """
        del spread, settings
        return jax.tree.map(lambda leaf: leaf[None], outer)

    def outer_step(
        self, outer: OuterVariable, measured: CandidateReturns, rate: float, first: Bool[Array, ""]
    ) -> OuterVariable:
        """The next value, from candidates that were measured; `first`: so far it was the mean."""
        del measured, rate, first
        return outer

    def lived_outer_step(
        self,
        outer: OuterVariable,
        returns: Float[Array, " n"],
        rate: Float[Array, ""] | float,
    ) -> OuterVariable:
        """The next value, from the returns of the present policy in increasing order."""
        del returns, rate
        return outer

    def learned_outer_step(
        self,
        outer: OuterVariable,
        start: Float[Array, " n"],
        start_value: Callable[[OuterVariable], Float[Array, ""]],
        rate: Float[Array, ""] | float,
    ) -> OuterVariable:
        """The next value, from the learned return at the start in increasing order (the paper).

        `start_value` is what the networks expect of a candidate at the start.
        """
        del start, start_value, rate
        return outer


class AbstractActorAlgorithm(AbstractAlgorithm):
    """An actor decides, and learns from whole episodes.

    An episode of training may have a *position*: what it is played and judged by beside its
    measure. None where all episodes share one measure.
    """

    @property
    @abc.abstractmethod
    def inputs_appended(self) -> int:
        """How many numbers `network_input` appends to an observation."""

    @abc.abstractmethod
    def positions(self, key: Key[Array, ""], count: int, outer: OuterVariable) -> Any:
        """Of each episode of a batch, stacked. The second half mirrors the first."""

    @abc.abstractmethod
    def batch_value(self, returns: Float[Array, " n"], positions: Any) -> Float[Array, ""]:
        """What one update maximises, from the returns of a batch in any order."""

    @abc.abstractmethod
    def utilities(
        self, returns: Float[Array, "n *A"], main: Float[Array, " m"], positions: Any
    ) -> Float[Array, "n *A"]:
        """The utility of each of some `returns`, where the policy itself has the returns `main`."""

    @property
    def policies_measured(self) -> int:
        """How many policies are measured at an outer step, each in an equal share of the episodes;
        where actions are unordered, under the same noise."""
        return 1

    @abc.abstractmethod
    def measuring_positions(self, outer: OuterVariable, count: int) -> Any:
        """Of each episode of the outer step, stacked."""

    @abc.abstractmethod
    def measured(
        self, outer: OuterVariable, returns: Float[Array, " n"]
    ) -> tuple[Float[Array, ""], OuterVariable]:
        """The value of the policy and the next outer variable, from those episodes."""


class AbstractDialAlgorithm(AbstractAlgorithm):
    """An algorithm whose networks serve a family of measures, and stands at one of them."""

    @classmethod
    @abc.abstractmethod
    def make_family(
        cls, family: Dial, risk: AbstractSpectralRisk, settings: Settings
    ) -> "AbstractDialAlgorithm":
        """The algorithm of a family, standing at one of its measures."""

    @classmethod
    def fitting(cls, env: AbstractJaxEnv) -> "type[AbstractDialAlgorithm]":
        """The algorithm for an environment written in JAX."""
        del env
        return cls

    @abc.abstractmethod
    def at(self, risk: AbstractSpectralRisk) -> "AbstractDialAlgorithm":
        """The algorithm, standing at another measure of the family."""

    @abc.abstractmethod
    def bracket(self, outer: OuterVariable) -> tuple[float, float]:
        """About where the target b of the present measure is, and the standard deviation of the
        returns there."""

    def first_targets(self, outer: OuterVariable) -> list[float]:
        """Where the search for b begins, if not in the middle of the `bracket`."""
        del outer
        return []

    @abc.abstractmethod
    def standing(self, outer: OuterVariable, target: Float[Array, ""] | float) -> OuterVariable:
        """The outer variable with this target for the present measure."""


class AbstractQuantileAlgorithm(AbstractAlgorithm):
    """Discrete actions, chosen by a score of their learned return distribution."""

    @abc.abstractmethod
    def quantile_scores(
        self, quantiles: Float[Array, "A N"], memory: Memory, outer: OuterVariable
    ) -> Float[Array, " A"]:
        """The score of every action, from the quantiles of its return."""

    def predicted_value(self, score: Float[Array, ""], outer: OuterVariable) -> Float[Array, ""]:
        """The risk measure's value that a score at the start stands for."""
        del outer
        return score

    def anchored(
        self, relative: Float[Array, " A"], memory: Memory, outer: OuterVariable
    ) -> Float[Array, " A"]:
        """The scores, from what each action adds to the score of an episode that is over here.

        A critic learns this where episodes need not end. In units in which its recursion contracts
        by γ; without such a form, the scores themselves.
        """
        del memory, outer
        return relative

    def critic_target(
        self,
        next_memory: Memory,
        next_score: Float[Array, ""],
        terminated: Bool[Array, ""],
        discount: Float[Array, ""] | float,
        outer: OuterVariable,
    ) -> Float[Array, ""]:
        """The recursion of the score itself, where it has one: its value one step earlier, with
        the `discount` of that step."""
        del next_memory, next_score, terminated, discount, outer
        raise TypeError(f"The score of {self.name} obeys no recursion: use critic='quantiles'.")


def start_distribution(
    objective: CVaRMixture, quantiles: Float[Array, "m A N"], masks: Bool[Array, "m A"]
) -> Float[Array, " mN"]:
    """The learned return at the start, sorted: in each of m start states the action with the
    highest risk value (section 4), and the mixture over these states."""
    ordered = jnp.sort(quantiles, axis=-1)
    best = jax.vmap(greedy)(jax.vmap(jax.vmap(objective.value))(ordered), masks)
    return jnp.sort(jnp.take_along_axis(ordered, best[:, None, None], axis=1).ravel())
