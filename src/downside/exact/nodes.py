r"""The nodes (time, state, accumulated reward) that a finite problem can reach, level by level."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from downside.exact.mdp import FiniteMDP

OVER = -1
"""The state of a node at which the episode is over."""

EDGES_PER_NODE = 16
"""With n nodes allowed, this many times n edges are; an edge costs 4 bytes, and 40 while sorted."""

ROUNDING = 1e-12
"""Accumulated rewards that are closer than this, relative to the largest, are the same."""


class Arrivals(NamedTuple):
    """The distinct ways (next state, reward) out of each state, whichever action takes them.

    Neighbouring actions share most of their outcomes (a slip may lead the same way), so a node has
    D children instead of one for each action and outcome.
    """

    next_states: Int[np.ndarray, "S D"]
    """Where the way leads; `OVER` if the episode ends."""
    rewards: Float[np.ndarray, "S D"]
    """What it pays."""
    used: Bool[np.ndarray, "S D"]
    """Whether the state has a way of this number."""
    ways: Int[np.ndarray, "S A K"]
    """The way that outcome k of action a takes."""

    @classmethod
    def of(cls, mdp: FiniteMDP) -> "Arrivals":
        """The ways out of every state of a problem."""
        at = np.nonzero(mdp.probabilities > 0)
        leads_to = np.where(mdp.ends[at], OVER, mdp.next_states[at])
        keys = at[0] * (mdp.num_states + 1) + (leads_to - OVER)
        order = np.lexsort((mdp.rewards[at], keys))
        first = _changes(keys[order], mdp.rewards[at][order])
        group = np.cumsum(first) - 1
        owner = at[0][order][first]
        number = np.arange(owner.size) - np.searchsorted(owner, owner)

        shape = (mdp.num_states, int(number.max(initial=0)) + 1)
        next_states, rewards = np.full(shape, OVER), np.zeros(shape)
        used, ways = np.zeros(shape, dtype=bool), np.zeros(mdp.probabilities.shape, dtype=np.int32)
        next_states[owner, number] = leads_to[order][first]
        rewards[owner, number] = mdp.rewards[at][order][first]
        used[owner, number] = True
        ways[tuple(axis[order] for axis in at)] = number[group]
        return cls(next_states, rewards, used, ways)


class Level(NamedTuple):
    """The nodes of one time, sorted by state and accumulated reward; those that are over first."""

    states: Int[np.ndarray, " n"]
    """State of each node, `OVER` if the episode is."""
    accumulated: Float[np.ndarray, " n"]
    """Discounted reward so far."""
    children: Int[np.ndarray, "live D"]
    """For each node that is not over, its children's numbers in the next level."""

    @property
    def over(self) -> int:
        """The number of nodes at which the episode is over."""
        return self.states.size - self.children.shape[0]

    def nearest(self, state: int, accumulated: float) -> int | None:
        """The running node of a state with the nearest accumulated reward, the lower one if two are
        as near; None where the state has no node."""
        begin, end = np.searchsorted(self.states, [max(state, 0), max(state, 0) + 1])
        if begin == end or state < 0:
            return None
        return int(begin + np.argmin(np.abs(self.accumulated[begin:end] - accumulated)))


class Nodes(NamedTuple):
    """All nodes."""

    levels: tuple[Level, ...]
    """One for each time from 0 to the horizon."""
    start: Float[np.ndarray, " n"]
    """The probability of each node of the first level."""

    @property
    def size(self) -> int:
        """The number of nodes."""
        return sum(level.states.size for level in self.levels)


class TooManyNodesError(ValueError):
    """The problem has more nodes than allowed."""


def enumerate_nodes(mdp: FiniteMDP, arrivals: Arrivals, horizon: int, *, max_nodes: int) -> Nodes:
    r"""Every node that some policy can reach.

    Accumulated rewards that are equal up to rounding are one node, which keeps rewards on a lattice
    small.
    """
    if horizon > max_nodes:
        raise TooManyNodesError(
            f"`max_nodes` must be more than the {horizon} decisions of this problem, got "
            f"{max_nodes}."
        )
    support = np.flatnonzero(mdp.start)
    number, states, earned = _merge(
        np.where(mdp.terminal[support], OVER, support), np.zeros(support.size)
    )
    start = np.bincount(number, weights=mdp.start[support])
    ways = arrivals.rewards.shape[1]
    levels, count, edges = [], states.size, 0
    for time in range(horizon):
        over = np.searchsorted(states, OVER, side="right")
        live = states[over:]
        edges += live.size * ways
        if edges > EDGES_PER_NODE * max_nodes or count > max_nodes:
            raise TooManyNodesError(
                f"`max_nodes` must be larger, got {max_nodes}, reached after {time} of {horizon} "
                "decisions. Raise it, or let ds.solve put rewards on a lattice."
            )
        used = arrivals.used[live]
        towards = arrivals.next_states[live] if time + 1 < horizon else np.full(used.shape, OVER)
        later = earned[over:, None] + mdp.gamma**time * arrivals.rewards[live]
        merged = _merge(towards[used], later[used])
        children = np.zeros(used.shape, dtype=np.int32)
        children[used] = merged.number
        levels.append(Level(states, earned, children))
        _, states, earned = merged
        count += states.size
    levels.append(Level(states, earned, np.zeros((0, ways), dtype=np.int32)))
    return Nodes(tuple(levels), start)


class _Merged(NamedTuple):
    number: Int[np.ndarray, " m"]
    """The node that each pair became."""
    states: Int[np.ndarray, " n"]
    accumulated: Float[np.ndarray, " n"]


def _merge(states: np.ndarray, earned: np.ndarray) -> _Merged:
    """Nodes out of pairs (state, accumulated reward)."""
    order = np.lexsort((earned, states))
    number = np.empty(order.size, dtype=np.int32)
    states, earned = states[order], earned[order]
    first = _changes(states, earned, ROUNDING * np.abs(earned).max(initial=0.0))
    begin = np.flatnonzero(first)
    end = np.append(begin[1:], order.size)[: begin.size] - 1  # none, if all is over already
    number[order] = np.cumsum(first) - 1
    return _Merged(number, states[begin], earned[begin] + (earned[end] - earned[begin]) / 2)


def _changes(keys: np.ndarray, values: np.ndarray, tolerance: float = 0.0) -> np.ndarray:
    """Where, in sorted pairs, one differs from the one before."""
    first = np.ones(keys.size, dtype=bool)
    first[1:] = (np.diff(keys) != 0) | (np.diff(values) > tolerance)
    return first
