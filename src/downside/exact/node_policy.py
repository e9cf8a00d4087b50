"""Policies of finite problems, and what they expect on the way."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from downside.exact.nodes import Nodes
from downside.risk import Distribution

Rule = Callable[[int, int, float], Any]
"""Any policy: the action for a time, a state and an accumulated discounted reward."""


class NodePolicy:
    """A policy of a finite problem: one action for each node (time, state, accumulated reward).

    Call it with a time, a state and the discounted reward so far; the nearest node of that time and
    state answers, the lower one if two are as near.
    """

    def __init__(self, nodes: Nodes, actions: tuple[Int[np.ndarray, " live"], ...]):
        for level in actions:
            level.flags.writeable = False
        self._nodes = nodes
        self._actions = actions

    @property
    def nodes(self) -> Nodes:
        """The nodes that the actions belong to."""
        return self._nodes

    @property
    def actions(self) -> tuple[Int[np.ndarray, " live"], ...]:
        """For each time, the action of each node at which the episode still runs."""
        return self._actions

    def __call__(self, time: int, state: int, accumulated: float) -> int:
        """The action at the node nearest to `accumulated`."""
        if not 0 <= time < len(self._actions):
            raise ValueError(
                f"`time` must be in [0, {len(self._actions) - 1}], the decisions of this problem, "
                f"got {time}."
            )
        level = self._nodes.levels[time]
        nearest = level.nearest(state, accumulated)
        if nearest is None:
            raise ValueError(
                f"`state` must be one that can be reached at time {time} with the episode still "
                f"running, got {state}."
            )
        return int(self._actions[time][nearest - level.over])

    def table(self) -> dict[tuple[int, int, float], int]:
        """The policy in full: (time, state, accumulated reward) -> action."""
        return {
            (time, int(state), float(accumulated)): int(action)
            for time, (level, actions) in enumerate(
                zip(self._nodes.levels[:-1], self._actions, strict=True)
            )
            for state, accumulated, action in zip(
                level.states[level.over :], level.accumulated[level.over :], actions, strict=True
            )
        }

    def __repr__(self) -> str:
        return f"NodePolicy({len(self._actions)} decisions, {self._nodes.size} nodes)"


class LaterReturn(NamedTuple):
    """What a policy has and what it still expects at one node."""

    probability: float
    """How likely an episode comes through the node."""
    state: int
    """Where it is then."""
    accumulated: float
    """s: the discounted reward so far."""
    discount_so_far: float
    """c: what a reward counts from here on."""
    action: int
    """What the policy does."""
    returns: Distribution
    """The return to come, G_t, discounted to this time: the whole return is s + c G_t."""
