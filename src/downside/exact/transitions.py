"""The outcomes of a finite problem as a list, and what is still to come by time and state."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from downside.exact.mdp import FiniteMDP

_NOTHING = 1e-13
"""Where the rest of a return is this small a share of the largest, time no longer matters."""
_MOST_UPDATES = 5_000_000_000
"""Outcomes times steps that the recursion over time and state may go through: about a minute."""
_SAME_REWARD = 1e-12
"""Rewards that differ by this share of the largest are equal."""
_WORTH_SHARING = 0.6
"""Pairs share lists if that leaves at most this share of the outcomes."""
_STEP_COST = 4_000
"""A step costs at least as much as this many outcomes."""


class TooLargeError(ValueError):
    """The problem does not fit into the limits of memory or time."""


class Transitions(NamedTuple):
    """Every possible outcome once, sorted by state and action; equal outcomes are put together."""

    states: Int[np.ndarray, " n"]
    """Where the action is taken."""
    actions: Int[np.ndarray, " n"]
    """Its number."""
    probabilities: Float[np.ndarray, " n"]
    """How likely the outcome is."""
    next_states: Int[np.ndarray, " n"]
    """Where it leads; the number of states, one past the last, if the episode ends."""
    rewards: Float[np.ndarray, " n"]
    """What it pays."""
    pairs: Int[np.ndarray, " m"]
    """Where the outcomes of each pair of state and action begin."""
    live: Int[np.ndarray, " l"]
    """The states that have outcomes: all but the terminal ones."""
    first_outcomes: Int[np.ndarray, " l"]
    """Where the outcomes of each live state begin."""
    first_pairs: Int[np.ndarray, " l"]
    """Where the pairs of each live state begin."""

    @classmethod
    def of(cls, mdp: FiniteMDP) -> "Transitions":
        """The outcomes of a problem."""
        at = np.nonzero(mdp.probabilities > 0)
        states, actions, _ = at
        leads_to = np.where(mdp.ends[at], mdp.num_states, mdp.next_states[at])
        rewards = mdp.rewards[at]
        order = np.lexsort((rewards, leads_to, actions, states))
        columns = [column[order] for column in (states, actions, leads_to, rewards)]
        first = np.ones(order.size, dtype=bool)
        first[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
        begin = np.flatnonzero(first)
        states, actions, leads_to, rewards = (column[begin] for column in columns)
        chances = np.add.reduceat(mdp.probabilities[at][order], begin)
        new_pair = np.ones(begin.size, dtype=bool)
        new_pair[1:] = (np.diff(states) != 0) | (np.diff(actions) != 0)
        pairs = np.flatnonzero(new_pair)
        live, first_pairs = np.unique(states[pairs], return_index=True)
        return cls(
            states=states,
            actions=actions,
            probabilities=chances,
            next_states=leads_to,
            rewards=rewards,
            pairs=pairs,
            live=live,
            first_outcomes=pairs[first_pairs],
            first_pairs=first_pairs,
        )


class Lists(NamedTuple):
    """What actions lead to, but for a sure amount: lists of outcomes that pairs may share.

    In an inventory what follows depends on stock plus order alone, but for what the order costs:
    all pairs of one sum share a list. Where sharing saves little, each pair has a list of its own.
    """

    probabilities: Float[np.ndarray, " n"]
    """How likely each outcome is."""
    next_states: Int[np.ndarray, " n"]
    """Where it leads."""
    rewards: Float[np.ndarray, " n"]
    """What it pays."""
    begins: Int[np.ndarray, " k"]
    """Where the outcomes of each list begin."""
    of_pair: Int[np.ndarray, " m"]
    """The list of each pair of state and action,"""
    amounts: Float[np.ndarray, " m"]
    """and what the pair pays beyond it."""
    slack: float
    """How far a reward can be from the list's and the pair's together."""

    @classmethod
    def of(cls, transitions: Transitions) -> "Lists":
        """The lists of a problem."""
        _, _, chances, leads_to, rewards, pairs, *_ = transitions
        ends = np.append(pairs[1:], chances.size)
        numbers: dict[bytes, int] = {}
        users, of_pair = [], np.empty(pairs.size, dtype=np.int64)
        slack = _SAME_REWARD * float(np.abs(rewards).max(initial=0.0))
        beyond = rewards - np.repeat(rewards[pairs], ends - pairs)
        steps = np.rint(beyond / slack).astype(np.int64) if slack > 0 else leads_to
        for pair, (begin, end) in enumerate(zip(pairs.tolist(), ends.tolist(), strict=True)):
            part = slice(begin, end)
            key = b"".join(column[part].tobytes() for column in (leads_to, chances, steps))
            of_pair[pair] = numbers.setdefault(key, len(numbers))
            if len(numbers) > len(users):
                users.append(pair)
        first = np.array(users)
        sizes = ends[first] - pairs[first]
        if sizes.sum() + 2 * pairs.size > _WORTH_SHARING * chances.size:
            nothing = np.zeros(pairs.size)
            return cls(chances, leads_to, rewards, pairs, np.arange(pairs.size), nothing, 0.0)
        begins = np.cumsum(sizes) - sizes
        at = np.repeat(pairs[first] - begins, sizes) + np.arange(sizes.sum())
        amounts = rewards[pairs] - rewards[pairs[first]][of_pair]
        return cls(chances[at], leads_to[at], rewards[at], begins, of_pair, amounts, slack)

    @property
    def sizes(self) -> Int[np.ndarray, " k"]:
        """The number of outcomes of each list."""
        return np.diff(np.append(self.begins, self.probabilities.size))


class ReturnsToGo(NamedTuple):
    """The return to come by the number of decisions that are left: its extremes and best mean.

    Row k belongs to k decisions left, and the last row to any larger number: nothing changes there
    any more. The last column is the end of the episode.
    """

    mean: Float[np.ndarray, "K S"]
    """The best expected return to come."""
    low: Float[np.ndarray, "K S"]
    """The smallest return to come that any path has."""
    high: Float[np.ndarray, "K S"]
    """The largest."""
    greedy: Int[np.ndarray, "K S"]
    """The action that is best for the mean, the first of equal ones."""
    deviation: Float[np.ndarray, "K S"]
    """The standard deviation of the return to come of the greedy policy."""
    horizon: int | None
    """The number of decisions of the problem."""

    def left(self, time: int) -> int:
        """The row of a time."""
        last = len(self.mean) - 1
        return last if self.horizon is None else min(self.horizon - time, last)


def to_go(mdp: FiniteMDP, transitions: Transitions) -> ReturnsToGo:
    """Backward recursion over time and state, until the horizon or until nothing changes."""
    horizon, gamma = mdp.horizon, mdp.gamma
    steps = horizon
    if gamma < 1.0:
        enough = math.ceil(math.log(_NOTHING * (1.0 - gamma)) / math.log(gamma))
        steps = enough if horizon is None else min(horizon, enough)
    assert steps is not None  # without a discount there is a horizon
    work = steps * (transitions.states.size + _STEP_COST)
    memory = 36 * steps * (mdp.num_states + 1)
    if work > _MOST_UPDATES or memory > 4 * 2**30:
        raise TooLargeError(
            f"`mdp` is too large for the planner: {steps:,} decisions count (`horizon` {horizon}, "
            f"`gamma` {gamma}), with {transitions.states.size:,} outcomes each. At most "
            f"{_MOST_UPDATES // (transitions.states.size + _STEP_COST):,} decisions of this size "
            f"can be gone through. Use a smaller `gamma` or `horizon`, or coarser time steps."
        )
    shape = (steps + 1, mdp.num_states + 1)
    mean, low, high, square = (np.zeros(shape) for _ in range(4))
    greedy = np.zeros(shape, dtype=np.int32)
    _, actions, chances, leads_to, rewards, pairs, live, first, first_pairs = transitions
    widths = np.diff(np.append(first_pairs, pairs.size))
    for k in range(1, steps + 1):
        worth = chances * (rewards + gamma * mean[k - 1][leads_to])
        score = np.add.reduceat(worth, pairs)
        best = np.maximum.reduceat(score, first_pairs)
        mean[k, live] = best
        slack = 1e-13 * np.abs(best).max(initial=0.0)
        good = np.flatnonzero(score >= np.repeat(best, widths) - slack)
        chosen = good[np.searchsorted(good, first_pairs)]
        greedy[k, live] = actions[pairs[chosen]]
        later = rewards**2 + 2 * gamma * rewards * mean[k - 1][leads_to]
        later += gamma**2 * square[k - 1][leads_to]
        square[k, live] = np.add.reduceat(chances * later, pairs)[chosen]
        low[k, live] = np.minimum.reduceat(rewards + gamma * low[k - 1][leads_to], first)
        high[k, live] = np.maximum.reduceat(rewards + gamma * high[k - 1][leads_to], first)
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    return ReturnsToGo(mean, low, high, greedy, deviation, horizon)
