"""Finite problems that are built from parameters: what they share."""

import abc
import functools
from typing import Any

import gymnasium as gym
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Key

from downside.envs.core import AbstractJaxEnv, StepResult
from downside.envs.problems.finite.tabular import Tabular, TabularState


class TableBuilder:
    """Collects the outcomes of a finite problem, one after the other."""

    def __init__(self, states: int, actions: int):
        self.states, self.actions = states, actions
        self.rows: dict[tuple[int, int], list[tuple[float, int, float]]] = {}

    def add(
        self, state: int, action: int, probability: float, leads_to: int, reward: float
    ) -> None:
        """Adds an outcome; one of probability 0 counts for nothing."""
        if probability > 0.0:
            self.rows.setdefault((state, action), []).append((probability, leads_to, reward))

    def tabular(self, *, start: Any, horizon: int, terminal: Any = None) -> Tabular:
        """The problem; pairs of state and action without an outcome are masked."""
        most = max(len(outcomes) for outcomes in self.rows.values())
        columns = np.zeros((3, self.states, self.actions, most))
        for pair, outcomes in self.rows.items():
            columns[:, pair[0], pair[1], : len(outcomes)] = np.array(outcomes).T
        chances, leads_to, rewards = columns
        return Tabular(
            chances,
            rewards,
            terminal,
            start,
            horizon=horizon,
            action_mask=chances.sum(axis=2) > 0,
            next_states=leads_to.astype(int),
        )


class AbstractTabulated(AbstractJaxEnv[TabularState]):
    """A finite problem whose tables follow from its parameters.

    Observations are those of `Tabular`: one number for each state, and the fraction of time. The
    planner knows the tables: `ds.solve` has the optimum that agents can be held against.
    """

    @abc.abstractmethod
    def build_tables(self) -> Tabular:
        """The problem by its tables, built anew."""

    @property
    def tables(self) -> Tabular:
        """The problem by its tables."""
        return _tables_of(self)

    @property
    def num_actions(self) -> int:
        """The number of actions."""
        return self.tables.num_actions

    @property
    def observation_space(self) -> gym.spaces.Box:
        """One number per state, and the fraction of time."""
        return self.tables.observation_space

    def initial_state(self, key: Key[Array, ""]) -> TabularState:
        """A state drawn from the starting distribution, at time 0."""
        return self.tables.initial_state(key)

    def sample_noise(self, key: Key[Array, ""]) -> Float[Array, ""]:
        """A uniform variable in [0, 1)."""
        return self.tables.sample_noise(key)

    def sample_noises(self, key: Key[Array, ""], count: int) -> Float[Array, " n"]:
        """Uniform variables, one from each of `count` ranges of equal width."""
        return self.tables.sample_noises(key, count)

    def action_mask(self, state: TabularState) -> Bool[Array, " A"]:
        """The actions that are allowed; where the episode is over, all of them."""
        return self.tables.action_mask(state)

    def transition(
        self, state: TabularState, action: Int[ArrayLike, ""], noise: Float[ArrayLike, ""]
    ) -> StepResult:
        """The outcome that the noise picks."""
        return self.tables.transition(state, action, noise)

    def observe(self, state: TabularState) -> Float[Array, " d"]:
        """The state as a one-hot vector, and the fraction of time."""
        return self.tables.observe(state)


@functools.lru_cache(maxsize=32)
def _tables_of(env: AbstractTabulated) -> Tabular:
    return env.build_tables()
