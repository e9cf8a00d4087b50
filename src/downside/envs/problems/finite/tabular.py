"""Any finite Markov decision process as an environment."""

from typing import Any, NamedTuple

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Key, Real

from downside.envs._parameters import whole
from downside.envs.core import AbstractJaxEnv, StepResult, real_array
from downside.envs.noise import mirrored_uniforms
from downside.envs.problems.finite._outcomes import Outcomes, as_horizon, pack_outcomes


class TabularState(NamedTuple):
    """Where the process is."""

    number: Real[Array, ""]
    """Number of the state: a whole one, unless a problem is to be differentiated by it."""
    time: Int[Array, ""]
    """Number of decisions so far."""


class Tabular(AbstractJaxEnv[TabularState]):
    r"""A finite Markov decision process, given by its tables.

    ## Description
    Action $a$ in state $s$ has outcome $k$ with probability `probabilities[s, a, k]`. It leads to
    state `next_states[s, a, k]` (state $k$, if that is left out) and pays `rewards[s, a, k]`. The
    noise is one uniform number, which picks the outcome by the inverse of the row's distribution
    function. `downside.solve` finds the optimum of the same problem by dynamic programming.

    ## Action Space
    `Discrete(A)`. Actions that `action_mask` rules out are illegal; an illegal action that is asked
    for anyway is replaced by the first legal one.

    ## Observation Space
    `Box` of shape (S,), float32: 1 at the state and 0 elsewhere. With a `horizon` that is observed,
    shape (S + 1,): the fraction of the decisions that has passed, in [0, 1], comes last.

    ## Rewards
    As in `rewards`.

    ## Starting State
    State `start`, or drawn from it if it holds a probability for each state. An episode that starts
    in a terminal state ends with its first step, which pays nothing.

    ## Episode End
    Terminates in the states of `terminal` and after the outcomes of `ends`. After `horizon`
    decisions it terminates too, if the time is observed: then the horizon is part of the problem.
    Otherwise it truncates there, and a learner should bootstrap through it.

    ## Arguments
    The tables are arrays rather than constants of a compiled program: environments of one shape
    share it.

    - `probabilities`: `[S, A, K]`; K = S without `next_states`.
    - `rewards`: `[S, A, K]`, or `[S, A]` where the outcome does not matter.
    - `terminal`: `[S]`, the states in which an episode is over. Their rows are never used.
    - `start`: the state that episodes start in, or a probability for each state.
    - `horizon`: the number of decisions, or None if only `terminal` and `ends` end an episode.
    - `time_in_observation`: whether a `horizon` is observed; of no consequence without one.
    - `action_mask`: `[S, A]`, the actions that are allowed; all of them if left out.
    - `next_states`: `[S, A, K]`, the state that outcome k leads to.
    - `ends`: `[S, A, K]`, whether the episode is over after the outcome, if that does not follow
      from the state that it leads to.
    """

    outcomes: Outcomes
    """The tables, packed: outcomes of probability 0 are left out."""
    thresholds: Float[np.ndarray, "S A K"]
    """Where the next outcome begins as the noise rises; infinite from the last one on."""
    horizon: int | None = whole(None)
    """The number of decisions of an episode, if it is bounded."""
    time_in_observation: bool = eqx.field(static=True, default=True)
    """Whether the time is observed, and the horizon hence part of the problem."""

    def __init__(
        self,
        probabilities: Any,
        rewards: Any,
        terminal: Any = None,
        start: Any = 0,
        *,
        horizon: Any = None,
        time_in_observation: Any = True,
        action_mask: Any = None,
        next_states: Any = None,
        ends: Any = None,
    ):
        if not isinstance(time_in_observation, bool | np.bool_):
            raise TypeError(
                f"`time_in_observation` must be True or False, got {time_in_observation!r}. It "
                "says whether the agent sees how close the `horizon` is."
            )
        self.outcomes = pack_outcomes(
            probabilities,
            rewards,
            terminal,
            start,
            action_mask=action_mask,
            next_states=next_states,
            ends=ends,
        )
        self.thresholds = _thresholds(self.outcomes.probabilities)
        self.horizon = as_horizon(horizon)  # pyright: ignore[reportIncompatibleMethodOverride]
        self.time_in_observation = bool(time_in_observation) and self.horizon is not None

    @property
    def num_states(self) -> int:
        """The number of states."""
        return self.outcomes.probabilities.shape[0]

    @property
    def num_actions(self) -> int:
        """The number of actions."""
        return self.outcomes.probabilities.shape[1]

    @property
    def observation_space(self) -> gym.spaces.Box:
        """One number per state, and the fraction of time if it is observed."""
        size = self.num_states + self.time_in_observation
        return gym.spaces.Box(0.0, 1.0, (size,), np.float32)

    @property
    def bounded(self) -> bool:
        """If the horizon is part of the problem."""
        return self.time_in_observation

    def initial_state(self, key: Key[Array, ""]) -> TabularState:
        """A state drawn from the starting distribution, at time 0."""
        number = jax.random.choice(key, self.num_states, p=real_array(self.outcomes.start))
        return TabularState(number.astype(jnp.int32), jnp.zeros((), jnp.int32))

    def sample_noise(self, key: Key[Array, ""]) -> Float[Array, ""]:
        """A uniform variable in [0, 1)."""
        return jax.random.uniform(key)

    def sample_noises(self, key: Key[Array, ""], count: int) -> Float[Array, " n"]:
        """Uniform variables, one from each of `count` ranges of equal width."""
        return mirrored_uniforms(key, count)

    def action_mask(self, state: TabularState) -> Bool[Array, " A"]:
        """The actions that are allowed; where the episode is over, all of them."""
        terminal = jnp.asarray(self.outcomes.terminal)[state.number]
        return jnp.asarray(self.outcomes.action_mask)[state.number] | terminal

    def transition(
        self, state: TabularState, action: Int[ArrayLike, ""], noise: Float[ArrayLike, ""]
    ) -> StepResult:
        """The outcome that the noise picks."""
        legal = self.action_mask(state)
        action = jnp.where(legal[jnp.asarray(action)], action, jnp.argmax(legal))
        here = state.number, action
        outcome = jnp.sum(real_array(noise) >= real_array(self.thresholds)[here], dtype=jnp.int32)
        reward = real_array(self.outcomes.rewards)[*here, outcome]
        leads_to = jnp.asarray(self.outcomes.next_states)[*here, outcome].astype(jnp.int32)
        ends = jnp.asarray(self.outcomes.ends)[*here, outcome]

        # Only an episode that starts in a terminal state acts in one: packed rows pay 0 there.
        already_over = jnp.asarray(self.outcomes.terminal)[state.number]
        number = jnp.where(already_over, state.number, leads_to)
        terminated, time = ends | already_over, state.time + 1
        late = jnp.zeros((), bool) if self.horizon is None else time >= self.horizon
        if self.time_in_observation:
            terminated, late = terminated | late, jnp.zeros((), bool)
        return StepResult(TabularState(number, time), reward, terminated, late & ~terminated)

    def observe(self, state: TabularState) -> Float[Array, " d"]:
        """The state as a one-hot vector, and the fraction of time if it is observed."""
        marks = jax.nn.one_hot(state.number, self.num_states, dtype=jnp.float32)
        if self.horizon is None or not self.time_in_observation:
            return marks
        return jnp.append(marks, (state.time / self.horizon).astype(jnp.float32))


def _thresholds(probabilities: Float[np.ndarray, "S A K"]) -> Float[np.ndarray, "S A K"]:
    # In 64 bits, and without an end that rounding could leave short of 1.
    last = np.count_nonzero(probabilities, axis=2, keepdims=True) - 1
    beyond = np.arange(probabilities.shape[2]) >= last
    return np.where(beyond, np.inf, np.cumsum(probabilities, axis=2))
