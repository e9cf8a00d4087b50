"""Finite Markov decision processes as arrays."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Int

from downside._arrays import as_floats, check_finite, real
from downside._typing import ArrayLike
from downside.envs.cliff_walk import Tables

_SUM_TOLERANCE = 1e-6

_CUT = 1e-4
"""How much of the largest return is lost by default when an endless problem is cut."""

_PASSES = 10_000


class Truncation(NamedTuple):
    """Where an endless problem is cut, and what that can cost."""

    horizon: int
    """The number of decisions that are kept."""
    error: float
    r"""No return moves by more, hence no risk value either; E[h(G)] by up to $\phi(0)$ times it."""


class FiniteMDP(eqx.Module):
    r"""Finitely many states and actions; every action in a state has finitely many outcomes.

    An outcome is a probability, the state it leads to, a reward, and whether the episode is over
    then. Two outcomes may lead to the same state with different rewards.

    Arguments:
        probabilities: `[S, A, K]`, the probability of outcome k of action a in state s.
        rewards: `[S, A, K]`, or `[S, A]` where the outcome does not matter.
        terminal: `[S]`, the states in which an episode is over. Their rows are never used.
        start: the state that episodes start in, or a probability for each state.
        gamma: the discount factor, in (0, 1].
        horizon: the number of decisions of an episode; None if it only ends in terminal states,
            which needs `gamma` < 1.
        action_mask: `[S, A]`, the actions that are allowed; all of them if left out.
        next_states: `[S, A, K]`, the state that outcome k leads to. Left out, K = S and outcome k
            leads to state k: the usual transition matrices.
        ends: `[S, A, K]`, whether the episode is over after the outcome, if that does not follow
            from the state that it leads to.

    Outcomes are packed: those of probability 0 are dropped, and K is what the richest action needs.
    """

    probabilities: Float[np.ndarray, "S A K"]
    """Probability of each outcome, 0 where an action has fewer than K of them."""
    next_states: Int[np.ndarray, "S A K"]
    """The state that the outcome leads to."""
    rewards: Float[np.ndarray, "S A K"]
    """The reward of the outcome."""
    ends: Bool[np.ndarray, "S A K"]
    """Whether the episode is over after the outcome."""
    terminal: Bool[np.ndarray, " S"]
    """States in which an episode is over."""
    start: Float[np.ndarray, " S"]
    """How likely an episode starts in each state."""
    action_mask: Bool[np.ndarray, "S A"]
    """The actions that are allowed in each state."""
    gamma: float
    """Discount factor, in (0, 1]."""
    horizon: int | None
    """The number of decisions of an episode, if it is bounded."""

    def __init__(
        self,
        probabilities: ArrayLike,
        rewards: ArrayLike,
        terminal: Any = None,
        start: Any = 0,
        *,
        gamma: Any,
        horizon: Any = None,
        action_mask: Any = None,
        next_states: Any = None,
        ends: Any = None,
    ):
        probabilities = _floats(probabilities, "probabilities")
        if probabilities.ndim != 3 or 0 in probabilities.shape:
            raise ValueError(
                "`probabilities` must have a state, an action and an outcome axis, [S, A, S'], got "
                f"shape {probabilities.shape}."
            )
        states, actions, outcomes = shape = probabilities.shape
        if next_states is None and outcomes != states:
            raise ValueError(
                f"`probabilities` must have shape [S, A, S] without `next_states`, got {shape}. "
                "Pass `next_states` to say where each outcome leads."
            )
        rewards = _floats(rewards, "rewards")
        if rewards.shape == shape[:2]:
            rewards = rewards[:, :, None]
        elif rewards.shape != shape:
            raise ValueError(
                f"`rewards` must have the shape {shape} of `probabilities`, or {shape[:2]} if the "
                f"outcome does not matter, got {rewards.shape}."
            )
        self.gamma, self.horizon = _discounting(gamma, horizon)
        self.terminal = _flags(terminal, "terminal", (states,), default=False)
        allowed = _flags(action_mask, "action_mask", (states, actions), default=True)
        _check_actions(allowed | self.terminal[:, None])
        _check_rows(probabilities, allowed & ~self.terminal[:, None])
        if next_states is None:
            next_states = np.broadcast_to(np.arange(states), shape)
        next_states = _state_numbers(next_states, shape, states)
        over = self.terminal[next_states]
        if ends is not None:
            over = over | _flags(ends, "ends", shape, default=False)

        used = np.where((allowed & ~self.terminal[:, None])[:, :, None], probabilities, 0.0)
        width = max(1, int((used > 0).sum(axis=2).max()))
        order = np.argsort(used <= 0, axis=2, kind="stable")[:, :, :width]
        packed = np.take_along_axis(used, order, axis=2)
        totals = packed.sum(axis=2, keepdims=True)
        self.probabilities = _frozen(packed / np.where(totals > 0, totals, 1.0))
        self.next_states = _frozen(np.take_along_axis(next_states, order, axis=2))
        everywhere = np.broadcast_to(rewards, shape)
        kept = self.probabilities > 0
        self.rewards = _frozen(np.where(kept, np.take_along_axis(everywhere, order, axis=2), 0.0))
        self.ends = _frozen(np.take_along_axis(over, order, axis=2))
        self.action_mask = _frozen(allowed)
        self.start = _frozen(_start(start, states))

    @property
    def num_states(self) -> int:
        """The number of states."""
        return self.probabilities.shape[0]

    @property
    def num_actions(self) -> int:
        """The number of actions."""
        return self.probabilities.shape[1]

    @property
    def largest_return(self) -> float:
        r"""A bound on the size of the return from any state, on any path; needs `gamma` < 1.

        $W(x) = \max_{a, k} (R + \gamma W(X'))$ over the outcomes, and the same with min, iterated
        from $\pm R_{\max} / (1 - \gamma)$, from where it only gets tighter. It is much smaller
        than that if large rewards come but once, as at a goal.
        """
        bounds = []
        for sign in (1.0, -1.0):
            rewards = np.where(self.probabilities > 0, sign * self.rewards, -np.inf)
            carried = np.where(self.ends, 0.0, self.gamma)
            best = np.full(self.num_states, np.abs(self.rewards).max() / (1.0 - self.gamma))
            for _ in range(min(_PASSES, math.ceil(math.log(1e-3) / math.log(self.gamma)))):
                outcomes = rewards + carried * best[self.next_states]
                best = np.maximum(outcomes.max(axis=(1, 2)), 0.0)
            bounds.append(float(best.max()))
        return max(bounds)

    def truncation(self, tolerance: float | None = None) -> Truncation:
        r"""The smallest horizon T with $\gamma^T W \le$ `tolerance`, W the `largest_return`.

        What is cut off is $\sum_{t \ge T} \gamma^t R_t$, on every path at most that. A measure is
        monotone and moves with a sure amount, so its value changes by no more; E[h(G)] changes by
        up to $\phi(0)$ times as much, the Lipschitz constant of h (appendix B).

        By default the tolerance is a ten-thousandth of W.
        """
        if tolerance is not None:
            tolerance = real(tolerance, "tolerance")
            if not tolerance > 0.0:
                raise ValueError(
                    f"`tolerance` must be positive, got {tolerance}. It is how much of a return "
                    "may be lost by cutting an endless problem."
                )
        if self.horizon is not None:
            return Truncation(self.horizon, 0.0)
        whole = self.largest_return
        share = _CUT if tolerance is None else tolerance / max(whole, tolerance)
        steps = max(1, math.ceil(math.log(share) / math.log(self.gamma)))
        return Truncation(steps, self.gamma**steps * whole)

    @classmethod
    def from_tables(
        cls, tables: Tables, *, gamma: float, horizon: int | None = None
    ) -> "FiniteMDP":
        """The problem of `CliffWalk.tables()`, which say nothing of discounting and time limits."""
        probabilities, rewards, terminal, start = tables
        return cls(probabilities, rewards, terminal, start, gamma=gamma, horizon=horizon)

    @classmethod
    def from_gymnasium(
        cls, env: Any, *, gamma: float, horizon: int | None = None, start: Any = None
    ) -> "FiniteMDP":
        """The problem of a Gymnasium environment with a table, such as FrozenLake or Taxi.

        Arguments:
            env: an environment whose `unwrapped.P[state][action]` lists the outcomes
                (probability, next state, reward, terminated).
            gamma: the discount factor.
            horizon: the number of decisions; the environment's own time limit is not taken over,
                because it lies in a wrapper and is not part of the table.
            start: the state to start in, or probabilities; by default the environment's
                `initial_state_distrib`.
        """
        bare = getattr(env, "unwrapped", env)
        table = getattr(bare, "P", None)
        if not isinstance(table, Mapping | Sequence) or not len(table):
            raise TypeError(
                f"`env` must have a table `P[state][action]` of outcomes, got {env!r}. FrozenLake, "
                "Taxi, CliffWalking and other toy-text environments have one."
            )
        if start is None:
            start = getattr(bare, "initial_state_distrib", None)
        if start is None:
            raise ValueError(
                f"`start` must be given, because {env!r} has no `initial_state_distrib`."
            )
        rows = [[table[s][a] for a in range(len(table[s]))] for s in range(len(table))]
        actions = max(len(row) for row in rows)
        most = max(len(outcomes) for row in rows for outcomes in row)
        columns = np.zeros((4, len(rows), actions, most))
        mask = np.zeros((len(rows), actions), dtype=bool)
        for s, row in enumerate(rows):
            for a, outcomes in enumerate(row):
                mask[s, a] = True
                for k, outcome in enumerate(outcomes):
                    columns[:, s, a, k] = [float(part) for part in outcome]
        probability, state, reward, over = columns
        return cls(
            probability,
            reward,
            start=start,
            gamma=gamma,
            horizon=horizon,
            action_mask=mask,
            next_states=state.astype(int),
            ends=over.astype(bool),
        )


# --- checks ---------------------------------------------------------------------------------------


def _floats(array: Any, name: str) -> np.ndarray:
    floats = as_floats(array, name)
    check_finite(floats, name)
    return np.asarray(floats, dtype=np.float64)


def _frozen(array: np.ndarray) -> np.ndarray:
    array = np.array(array)
    array.flags.writeable = False
    return array


def _discounting(gamma: Any, horizon: Any) -> tuple[float, int | None]:
    gamma = real(gamma, "gamma")
    if not 0.0 < gamma <= 1.0:
        raise ValueError(
            f"`gamma` must be in (0, 1], got {gamma}. 1 means that a later reward counts in full."
        )
    if horizon is None:
        if gamma == 1.0:
            raise ValueError(
                "`horizon` must be given if `gamma` is 1, got None. Without a discount an episode "
                "that never ends has no return: pass the number of decisions, or `gamma` < 1."
            )
        return gamma, None
    if isinstance(horizon, bool) or not isinstance(horizon, int | np.integer):
        raise TypeError(f"`horizon` must be a whole number or None, got {horizon!r}.")
    if horizon < 1:
        raise ValueError(
            f"`horizon` must be at least 1, got {horizon}. It is the number of decisions."
        )
    return gamma, int(horizon)


def _flags(flags: Any, name: str, shape: tuple[int, ...], *, default: bool) -> np.ndarray:
    if flags is None:
        return _frozen(np.full(shape, default))
    flags = np.asarray(flags)
    if flags.shape != shape or not np.isin(flags, (0, 1)).all():
        raise ValueError(
            f"`{name}` must hold True or False in the shape {shape}, got shape {flags.shape} and "
            f"dtype {flags.dtype}."
        )
    return _frozen(flags.astype(bool))


def _check_actions(allowed: np.ndarray) -> None:
    stuck = np.flatnonzero(~allowed.any(axis=1))
    if stuck.size:
        raise ValueError(
            f"`action_mask` must allow an action in every state that is not terminal, got none in "
            f"state {stuck[0]}. Mark the state as terminal if the episode is over there."
        )


def _check_rows(probabilities: np.ndarray, used: np.ndarray) -> None:
    negative = np.argwhere((probabilities < 0) & used[:, :, None])
    if negative.size:
        s, a, k = negative[0]
        raise ValueError(
            f"`probabilities` must be non-negative, got {probabilities[s, a, k]} for outcome {k} "
            f"of action {a} in state {s}."
        )
    totals = probabilities.sum(axis=2)
    off = np.argwhere((np.abs(totals - 1.0) > _SUM_TOLERANCE) & used)
    if off.size:
        s, a = off[0]
        raise ValueError(
            f"`probabilities` must sum to 1 for every state and action, got {totals[s, a]:.8g} for "
            f"action {a} in state {s} ({len(off)} such in all). Divide by the sums if they are "
            "counts, mark states without a way on as `terminal`, or take actions that do not exist "
            "out with `action_mask`."
        )


def _state_numbers(numbers: Any, shape: tuple[int, ...], states: int) -> np.ndarray:
    numbers = np.asarray(numbers)
    if numbers.shape != shape or not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(
            f"`next_states` must hold state numbers in the shape {shape} of `probabilities`, got "
            f"shape {numbers.shape} and dtype {numbers.dtype}."
        )
    if numbers.min() < 0 or numbers.max() >= states:
        raise ValueError(
            f"`next_states` must be in [0, {states - 1}], got values from {numbers.min()} to "
            f"{numbers.max()}."
        )
    return numbers.astype(np.int64)


def _start(start: Any, states: int) -> np.ndarray:
    given = np.asarray(start)
    if given.ndim == 0:
        if not np.issubdtype(given.dtype, np.integer):
            raise TypeError(
                f"`start` must be a state number or a probability per state, got {start!r}."
            )
        if not 0 <= given < states:
            raise ValueError(f"`start` must be a state in [0, {states - 1}], got {start}.")
        return np.eye(states)[given]
    chances = _floats(start, "start")
    if chances.shape != (states,):
        raise ValueError(
            f"`start` must be a state number or one probability for each of the {states} states, "
            f"got shape {chances.shape}."
        )
    if chances.min() < 0 or abs(chances.sum() - 1.0) > _SUM_TOLERANCE:
        raise ValueError(
            f"`start` must be non-negative and sum to 1, got a smallest value of {chances.min()} "
            f"and a sum of {chances.sum():.8g}."
        )
    return chances / chances.sum()
