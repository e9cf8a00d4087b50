r"""Backward recursion on a lattice: the best E[h] for a fixed h, and the policy that attains it."""

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from downside.exact.lattice import Lattice, Windows
from downside.risk import Utility

_TIE = 1e-13
"""Actions whose values differ by less than this, relative to the largest value, are as good."""
_NARROW = 384
"""Below so many points all outcomes are gathered at once; above, each is a slice."""
_BLOCK = 2**20
_THREADS = min(4, os.cpu_count() or 1)
_WORTH_THREADS = 2**22
"""Points times outcomes from which on work is divided among threads."""


class Table(NamedTuple):
    """The actions of one time."""

    offset: Int[np.ndarray, " S"]
    """Where each state's points begin."""
    actions: Int[np.ndarray, " n"]
    """The best action of each point."""


class Backward(NamedTuple):
    """What the recursion came back with."""

    values: tuple[Float[np.ndarray, " n"], ...]
    """At time 0, the value of each state's points."""
    tables: tuple[Table, ...]
    """The actions of each time, if they were asked for."""


class Lines:
    """H in NumPy, and the lines that it follows below and above its knots."""

    def __init__(self, utility: Utility):
        knots, drops = (np.asarray(part, dtype=float) for part in (utility.knots, utility.drops))
        self.linear, self.offset = float(utility.linear), float(utility.offset)
        self.steepest, self.rise = self.linear + float(drops.sum()), float(drops @ knots)
        self.exact = Utility(knots, drops, linear=self.linear, offset=self.offset)

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """The value of h."""
        return np.asarray(self.exact(z))

    def below(self, z: np.ndarray) -> np.ndarray:
        """The line below all knots, extended."""
        return self.offset - self.rise + self.steepest * z

    def above(self, z: np.ndarray) -> np.ndarray:
        """The line above all knots, extended."""
        return self.offset + self.linear * z


def backward(
    lattice: Lattice, utility: Utility, windows: Windows, *, keep_actions: bool = False
) -> Backward:
    r"""$V_t(x, s) = \max_a \mathbb{E}[V_{t+1}(X', s + \gamma^t R)]$ on the lattice.

    Between two points the value is the line through both: the mean over the two ways to round.
    """
    run = _Recursion(lattice, utility, windows, keep_actions)
    values, tables = run.last(), []
    for time in range(lattice.cut - 1, -1, -1):
        values, table = run.step(time, values)
        tables.append(table)
    return Backward(tuple(values), tuple(reversed(tables)) if keep_actions else ())


def start_value(lattice: Lattice, utility: Utility, windows: Windows, result: Backward) -> float:
    """The value of an episode that starts with nothing."""
    lines, total = Lines(utility), 0.0
    rest = lattice.mean_left(0)
    for state in np.flatnonzero(lattice.start).tolist():
        place = -int(windows.first[0, state])
        if 0 <= place < windows.sizes[0, state]:
            value = float(result.values[state][place])
        else:
            line = lines.below if place < 0 else lines.above
            value = float(line(rest[state : state + 1])[0])
        total += float(lattice.start[state]) * value
    return total


class _Step(NamedTuple):
    """One time step of the recursion."""

    flat: Float[np.ndarray, " n"]
    """The values of the next time, state by state."""
    places: Int[np.ndarray, " outcomes"]
    """Where in them each outcome of a list's first point leads to."""
    left: Float[np.ndarray, " outcomes"]
    """Its weight there."""
    right: Float[np.ndarray, " outcomes"]
    """Its weight one point further."""
    lengths: Int[np.ndarray, " lists"]
    """The number of points of each list,"""
    lists: Float[np.ndarray, "lists n"]
    """and its values there, to be filled in; not used for a list of a single pair."""
    pair_places: Int[np.ndarray, " pairs"]
    """Where in its list the first point of each pair leads to,"""
    pair_parts: Float[np.ndarray, " pairs"]
    """and how far from there to the next point."""
    slack: float
    """Values closer than this are equal."""
    counts: Int[np.ndarray, " S"]
    """The number of points of each state."""
    offset: Int[np.ndarray, " S"]
    """Where they begin in what follows."""
    best: Float[np.ndarray, " n"]
    """The values, to be filled in."""
    actions: Int[np.ndarray, " n"]
    """The actions, to be filled in; empty if they are not wanted."""


class _Recursion:
    def __init__(self, lattice: Lattice, utility: Utility, windows: Windows, keep_actions: bool):
        self.lattice, self.windows, self.keep = lattice, windows, keep_actions
        self.lines = Lines(utility)
        listed, lists = lattice.transitions, lattice.lists
        self.list_ends = lists.begins + lists.sizes
        self.list_of = np.repeat(np.arange(lists.begins.size), lists.sizes)
        self.last_pairs = np.append(listed.first_pairs[1:], listed.pairs.size)
        self.shared = np.bincount(lists.of_pair) > 1
        self.pair_actions = listed.actions[listed.pairs]

    def last(self) -> list[np.ndarray]:
        """Values at the cut: h after the mean of the rest, rounded like a reward."""
        lattice = self.lattice
        whole, part = lattice.split(lattice.mean_left(lattice.cut))
        values = []
        for state in range(whole.size):
            begin = self.windows.first[lattice.cut, state] + whole[state]
            points = begin + np.arange(self.windows.sizes[lattice.cut, state] + 1)
            worth = self.lines(lattice.width * points)
            values.append((1 - part[state]) * worth[:-1] + part[state] * worth[1:])
        return values

    def step(self, time: int, later: Sequence[np.ndarray]) -> tuple[list[np.ndarray], Table]:
        """Values and actions at a time from the values of the next."""
        lattice, listed = self.lattice, self.lattice.transitions
        first, count = self.windows.first[time], self.windows.sizes[time].copy()
        ended = lattice.mdp.num_states
        offset = np.concatenate([[0], np.cumsum(count)])
        dtype = np.uint8 if lattice.mdp.num_actions <= 256 else np.int32
        best = np.empty(offset[-1])
        actions = np.zeros(offset[-1] if self.keep else 0, dtype=dtype)
        wanted = np.flatnonzero(count[listed.live] > 0)
        if wanted.size:
            step = self._prepared(time, later, first, count)
            self._run(step._replace(offset=offset, best=best, actions=actions), wanted)
        values = [best[a:b] for a, b in itertools.pairwise(offset)]
        points = first[ended] + np.arange(count[ended])
        values[ended] = self.lines(lattice.width * points)
        return values, Table(offset, actions)

    def _prepared(
        self, time: int, later: Sequence[np.ndarray], first: np.ndarray, count: np.ndarray
    ) -> _Step:
        """Which points of its list a pair reads, and which of the next time a list does."""
        lattice, lists = self.lattice, self.lattice.lists
        of_pair, states = lists.of_pair, lattice.pair_states
        whole, pair_parts = lattice.pair_shifts(time)
        used = count[states] > 0
        begin = np.full(lists.begins.size, np.iinfo(np.int64).max)
        end = np.full(lists.begins.size, np.iinfo(np.int64).min)
        reads = first[states] + whole
        np.minimum.at(begin, of_pair[used], reads[used])
        np.maximum.at(end, of_pair[used], (reads + count[states] + (pair_parts > 0))[used])
        idle = end <= begin
        begin[idle] = end[idle] = 0
        lengths = end - begin
        pair_places = np.where(used, reads - begin[of_pair], 0)

        whole, part = lattice.shifts(time)
        reads = begin[self.list_of] + whole
        busy = ~idle[self.list_of]
        low, high = int(reads[busy].min()), int((reads + lengths[self.list_of])[busy].max()) + 1
        rows = self._rows(time + 1, later, low, high)
        places = np.where(busy, lists.next_states * (high - low + 1) + reads - low, 0)
        narrow = int(lengths.max()) < _NARROW
        kept = lists.begins.size if narrow or self.shared.any() else 0
        return _Step(
            flat=rows,
            places=places,
            left=lists.probabilities * (1.0 - part),
            right=lists.probabilities * part,
            lengths=lengths,
            lists=np.zeros((kept, int(lengths.max()) + 1)),
            pair_places=pair_places,
            pair_parts=pair_parts,
            slack=_TIE * float(np.abs(rows).max()),
            counts=count,
            offset=count,
            best=rows,
            actions=count,
        )

    def _rows(self, time: int, values: Sequence[np.ndarray], begin: int, end: int) -> np.ndarray:
        """Values of all states at the points from `begin` to `end`, lines outside the windows."""
        lattice, width = self.lattice, end - begin + 1
        rest = lattice.mean_left(time)
        money = lattice.width * np.arange(begin, end + 1)
        rows = np.zeros(len(values) * width + _NARROW + 1)  # what is gathered may run over the end
        for state, value in enumerate(values):
            first = int(self.windows.first[time, state]) - begin
            left = min(max(first, 0), width)
            right = min(max(first + value.size, left), width)
            row = rows[state * width : (state + 1) * width]
            row[:left] = self.lines.below(money[:left] + rest[state])
            row[right:] = self.lines.above(money[right:] + rest[state])
            row[left:right] = value[left - first : right - first]
        return rows

    def _run(self, step: _Step, wanted: np.ndarray) -> None:
        """First the lists, then the states: in threads if there is much to do."""
        if int(step.lengths.max()) < _NARROW:
            self._gather(step)
            return
        shared = np.flatnonzero(self.shared & (step.lengths > 0))
        sizes = self.lattice.lists.sizes
        _in_threads(self._sum_lists, step, shared, (step.lengths * sizes)[shared])
        listed = self.lattice.transitions
        pairs = (self.last_pairs - listed.first_pairs)[wanted]
        work = pairs * step.counts[listed.live[wanted]]
        if not self.shared.any():
            work = work * int(sizes.max())
        _in_threads(self._decide, step, wanted, work)

    def _sum_lists(self, step: _Step, numbers: np.ndarray) -> None:
        for number in numbers.tolist():
            n = int(step.lengths[number])
            self._sum(step, number, step.lists[number, :n], np.empty(n))

    def _sum(self, step: _Step, number: int, total: np.ndarray, part: np.ndarray) -> None:
        """The mean over the outcomes of a list, at all of its points."""
        outcomes, n = slice(self.lattice.lists.begins[number], self.list_ends[number]), total.size
        total[:] = 0.0
        for at, left, right in zip(
            step.places[outcomes].tolist(),
            step.left[outcomes].tolist(),
            step.right[outcomes].tolist(),
            strict=True,
        ):
            np.multiply(step.flat[at : at + n], left, out=part)
            np.add(total, part, out=total)
            if right > 0.0:
                np.multiply(step.flat[at + 1 : at + 1 + n], right, out=part)
                np.add(total, part, out=total)

    def _decide(self, step: _Step, wanted: np.ndarray) -> None:
        """The best pair of each state, at all of its points."""
        listed, of_pair = self.lattice.transitions, self.lattice.lists.of_pair
        for live in wanted.tolist():
            state = listed.live[live]
            n, place = int(step.counts[state]), int(step.offset[state])
            best = step.best[place : place + n]
            chosen = step.actions[place : place + n]
            total, part = np.empty(n), np.empty(n)
            begin = listed.first_pairs[live]
            for pair in range(begin, self.last_pairs[live]):
                number = int(of_pair[pair])
                if self.shared[number]:
                    at, share = int(step.pair_places[pair]), float(step.pair_parts[pair])
                    np.multiply(step.lists[number, at : at + n], 1.0 - share, out=total)
                    if share > 0.0:
                        np.multiply(step.lists[number, at + 1 : at + 1 + n], share, out=part)
                        np.add(total, part, out=total)
                else:
                    self._sum(step, number, total, part)
                if pair == begin:
                    best[:] = total
                    chosen[:] = self.pair_actions[pair]
                    continue
                if self.keep:
                    np.add(best, step.slack, out=part)
                    np.copyto(chosen, self.pair_actions[pair], where=total > part, casting="unsafe")
                np.maximum(best, total, out=best)

    def _gather(self, step: _Step) -> None:
        """All lists, and then all pairs, at once: for windows so narrow that slices do not pay."""
        listed, lists = self.lattice.transitions, self.lattice.lists
        width = step.lists.shape[1] - 1
        ahead = np.lib.stride_tricks.sliding_window_view(step.flat, width + 1)
        for numbers in _blocks(self.list_ends, _BLOCK // (width + 1)):
            outcomes = slice(lists.begins[numbers.start], self.list_ends[numbers.stop - 1])
            read = ahead[step.places[outcomes]]
            worth = step.left[outcomes, None] * read[:, :-1]
            worth += step.right[outcomes, None] * read[:, 1:]
            begins = lists.begins[numbers] - lists.begins[numbers.start]
            step.lists[numbers, :-1] = np.add.reduceat(worth, begins, axis=0)
        flat = np.append(step.lists.ravel(), np.zeros(width + 1))
        most = int(step.counts[listed.live].max())
        ahead = np.lib.stride_tricks.sliding_window_view(flat, most + 1)
        places = lists.of_pair * (width + 1) + step.pair_places
        for group in _blocks(self.last_pairs, _BLOCK // (most + 1)):
            pairs = slice(listed.first_pairs[group.start], self.last_pairs[group.stop - 1])
            read, share = ahead[places[pairs]], step.pair_parts[pairs, None]
            score = (1.0 - share) * read[:, :-1] + share * read[:, 1:]
            begins = listed.first_pairs[group] - listed.first_pairs[group.start]
            best = np.maximum.reduceat(score, begins, axis=0)
            chosen = np.zeros(best.shape, dtype=step.actions.dtype)
            if self.keep:
                widths = (self.last_pairs - listed.first_pairs)[group]
                good = score >= np.repeat(best, widths, axis=0) - step.slack
                numbers = np.where(good, self.pair_actions[pairs, None], 2**31 - 1)
                chosen = np.minimum.reduceat(numbers, begins, axis=0)
            for i, live in enumerate(range(group.start, group.stop)):
                state = listed.live[live]
                place = slice(step.offset[state], step.offset[state] + step.counts[state])
                step.best[place] = best[i, : step.counts[state]]
                if self.keep:
                    step.actions[place] = chosen[i, : step.counts[state]]


def _blocks(ends: np.ndarray, most: int) -> list[slice]:
    """Neighbours in blocks of at most so many members together, or alone; `ends` counts them."""
    blocks, begin, before = [], 0, 0
    while begin < ends.size:
        end = max(begin + 1, int(np.searchsorted(ends, before + most, side="right")))
        blocks.append(slice(begin, end))
        begin, before = end, int(ends[end - 1])
    return blocks


def _in_threads(
    run: Callable[[_Step, np.ndarray], None], step: _Step, which: np.ndarray, work: np.ndarray
) -> None:
    """Calls `run` for all of `which`: NumPy lets go of the interpreter while it works."""
    total = np.cumsum(work)
    if not which.size or total[-1] < _WORTH_THREADS:
        run(step, which)
        return
    edges = np.searchsorted(total, total[-1] * np.arange(1, _THREADS) / _THREADS)
    chunks = [chunk for chunk in np.split(which, edges) if chunk.size]
    with ThreadPoolExecutor(len(chunks)) as pool:
        for done in [pool.submit(run, step, chunk) for chunk in chunks]:
            done.result()
