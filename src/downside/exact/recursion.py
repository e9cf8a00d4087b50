r"""Backward recursion on a lattice: the best E[h] for a fixed h, and the policy that attains it."""

import itertools
import os
from collections.abc import Sequence
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


class _Lines:
    """H in NumPy, and the lines that it follows below and above its knots."""

    def __init__(self, utility: Utility):
        knots, drops = (np.asarray(part, dtype=float) for part in (utility.knots, utility.drops))
        self.linear, self.offset = float(utility.linear), float(utility.offset)
        self.steepest, self.rise = self.linear + float(drops.sum()), float(drops @ knots)
        self.exact = Utility(knots, drops, linear=self.linear, offset=self.offset)

    def __call__(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(self.exact(z))

    def below(self, z: np.ndarray) -> np.ndarray:
        return self.offset - self.rise + self.steepest * z

    def above(self, z: np.ndarray) -> np.ndarray:
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
    lines, total = _Lines(utility), 0.0
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
    """Where in them each outcome of a state's first point leads to."""
    left: Float[np.ndarray, " outcomes"]
    """Its weight there."""
    right: Float[np.ndarray, " outcomes"]
    """Its weight one point further."""
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
        self.lines = _Lines(utility)
        listed = lattice.transitions
        self.pair_ends = np.append(listed.pairs[1:], listed.states.size)
        self.outcome_ends = np.append(listed.first_outcomes[1:], listed.states.size)
        self.last_pairs = np.append(listed.first_pairs[1:], listed.pairs.size)

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
            whole, part = lattice.shifts(time)
            used = count[listed.states] > 0
            reads = first[listed.states] + whole
            begin = int(reads[used].min())
            end = int((reads + count[listed.states])[used].max()) + 1
            rows = self._rows(time + 1, later, begin, end)
            places = listed.next_states * (end - begin + 1) + reads - begin
            left, right = listed.probabilities * (1.0 - part), listed.probabilities * part
            slack = _TIE * float(np.abs(rows).max())
            step = _Step(rows, places, left, right, slack, count, offset, best, actions)
            self._run(step, wanted)
        values = [best[a:b] for a, b in itertools.pairwise(offset)]
        points = first[ended] + np.arange(count[ended])
        values[ended] = self.lines(lattice.width * points)
        return values, Table(offset, actions)

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
        """All states, in threads: NumPy lets go of the interpreter while it works."""
        listed = self.lattice.transitions
        outcomes = self.outcome_ends[wanted] - listed.first_outcomes[wanted]
        work = np.cumsum(outcomes * step.counts[listed.live[wanted]])
        run = self._gathered if int(step.counts[listed.live].max()) < _NARROW else self._sliced
        parts = 1 if work[-1] < 2**22 else _THREADS
        edges = np.searchsorted(work, work[-1] * np.arange(1, parts) / parts)
        chunks = [chunk for chunk in np.split(wanted, edges) if chunk.size]
        if len(chunks) == 1:
            run(step, wanted)
            return
        with ThreadPoolExecutor(len(chunks)) as pool:
            for done in [pool.submit(run, step, chunk) for chunk in chunks]:
                done.result()

    def _sliced(self, step: _Step, wanted: np.ndarray) -> None:
        listed, flat = self.lattice.transitions, step.flat
        for live in wanted:
            state = listed.live[live]
            n, place = int(step.counts[state]), int(step.offset[state])
            best = step.best[place : place + n]
            chosen = step.actions[place : place + n]
            total, part = np.empty(n), np.empty(n)
            begin = listed.first_pairs[live]
            for pair in range(begin, self.last_pairs[live]):
                outcomes = slice(listed.pairs[pair], self.pair_ends[pair])
                total[:] = 0.0
                for at, left, right in zip(
                    step.places[outcomes].tolist(),
                    step.left[outcomes].tolist(),
                    step.right[outcomes].tolist(),
                    strict=True,
                ):
                    np.multiply(flat[at : at + n], left, out=part)
                    np.add(total, part, out=total)
                    if right > 0.0:
                        np.multiply(flat[at + 1 : at + 1 + n], right, out=part)
                        np.add(total, part, out=total)
                action = listed.actions[listed.pairs[pair]]
                if pair == begin:
                    best[:] = total
                    chosen[:] = action
                    continue
                if self.keep:
                    chosen[total > best + step.slack] = action
                np.maximum(best, total, out=best)

    def _gathered(self, step: _Step, wanted: np.ndarray) -> None:
        listed, flat = self.lattice.transitions, step.flat
        most = int(step.counts[listed.live].max())
        points = np.arange(most)
        sizes = self.outcome_ends[wanted] - listed.first_outcomes[wanted]
        number = np.cumsum(sizes) // max(1, _BLOCK // most)
        for group in np.split(wanted, np.flatnonzero(np.diff(number)) + 1):
            outcomes = _ranges(listed.first_outcomes[group], self.outcome_ends[group])
            pairs = _ranges(listed.first_pairs[group], self.last_pairs[group])
            at = step.places[outcomes, None] + points
            worth = step.left[outcomes, None] * flat[at]
            worth += step.right[outcomes, None] * flat[at + 1]
            score = np.add.reduceat(worth, np.searchsorted(outcomes, listed.pairs[pairs]), axis=0)
            widths = self.last_pairs[group] - listed.first_pairs[group]
            begin = np.cumsum(widths) - widths
            best = np.maximum.reduceat(score, begin, axis=0)
            chosen = np.zeros(best.shape, dtype=step.actions.dtype)
            if self.keep:
                good = score >= np.repeat(best, widths, axis=0) - step.slack
                number_of = listed.actions[listed.pairs[pairs], None]
                chosen = np.minimum.reduceat(np.where(good, number_of, 2**31 - 1), begin, axis=0)
            for i, state in enumerate(listed.live[group]):
                place = slice(step.offset[state], step.offset[state] + step.counts[state])
                step.best[place] = best[i, : step.counts[state]]
                if self.keep:
                    step.actions[place] = chosen[i, : step.counts[state]]


def _ranges(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """All numbers from each begin to its end, one range after the other."""
    return np.concatenate([np.arange(a, b) for a, b in zip(begins, ends, strict=True)])
