"""A maze whose shortest way is guarded, after Greenberg, Chow, Ghavamzadeh and Mannor (2022)."""

from typing import NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Key

from downside.envs._parameters import check_real, check_whole, real, whole
from downside.envs.core import AbstractJaxEnv, StepResult, real_array

LEFT, RIGHT, DOWN, UP = range(4)
SIZE = 8
GOAL = (6, 2)
GUARDED = (5, 1)
"""The cell that the guard watches, as (x, y)."""
_MOVES = np.array([(-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0)])
_START = (0.6, 3.6)
"""Episodes start at a random point between these, in both directions."""


def _walls() -> Bool[np.ndarray, "8 8"]:
    walls = np.zeros((SIZE, SIZE), bool)
    walls[[0, -1], :] = walls[:, [0, -1]] = True
    walls[3:6, 5] = True
    walls[5, 2:6] = True
    return walls


WALLS = _walls()
"""`WALLS[x, y]`: which cells are walls."""


class MazeState(NamedTuple):
    """Where the walker is."""

    position: Float[Array, " 2"]
    """(x, y); cell (i, j) is the square around it with sides of length 1."""
    settled: Bool[Array, ""]
    """Whether the walker has been in the guarded cell: then it is settled whether there is a guard,
    who asks for money only once."""
    time: Int[Array, ""]
    """Number of moves so far."""


class MazeNoise(NamedTuple):
    """The noise of one move."""

    push: Float[Array, " 2"]
    """Standard normal: how far the move goes astray."""
    guard: Float[Array, ""]
    """Uniform: whether there is a guard."""
    cost: Float[Array, ""]
    """Exponential with mean 1: how much the guard asks for."""


class GuardedMaze(AbstractJaxEnv[MazeState]):
    r"""Walk to the goal of a maze whose shortest way is guarded.

    ## Description
    The goal is behind a wall. The way through the gap at the bottom is short, but a guard stands
    there in some episodes and asks for a random, often large sum. The way around the top is longer
    and safe. From "Efficient Risk-Averse Reinforcement Learning" (Greenberg, Chow, Ghavamzadeh and
    Mannor, NeurIPS 2022).

    ## Action Space
    `Discrete(4)`: 0 left, 1 right, 2 down, 3 up, a step of length 1 plus normal noise in both
    directions. A move that ends in a wall, or whose middle is in one, is not made.

    ## Observation Space
    `Box` of shape (65,), float32: the position as weights of the 64 cells, by linear interpolation
    between the four nearest ones, row by row of x; and the time as a share of `horizon`. The guard
    is not observed.

    ## Rewards
    -1 for each of the first `paid_steps` moves, 0 after that; `goal_reward` instead for the move
    that reaches the goal. On the first visit to the guarded cell there is a guard with probability
    `guard_probability`, who costs an exponential sum with mean `guard_cost`.

    ## Starting State
    A random point of the lower left part, [0.6, 3.6] x [0.6, 3.6].

    ## Episode End
    Terminates at the goal, or after `horizon` moves.

    ## Arguments
    Every field below, for example `gym.make("downside/GuardedMaze-v0", guard_cost=64.0)`.
    """

    guard_probability: float = real(0.2)
    """Probability that there is a guard, in [0, 1]."""
    guard_cost: float = real(32.0)
    """Mean of what the guard asks for, at least 0."""
    action_noise: float = real(0.2)
    """Standard deviation of a move, in each direction."""
    goal_reward: float = real(16.0)
    """Reward of the move that reaches the goal."""
    paid_steps: int = whole(32)
    """How many moves cost 1 each."""
    horizon: int = whole(160)  # pyright: ignore[reportIncompatibleMethodOverride]
    """Number of moves after which the episode is over, at least 1."""

    def __check_init__(self):
        check_real(
            "guard_probability", self.guard_probability, "0 is no guard.", least=0.0, most=1.0
        )
        check_real("guard_cost", self.guard_cost, "The default is 32.", least=0.0)
        check_real("action_noise", self.action_noise, "0 is firm ground.", least=0.0)
        check_real("goal_reward", self.goal_reward, "The default is 16.")
        check_whole("paid_steps", self.paid_steps, "The default is 32.", least=0)
        check_whole("horizon", self.horizon, "The default is 160.", least=1)

    @property
    def num_actions(self) -> int:
        """The four directions."""
        return 4

    @property
    def default_gamma(self) -> float:
        """Returns are not discounted."""
        return 1.0

    @property
    def action_names(self) -> tuple[str, ...]:
        """The four directions."""
        return "left", "right", "down", "up"

    @property
    def observation_space(self) -> gym.spaces.Box:
        """A weight for each cell, and the time."""
        return gym.spaces.Box(0.0, 1.0, (SIZE * SIZE + 1,), np.float32)

    def initial_state(self, key: Key[Array, ""]) -> MazeState:
        """A random point of the lower left part."""
        position = jax.random.uniform(key, (2,), float, *_START)
        return MazeState(position, jnp.zeros((), bool), jnp.zeros((), jnp.int32))

    def sample_noise(self, key: Key[Array, ""]) -> MazeNoise:
        """The push, the guard and what the guard asks for."""
        push, guard, cost = jax.random.split(key, 3)
        return MazeNoise(
            jax.random.normal(push, (2,)), jax.random.uniform(guard), jax.random.exponential(cost)
        )

    def transition(
        self, state: MazeState, action: Int[ArrayLike, ""], noise: MazeNoise
    ) -> StepResult:
        """Move, pay, and meet the guard."""
        aim = state.position + jnp.asarray(_MOVES, state.position.dtype)[jnp.asarray(action)]
        aim = jnp.clip(aim + self.action_noise * noise.push, 0.0, SIZE - 1.0)
        middle = _cell(0.5 * (state.position + aim))
        blocked = _at(WALLS, _cell(aim)) | _at(WALLS, middle)
        position = jnp.where(blocked, state.position, aim)
        cell = _cell(position)

        at_goal = (cell == jnp.asarray(GOAL)).all()
        guarded = jnp.asarray(GUARDED)
        watched = (cell == guarded).all() | (middle == guarded).all()
        caught = watched & ~state.settled & (noise.guard < self.guard_probability)
        step_cost = jnp.where(state.time < self.paid_steps, 1.0, 0.0)
        reward = jnp.where(at_goal, real_array(self.goal_reward), -step_cost)
        reward -= jnp.where(caught, self.guard_cost * noise.cost, 0.0)

        time = state.time + 1
        after = MazeState(position, state.settled | watched, time)
        return StepResult(after, reward, at_goal | (time >= self.horizon), jnp.zeros((), bool))

    def observe(self, state: MazeState) -> Float[Array, " 65"]:
        """The weights of the cells, and the time."""
        cells = jnp.arange(SIZE)
        along_x, along_y = (
            jnp.maximum(1.0 - jnp.abs(coordinate - cells), 0.0) for coordinate in state.position
        )
        time = state.time / self.horizon
        weights = jnp.outer(along_x, along_y).ravel()
        return jnp.append(weights, time).astype(jnp.float32)


def _cell(position: Float[Array, " 2"]) -> Int[Array, " 2"]:
    """The cell that a point is in."""
    return jnp.round(position).astype(jnp.int32)


def _at(table: Bool[np.ndarray, "8 8"], cell: Int[Array, " 2"]) -> Bool[Array, ""]:
    return jnp.asarray(table)[cell[0], cell[1]]
