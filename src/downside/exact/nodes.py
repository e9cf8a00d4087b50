r"""The nodes (time, state, accumulated reward) that a finite problem can reach, level by level."""

import math
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
    errors: Float[np.ndarray, " n"]
    """How far the accumulated reward of a path through the node can be from the node's."""
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
    """All nodes, and how they were put together."""

    levels: tuple[Level, ...]
    """One for each time from 0 to the horizon."""
    start: Float[np.ndarray, " n"]
    """The probability of each node of the first level."""
    snapped: int
    """The number of levels on which different accumulated rewards were put together."""
    resolution: float | None
    """The width of the cells on those levels."""

    @property
    def size(self) -> int:
        """The number of nodes."""
        return sum(level.states.size for level in self.levels)

    @property
    def error(self) -> float:
        """How far a return can be from the one of the node that its path ends at."""
        return float(np.concatenate([level.errors[: level.over] for level in self.levels]).max())


class TooManyNodesError(ValueError):
    """The problem has more nodes than allowed."""


def enumerate_nodes(
    mdp: FiniteMDP,
    arrivals: Arrivals,
    horizon: int,
    *,
    max_nodes: int,
    resolution: float | None,
) -> Nodes:
    r"""Every node that some policy can reach.

    Accumulated rewards that are equal up to rounding are one node, which keeps rewards on a lattice
    small. Where there are still too many, a level is cut into cells of width `resolution`, and what
    lies in one cell becomes one node in the middle of its content. That moves a path by at most
    half a cell; each node records how far the paths through it have been moved in all, and the
    largest such `error` over the ends bounds the change of every return, whatever the policy.

    Without a `resolution`, the problem is first tried without cells. If that takes more than
    `max_nodes`, the width is chosen from the ranges of the accumulated rewards so that it fits.
    A level that has no more nodes than it could have cells is left as it is.
    """
    if resolution is None:
        try:
            return _enumerate(mdp, arrivals, horizon, max_nodes, None)
        except TooManyNodesError:
            pass
    spans = _spans(mdp, arrivals, horizon)
    if resolution is None:
        pairs, length = sum(n for n, _ in spans), math.fsum(width for _, width in spans)
        allowed = max_nodes * min(1.0, EDGES_PER_NODE / arrivals.rewards.shape[1])
        if allowed <= 2 * pairs:
            raise TooManyNodesError(
                f"`max_nodes` must be more than {math.ceil(2 * pairs * max_nodes / allowed)} for "
                f"this problem, got {max_nodes}: it has {pairs} pairs of time and state."
            )
        resolution = length / (allowed - 2 * pairs)
    # A range of this length meets that many cells, or one more if it lies across a border.
    quotas = [2 * pairs + length / resolution for pairs, length in spans]
    return _enumerate(mdp, arrivals, horizon, max_nodes, _Cells(resolution, quotas))


class _Cells(NamedTuple):
    width: float
    quotas: list[float]
    """The number of nodes of each level above which cells are used."""


def _enumerate(
    mdp: FiniteMDP, arrivals: Arrivals, horizon: int, max_nodes: int, cells: _Cells | None
) -> Nodes:
    support = np.flatnonzero(mdp.start)
    nothing = np.zeros(support.size)
    number, states, earned, errors, _ = _merge(
        np.where(mdp.terminal[support], OVER, support), nothing, nothing
    )
    start = np.bincount(number, weights=mdp.start[support])
    ways = arrivals.rewards.shape[1]
    levels, count, edges, snapped = [], states.size, 0, 0
    for time in range(horizon):
        over = np.searchsorted(states, OVER, side="right")
        live = states[over:]
        edges += live.size * ways
        if edges > EDGES_PER_NODE * max_nodes or count > max_nodes:
            raise TooManyNodesError(
                f"`max_nodes` must be larger, got {max_nodes}, reached after {time} of {horizon} "
                "decisions. Raise it, or pass a coarser `resolution`."
            )
        used = arrivals.used[live]
        towards = arrivals.next_states[live] if time + 1 < horizon else np.full(used.shape, OVER)
        later = earned[over:, None] + mdp.gamma**time * arrivals.rewards[live]
        so_far = np.broadcast_to(errors[over:, None], used.shape)
        merged = _merge(
            towards[used],
            later[used],
            so_far[used],
            width=None if cells is None else cells.width,
            quota=math.inf if cells is None else cells.quotas[time + 1],
        )
        children = np.zeros(used.shape, dtype=np.int32)
        children[used] = merged.number
        levels.append(Level(states, earned, errors, children))
        _, states, earned, errors, in_cells = merged
        count, snapped = count + states.size, snapped + in_cells
    levels.append(Level(states, earned, errors, np.zeros((0, ways), dtype=np.int32)))
    return Nodes(tuple(levels), start, snapped, cells.width if cells and snapped else None)


class _Merged(NamedTuple):
    number: Int[np.ndarray, " m"]
    """The node that each pair became."""
    states: Int[np.ndarray, " n"]
    accumulated: Float[np.ndarray, " n"]
    errors: Float[np.ndarray, " n"]
    in_cells: bool


def _merge(
    states: np.ndarray,
    earned: np.ndarray,
    errors: np.ndarray,
    *,
    width: float | None = None,
    quota: float = math.inf,
) -> _Merged:
    """Nodes out of pairs (state, accumulated reward): in cells if there are more than `quota`."""
    order = np.lexsort((earned, states))
    number = np.empty(order.size, dtype=np.int32)
    states, earned, errors = states[order], earned[order], errors[order]
    first = _changes(states, earned, ROUNDING * np.abs(earned).max(initial=0.0))
    in_cells = False
    if width is not None and np.count_nonzero(first) > quota:
        in_cells = True
        first = _changes(states, np.floor(earned / width))
    begin, group = np.flatnonzero(first), np.cumsum(first) - 1
    end = np.append(begin[1:], order.size)[: begin.size] - 1  # none, if all is over already
    middle = earned[begin] + (earned[end] - earned[begin]) / 2
    moved = errors + np.abs(earned - middle[group])
    number[order] = group
    worst = np.maximum.reduceat(moved, begin) if begin.size else moved
    return _Merged(number, states[begin], middle, worst, in_cells)


def _changes(keys: np.ndarray, values: np.ndarray, tolerance: float = 0.0) -> np.ndarray:
    """Where, in sorted pairs, one differs from the one before."""
    first = np.ones(keys.size, dtype=bool)
    first[1:] = (np.diff(keys) != 0) | (np.diff(values) > tolerance)
    return first


def _spans(mdp: FiniteMDP, arrivals: Arrivals, horizon: int) -> list[tuple[int, float]]:
    """For each level: how many states it has, and the total length of their reward ranges."""
    low = np.full(mdp.num_states + 1, np.inf)  # the last entry is `OVER`
    low[np.where(mdp.terminal, OVER, np.arange(mdp.num_states))[mdp.start > 0]] = 0.0
    high = np.where(low == 0.0, 0.0, -np.inf)
    spans = [(int(np.count_nonzero(low == 0.0)), 0.0)]
    for time in range(horizon):
        at, way = np.nonzero(arrivals.used & np.isfinite(low[:-1, None]))
        towards = arrivals.next_states[at, way] if time + 1 < horizon else np.full(at.size, OVER)
        earned = mdp.gamma**time * arrivals.rewards[at, way]
        lower, higher = np.full_like(low, np.inf), np.full_like(high, -np.inf)
        np.minimum.at(lower, towards, low[at] + earned)
        np.maximum.at(higher, towards, high[at] + earned)
        low, high = lower, higher
        reached = np.isfinite(low)
        spans.append((int(reached.sum()), math.fsum(high[reached] - low[reached])))
    return spans
