"""A slippery walk along a cliff: a finite problem with an exact answer."""

from typing import NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Key

from downside.envs._parameters import check_real, check_whole, real, whole
from downside.envs.core import AbstractJaxEnv, StepResult, real_array
from downside.envs.noise import mirrored_uniforms

UP, RIGHT, DOWN, LEFT = range(4)
_MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
_TURNS = np.array([0, -1, 1])


class GridState(NamedTuple):
    """Where the walker is."""

    cell: Int[Array, ""]
    """Number of the cell, row by row from the top left."""
    time: Int[Array, ""]
    """Number of moves so far."""


class Tables(NamedTuple):
    """A finite Markov decision process as arrays."""

    probabilities: Float[np.ndarray, "S A S"]
    """`probabilities[s, a, t]`: probability that action `a` in state `s` leads to state `t`."""
    rewards: Float[np.ndarray, "S A S"]
    """`rewards[s, a, t]`: the reward on that way; 0 where the probability is."""
    terminal: Bool[np.ndarray, " S"]
    """States in which the episode is over; they lead to themselves and pay nothing."""
    start: int
    """The state in which episodes start."""


class CliffWalk(AbstractJaxEnv[GridState]):
    r"""Walk along a cliff to a goal on slippery ground.

    ## Description
    The bottom row of a grid holds the start (left), a cliff, and the goal (right). The way along
    the edge is the shortest and the riskiest one, since each move goes astray with probability
    `slip`. With a finite number of cells and rewards on a lattice the problem can be solved
    exactly: `tables` has it as arrays, made from the same rule that moves the walker.

    ## Action Space
    `Discrete(4)`: 0 up, 1 right, 2 down, 3 left. With probability `slip` the move goes in one of
    the two perpendicular directions instead, each half of the time. A move off the grid leaves the
    walker where it is.

    ## Observation Space
    `Box` of shape (`rows * columns`,), float32: 1 at the walker's cell and 0 elsewhere; cells are
    counted row by row from the top left. The time is not observed.

    ## Rewards
    Every move pays `step_reward`; a move that falls off the cliff pays `cliff_reward` on top, a
    move that reaches the goal `goal_reward`.

    ## Starting State
    The bottom left cell.

    ## Episode End
    Terminates at the goal or when the walker falls. Truncates after `horizon` moves, as the time
    is no part of the observation: a learner should bootstrap through it.

    ## Arguments
    Every field below, for example `gym.make("downside/CliffWalk-v0", slip=0.2)`.
    """

    rows: int = whole(4)
    """Number of rows, at least 2."""
    columns: int = whole(6)
    """Number of columns, at least 3; the cliff has two cells less."""
    slip: float = real(0.05)
    """Probability that a move goes astray, in [0, 1]."""
    step_reward: float = real(-1.0)
    """Reward of every move."""
    cliff_reward: float = real(-20.0)
    """Additional reward for falling off the cliff."""
    goal_reward: float = real(0.0)
    """Additional reward for reaching the goal."""
    horizon: int | None = whole(100)  # pyright: ignore[reportIncompatibleMethodOverride]
    """Number of moves after which the episode is truncated, at least 1; None for no limit."""

    def __check_init__(self):
        check_whole("rows", self.rows, "The default is 4.", least=2)
        check_whole("columns", self.columns, "A cliff needs a start and a goal beside it.", least=3)
        check_real("slip", self.slip, "0 is firm ground.", least=0.0, most=1.0)
        check_real("step_reward", self.step_reward, "The default is -1.")
        check_real("cliff_reward", self.cliff_reward, "The default is -20.")
        check_real("goal_reward", self.goal_reward, "The default is 0.")
        if self.horizon is not None:
            check_whole("horizon", self.horizon, "Pass None for no limit.", least=1)

    @property
    def num_actions(self) -> int:
        """The four directions."""
        return 4

    @property
    def bounded(self) -> bool:
        """Never: the horizon truncates."""
        return False

    @property
    def num_cells(self) -> int:
        """Number of cells of the grid."""
        return self.rows * self.columns

    @property
    def start(self) -> int:
        """The bottom left cell."""
        return self.num_cells - self.columns

    @property
    def goal(self) -> int:
        """The bottom right cell."""
        return self.num_cells - 1

    @property
    def noise_probabilities(self) -> Float[np.ndarray, " 3"]:
        """Probability of each noise: straight on, astray to the left, astray to the right."""
        return np.array([1.0 - self.slip, 0.5 * self.slip, 0.5 * self.slip])

    @property
    def observation_space(self) -> gym.spaces.Box:
        """One number per cell."""
        return gym.spaces.Box(0.0, 1.0, (self.num_cells,), np.float32)

    def is_cliff(self, cell: Int[ArrayLike, "*shape"]) -> Bool[Array, "*shape"]:
        """Whether a cell is part of the cliff."""
        cell = jnp.asarray(cell)
        return (cell > self.start) & (cell < self.goal)

    def is_terminal(self, cell: Int[ArrayLike, "*shape"]) -> Bool[Array, "*shape"]:
        """Whether the episode is over in a cell."""
        return self.is_cliff(cell) | (jnp.asarray(cell) == self.goal)

    def initial_state(self, key: Key[Array, ""]) -> GridState:
        """Always the bottom left cell."""
        del key
        return GridState(jnp.asarray(self.start, jnp.int32), jnp.zeros((), jnp.int32))

    def sample_noise(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """0: straight on; 1: astray to the left; 2: astray to the right."""
        return self._noise_of(jax.random.uniform(key))

    def sample_noises(self, key: Key[Array, ""], count: int) -> Int[Array, " n"]:
        """As `sample_noise`, each as often as `count` times its probability, give or take one."""
        return self._noise_of(mirrored_uniforms(key, count))

    def _noise_of(self, uniform: Float[Array, "*shape"]) -> Int[Array, "*shape"]:
        thresholds = real_array(np.cumsum(self.noise_probabilities)[:2])
        return jnp.sum(uniform[..., None] >= thresholds, axis=-1, dtype=jnp.int32)

    def transition(
        self, state: GridState, action: Int[ArrayLike, ""], noise: Int[ArrayLike, ""]
    ) -> StepResult:
        """Move, or slip."""
        direction = (jnp.asarray(action) + jnp.asarray(_TURNS)[jnp.asarray(noise)]) % 4
        row, column = jnp.divmod(state.cell, self.columns)
        move = jnp.asarray(_MOVES)[direction]
        row = jnp.clip(row + move[0], 0, self.rows - 1)
        column = jnp.clip(column + move[1], 0, self.columns - 1)
        cell = (row * self.columns + column).astype(jnp.int32)

        reward = real_array(self.step_reward)
        reward += jnp.where(self.is_cliff(cell), self.cliff_reward, 0.0)
        reward += jnp.where(cell == self.goal, self.goal_reward, 0.0)
        terminated = self.is_terminal(cell)
        time = state.time + 1
        late = jnp.zeros((), bool) if self.horizon is None else time >= self.horizon
        return StepResult(GridState(cell, time), reward, terminated, late & ~terminated)

    def observe(self, state: GridState) -> Float[Array, " S"]:
        """The cell as a one-hot vector."""
        return jax.nn.one_hot(state.cell, self.num_cells, dtype=jnp.float32)

    def tables(self) -> Tables:
        """The problem without its time limit as arrays: one state per cell.

        Every cell, action and noise goes through `transition`; nothing is written down twice.
        """
        cells, actions, noises = np.arange(self.num_cells), np.arange(4), np.arange(3)
        grid = np.meshgrid(cells, actions, noises, indexing="ij")
        cell, action, noise = (axis.ravel() for axis in grid)
        with jax.enable_x64(True):  # a lattice of rewards must not be blurred by rounding
            states = GridState(jnp.asarray(cell), jnp.zeros(cell.shape, jnp.int32))
            after = jax.vmap(self.transition)(states, jnp.asarray(action), jnp.asarray(noise))
        reached = np.asarray(after.state.cell)

        probabilities = np.zeros((self.num_cells, 4, self.num_cells))
        np.add.at(probabilities, (cell, action, reached), self.noise_probabilities[noise])
        rewards = np.zeros_like(probabilities)
        rewards[cell, action, reached] = np.asarray(after.reward, dtype=np.float64)
        rewards[probabilities == 0.0] = 0.0

        terminal = np.asarray(self.is_terminal(cells))
        probabilities[terminal] = np.eye(self.num_cells)[terminal][:, None, :]
        rewards[terminal] = 0.0
        return Tables(probabilities, rewards, terminal, self.start)
