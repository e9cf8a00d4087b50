"""The outcomes of a finite problem as arrays, checked and packed."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from downside._arrays import as_floats, check_finite

_SUM_TOLERANCE = 1e-6


class Outcomes(NamedTuple):
    """What every action in every state can lead to, the impossible left out."""

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


def pack_outcomes(
    probabilities: Any,
    rewards: Any,
    terminal: Any = None,
    start: Any = 0,
    *,
    action_mask: Any = None,
    next_states: Any = None,
    ends: Any = None,
) -> Outcomes:
    """The arrays that describe a finite problem, read-only, or an error that says what is wrong.

    `FiniteMDP` says what the arguments mean. Outcomes of probability 0 are dropped, those that
    remain come first, and K is what the richest action needs. The rows of terminal states and of
    actions that are not allowed are never looked at and come out as zeros.
    """
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
    terminal = _flags(terminal, "terminal", (states,), default=False)
    allowed = _flags(action_mask, "action_mask", (states, actions), default=True)
    _check_actions(allowed | terminal[:, None])
    _check_rows(probabilities, allowed & ~terminal[:, None])
    if next_states is None:
        next_states = np.broadcast_to(np.arange(states), shape)
    next_states = _state_numbers(next_states, shape, states)
    over = terminal[next_states]
    if ends is not None:
        over = over | _flags(ends, "ends", shape, default=False)

    used = np.where((allowed & ~terminal[:, None])[:, :, None], probabilities, 0.0)
    width = max(1, int((used > 0).sum(axis=2).max()))
    order = np.argsort(used <= 0, axis=2, kind="stable")[:, :, :width]
    packed = np.take_along_axis(used, order, axis=2)
    totals = packed.sum(axis=2, keepdims=True)
    packed = packed / np.where(totals > 0, totals, 1.0)
    pays = np.take_along_axis(np.broadcast_to(rewards, shape), order, axis=2)
    return Outcomes(
        probabilities=_frozen(packed),
        next_states=_frozen(np.take_along_axis(next_states, order, axis=2)),
        rewards=_frozen(np.where(packed > 0, pays, 0.0)),
        ends=_frozen(np.take_along_axis(over, order, axis=2)),
        terminal=terminal,
        start=_frozen(_start(start, states)),
        action_mask=_frozen(allowed),
    )


def as_horizon(horizon: Any) -> int | None:
    """A number of decisions, checked; None stands for no bound."""
    if horizon is None:
        return None
    if isinstance(horizon, bool) or not isinstance(horizon, int | np.integer):
        raise TypeError(f"`horizon` must be a whole number or None, got {horizon!r}.")
    if horizon < 1:
        raise ValueError(
            f"`horizon` must be at least 1, got {horizon}. It is the number of decisions."
        )
    return int(horizon)


def _floats(array: Any, name: str) -> np.ndarray:
    floats = as_floats(array, name)
    check_finite(floats, name)
    return np.asarray(floats, dtype=np.float64)


def _frozen(array: np.ndarray) -> np.ndarray:
    array = np.array(array)
    array.flags.writeable = False
    return array


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
