"""The actions of a NumPy simulator."""

from typing import Any

import gymnasium as gym
import numpy as np


class Actions:
    """The actions of a simulator: numbers from 0, points of a grid, or a box."""

    def __init__(self, given: Any, name: str):
        """From what the simulator says.

        Arguments:
            given: its attribute `actions`.
            name: of the simulator.
        """
        self.points: np.ndarray | None = None
        """The point that each action stands for, of shape (A, k); None if there are none."""
        self.count = 0
        """How many there are; 0 if they are continuous."""
        self.low = self.high = np.zeros(0)
        self._scalar = False
        if isinstance(given, gym.spaces.Discrete) and given.start == 0:
            given = int(given.n)
        if isinstance(given, gym.spaces.Box):
            self._scalar = given.shape == ()
            self.low, self.high = (
                np.asarray(x, float).reshape(-1) for x in (given.low, given.high)
            )
            good = len(given.shape) <= 1 and self.low.size > 0
            if not good or not given.is_bounded() or not (self.low < self.high).all():
                raise ValueError(
                    f"`actions` of {name} must be a flat Box with finite bounds, low below high, "
                    f"got {given}."
                )
            return
        if isinstance(given, int | np.integer) and not isinstance(given, bool) and given >= 1:
            self.count = int(given)
            return
        points = np.asarray(given) if isinstance(given, list | tuple | np.ndarray) else None
        good = points is not None and points.ndim in (1, 2) and points.dtype.kind in "fiu"
        if points is None or not good or len(points) < 2 or not np.isfinite(points).all():
            raise ValueError(
                f"`actions` of {name} must be a number of actions, the points that they stand for "
                "(such as np.linspace(-2, 2, 21)), or a gymnasium.spaces.Box, got "
                f"{given!r}."
            )
        self._scalar = points.ndim == 1
        self.points = points.astype(float).reshape(len(points), -1)
        self.count = len(points)
        self.low, self.high = self.points.min(axis=0), self.points.max(axis=0)

    @property
    def space(self) -> gym.spaces.Discrete | gym.spaces.Box:
        """As a Gymnasium space."""
        return gym.spaces.Discrete(self.count) if self.count else self.box

    @property
    def box(self) -> gym.spaces.Box:
        """The continuous actions."""
        low, high = self.low.astype(np.float32), self.high.astype(np.float32)
        return gym.spaces.Box(low, high, dtype=np.float32)

    @property
    def ordered(self) -> bool:
        """Whether there are points between the points, in each of their dimensions."""
        return self.points is not None and bool((self.low < self.high).all())

    @property
    def spacing(self) -> np.ndarray:
        """The smallest step between two points, in each dimension; 0 where there are no points."""
        if self.points is None:
            return np.zeros(self.low.shape)
        steps = np.diff(np.sort(self.points, axis=0), axis=0)
        steps = np.where(steps > 1e-6 * (self.high - self.low), steps, np.inf).min(axis=0)
        return np.where(np.isfinite(steps), steps, 0.0)

    def jax_shape(self, continuous: bool) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and type of one action, as agents have it."""
        return (self.low.shape, np.dtype(float)) if continuous else ((), np.dtype(int))

    def rows(self, chosen: np.ndarray, continuous: bool) -> np.ndarray:
        """Actions of agents, in rows, as `step` gets them."""
        if not continuous:
            if self.points is None:
                return chosen
            chosen = self.points[chosen]
        return chosen[:, 0].copy() if self._scalar else chosen
