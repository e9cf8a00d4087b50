"""Policies followed forward: the returns that they achieve, by groups of paths."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from downside.exact.lattice import Lattice
from downside.exact.lattice_policy import AchievedReturns, Choice

_DENSE = 2**20
"""Up to so many places groups are put together by counting; beyond, only if they are well used."""
_NEGLIGIBLE = 1e-16
"""Groups that are less likely are not followed any further."""
_LONG = 256
"""From so many neighbouring cells on a list is moved as slices,"""
_FILLED = 0.3
"""if at least this share of them is used."""


class Group(NamedTuple):
    """Episodes at one time, in groups by state and lattice point."""

    states: Int[np.ndarray, " n"]
    """Where they are."""
    mass: Float[np.ndarray, " n"]
    """How likely an episode is in the group."""
    money: Float[np.ndarray, " n"]
    """The mean accumulated reward of the group."""
    variance: Float[np.ndarray, " n"]
    """Its variance within the group."""

    def select(self, which: np.ndarray) -> "Group":
        """Some of the groups."""
        return Group(*(column[which] for column in self))


def grouped(parts: Group, width: float, states: int) -> Group:
    """Groups of one state whose money rounds to one multiple of `width` become one."""
    points = np.rint(parts.money / width).astype(np.int64)
    low = int(points.min())
    span = int(points.max()) - low + 1
    keys = parts.states * span + (points - low)
    if states * span <= max(_DENSE, 4 * keys.size):
        mass = np.bincount(keys, weights=parts.mass, minlength=states * span)
        used = np.flatnonzero(mass > 0)
        number = np.zeros(mass.size, dtype=np.int64)
        number[used] = np.arange(used.size)
        group, mass = number[keys], mass[used]
    else:
        used, group = np.unique(keys, return_inverse=True)
        mass = np.bincount(group, weights=parts.mass)
    # Away from the group's point, so that squares do not cancel.
    away = parts.money - width * points
    share = parts.mass / mass[group]
    mean = np.bincount(group, weights=share * away, minlength=used.size)
    spread = share * (parts.variance + (away - mean[group]) ** 2)
    variance = np.bincount(group, weights=spread, minlength=used.size)
    return Group(used // span, mass, width * (used % span + low) + mean, variance)


def achieved(
    lattice: Lattice, time: int, groups: Group, choose: Choice, *, width: float | None = None
) -> AchievedReturns:
    """The returns of episodes that are spread over `groups` at a time, reward so far included.

    Groups know the mean and the variance of their paths exactly, and decide by their mean: the
    policy remembers its group. From the lattice's cut on the policy that is best for the mean is
    followed. Groups of next to no mass count as if they had the smallest return there is.

    Arguments:
        lattice: the problem.
        time: when the episodes are there.
        groups: where they are.
        choose: the policy.
        width: paths whose rewards round to one multiple of it are put together; by default the
            lattice's width.
    """
    mdp, rest = lattice.mdp, lattice.rest
    width = lattice.width if width is None else width
    over, lost = mdp.num_states, 0.0
    ended: list[Group] = []
    for now in range(time, lattice.cut):
        done = groups.states == over
        if done.any():
            ended.append(groups.select(done))
            groups = groups.select(~done)
        if not groups.states.size:
            break
        points = np.rint(groups.money / lattice.width).astype(np.int64)
        groups = _moved(lattice, now, groups, choose(now, groups.states, points), width)
        small = groups.mass < _NEGLIGIBLE
        lost += float(groups.mass[small].sum())
        groups = groups.select(~small)
    if groups.states.size:
        begin = max(time, lattice.cut)
        k, discount = rest.left(begin), mdp.gamma**begin
        variance = groups.variance + (discount * rest.deviation[k][groups.states]) ** 2
        money = groups.money + discount * rest.mean[k][groups.states]
        ended.append(
            groups._replace(states=0 * groups.states + over, money=money, variance=variance)
        )
    worst = np.array([min(lattice.return_range[0], *(float(part.money.min()) for part in ended))])
    ended.append(Group(np.array([over]), np.array([lost]), worst, np.zeros(1)))
    whole = Group(*(np.concatenate(columns) for columns in zip(*ended, strict=True)))
    whole = grouped(whole.select(whole.mass > 0), width, over + 1)
    order = np.argsort(whole.money)
    return AchievedReturns(whole.money[order], whole.mass[order], whole.variance[order])


def _moved(lattice: Lattice, time: int, groups: Group, actions: np.ndarray, width: float) -> Group:
    """The groups one decision later."""
    lists, discount = lattice.lists, lattice.mdp.gamma**time
    pair = lattice.pair_numbers[groups.states, actions]
    groups = groups._replace(
        states=lists.of_pair[pair], money=groups.money + discount * lists.amounts[pair]
    )
    if lists.amounts.any():  # groups of several states may be in one cell now
        groups = grouped(groups, width, lists.begins.size)
    cells = np.rint(groups.money / width).astype(np.int64)
    order = np.lexsort((cells, groups.states))
    groups, cells = groups.select(order), cells[order]
    used, begins = np.unique(groups.states, return_index=True)
    ends = np.append(begins[1:], cells.size)
    spans = cells[ends - 1] - cells[begins] + 1
    sizes = lists.sizes[used]
    places = int(spans @ sizes)
    if places >= _LONG * sizes.sum() and int((ends - begins) @ sizes) >= _FILLED * places:
        segments = list(zip(used.tolist(), begins.tolist(), ends.tolist(), strict=True))
        return _in_slices(lattice, time, groups, cells, segments, width)
    sizes = lists.sizes[groups.states]
    row = np.repeat(np.arange(cells.size), sizes)
    outcome = np.arange(row.size) + np.repeat(lists.begins[groups.states] - _begins(sizes), sizes)
    parts = Group(
        states=lists.next_states[outcome],
        mass=groups.mass[row] * lists.probabilities[outcome],
        money=groups.money[row] + discount * lists.rewards[outcome],
        variance=groups.variance[row],
    )
    return grouped(parts, width, lattice.mdp.num_states + 1)


def _begins(sizes: np.ndarray) -> np.ndarray:
    return np.cumsum(sizes) - sizes


def _in_slices(
    lattice: Lattice,
    time: int,
    groups: Group,
    cells: np.ndarray,
    segments: list[tuple[int, int, int]],
    width: float,
) -> Group:
    """As `_moved`, for lists whose groups fill long runs of cells: an outcome moves all at once."""
    lists, states = lattice.lists, lattice.mdp.num_states + 1
    exact = lattice.mdp.gamma**time * lists.rewards / width
    whole = np.floor(exact).astype(np.int64)
    rest = width * (exact - whole)
    low = int(cells.min() + whole.min())
    span = int(cells.max() + whole.max()) + 2 - low
    moments = np.zeros((3, states * span))  # of mass, money and its square, from the cell's middle
    for number, begin, end in segments:
        first, size = int(cells[begin]), int(cells[end - 1] - cells[begin]) + 1
        mass, away, variance = np.zeros(size), np.zeros(size), np.zeros(size)
        at = cells[begin:end] - first
        mass[at], variance[at] = groups.mass[begin:end], groups.variance[begin:end]
        away[at] = groups.money[begin:end] - width * cells[begin:end]
        last = lists.begins[number] + lists.sizes[number]
        for outcome in range(lists.begins[number], last):
            place = int(lists.next_states[outcome] * span + first + whole[outcome] - low)
            offset = away + rest[outcome]
            beyond = offset >= 0.5 * width
            likely = lists.probabilities[outcome] * mass
            _add(moments[:, place : place + size], likely * ~beyond, offset, variance)
            offset -= width
            _add(moments[:, place + 1 : place + 1 + size], likely * beyond, offset, variance)
    used = np.flatnonzero(moments[0] > 0)
    mass, mean, square = moments[:, used]
    mean, square = mean / mass, square / mass
    # On the safe side of what cancels.
    variance = np.maximum(square - mean**2, 0.0) + 1e-15 * width**2
    return Group(used // span, mass, width * (used % span + low) + mean, variance)


def _add(moments: np.ndarray, mass: np.ndarray, offset: np.ndarray, variance: np.ndarray) -> None:
    moments[0] += mass
    first = mass * offset
    moments[1] += first
    first *= offset
    mass *= variance
    first += mass
    moments[2] += first
