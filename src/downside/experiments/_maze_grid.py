r"""The guarded maze solved on a grid of positions: what the best walker achieves.

As long as no guard has asked for money, what was earned follows from the number of moves. After a
guard asked for $C$, all that follows is shifted by $C$; so for each of a few values of $C$ the walk
is a Markov decision process of its own, and one more is the walk before it is settled whether there
is a guard. $h(s) = \lambda s + (1-\lambda)/\alpha \cdot \min(s - b, 0)$ is maximised backward
in time for each of several $b$; the best $b$ is that of the measure.

The value on the grid is approximate. What counts is what the policy earns in the true environment:
`MazePlan` takes the action of the nearest point of the grid.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from downside.envs.problems.guarded_maze import GOAL, GUARDED, SIZE, WALLS, GuardedMaze, MazeState
from downside.envs.rollout import simulate

_MOVES = np.array([(-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0)])
_START = (0.6, 3.6)


class MazePlan(eqx.Module):
    """A walker that takes the action of the nearest point of the grid."""

    actions: Int[Array, "S T p"]
    """By situation (before a guard; after one who asked for the first, second, ... sum), time and
    point of the grid."""
    sums: Float[Array, " C"]
    """What guards ask for, in increasing order; the first one nothing."""
    numbers: Int[Array, "m m"]
    """The number of each point of the grid; -1 in walls."""
    spacing: float = eqx.field(static=True)
    value: float = eqx.field(static=True)
    """What it is worth on the grid."""

    def __call__(
        self, state: MazeState, accumulated: Float[Array, ""], discount: Any = None
    ) -> Int[Array, ""]:
        """The action in a state."""
        del discount
        steps = self.actions.shape[1]
        asked = -accumulated - jnp.minimum(state.time, steps)
        situation = jnp.where(state.settled, 1 + jnp.argmin(jnp.abs(self.sums - asked)), 0)
        at = jnp.floor(state.position / self.spacing).astype(jnp.int32)
        time = jnp.minimum(state.time, steps - 1)
        return self.actions[situation, time, self.numbers[at[0], at[1]]]

    def returns(self, episodes: int, seed: int) -> Float[np.ndarray, " episodes"]:
        """Of fresh episodes in the true environment."""
        key = jax.random.key(seed)
        return simulate(GuardedMaze(), self, gamma=1.0, episodes=episodes, key=key)[0]


class Grid(NamedTuple):
    """The maze on a grid."""

    spacing: float
    numbers: Int[np.ndarray, "m m"]
    """The number of each point; -1 in walls."""
    at_goal: np.ndarray
    start: Float[np.ndarray, " p"]
    """The distribution of the start."""
    calm: list[Float[np.ndarray, "p p"]]
    """For each action the probability to go from point to point unwatched."""
    watched: list[tuple[np.ndarray, Float[np.ndarray, "r p"]]]
    """The same past the guard: the points from which that can happen, and the probabilities."""


def make_grid(spacing: float = 0.125) -> Grid:
    """Points in the middle of squares of this side, which divides 1/2 with its multiples."""
    env = GuardedMaze()
    per_side = round((SIZE - 1) / spacing)
    middle = (np.arange(per_side) + 0.5) * spacing
    points = np.stack(np.meshgrid(middle, middle, indexing="ij"), -1).reshape(-1, 2)
    cells = np.rint(points).astype(int)
    walls = WALLS[cells[:, 0], cells[:, 1]]
    free = np.flatnonzero(~walls)
    number = np.full(len(points), -1)
    number[free] = np.arange(len(free))
    here = points[free]
    edges = np.append(middle - spacing / 2, middle[-1] + spacing / 2)
    edges[0], edges[-1] = -np.inf, np.inf  # moves are clipped to the maze
    erf = np.vectorize(math.erf)
    generator = np.random.default_rng(0)
    calm, watched = [], []
    for move in _MOVES:
        along = [
            np.diff(
                0.5
                * (1 + erf((edges - (here[:, i, None] + move[i])) / (env.action_noise * 2**0.5)))
            ).astype(np.float32)
            for i in range(2)
        ]
        chance = (along[0][:, :, None] * along[1][:, None, :]).reshape(len(here), -1)
        halfway = []
        for i in range(2):
            exact = 0.5 * (here[:, i, None] + points[None, :, i])
            # Often on the border of two cells: then either, by chance.
            exact += generator.uniform(-0.25, 0.25, exact.shape) * spacing
            halfway.append(np.rint(exact).astype(int))
        blocked = walls[None] | WALLS[halfway[0], halfway[1]]
        lands = np.where(blocked, np.arange(len(free))[:, None], number)
        lands_in = cells[free][lands.ravel()].reshape(*lands.shape, 2)
        guarded = (lands_in == GUARDED).all(-1)
        guarded |= (halfway[0] == GUARDED[0]) & (halfway[1] == GUARDED[1])
        both = []
        for mask in (~guarded, guarded):
            matrix = np.zeros((len(free), len(free)), np.float32)
            rows, columns = np.nonzero(mask & (chance > 1e-7))
            np.add.at(matrix, (rows, lands[rows, columns]), chance[rows, columns])
            both.append(matrix)
        calm.append(both[0])
        some = np.flatnonzero(both[1].any(axis=1))
        watched.append((some, both[1][some]))
    inside = ((here > _START[0]) & (here < _START[1])).all(axis=1).astype(float)
    at_goal = (cells[free] == GOAL).all(axis=1)
    index = number.reshape(per_side, per_side)
    return Grid(spacing, index, at_goal, inside / inside.sum(), calm, watched)


def solve_maze(
    grid: Grid, *, level: float, mean_share: float = 0.0, bends: list[float], sums: int = 12
) -> MazePlan:
    """The best walker for `mean_share` of the mean and the rest cvar(`level`), among these b."""
    plans = [_solve(grid, level, mean_share, bend, sums) for bend in bends]
    return max(plans, key=lambda plan: plan.value)


def _solve(grid: Grid, level: float, mean_share: float, bend: float, count: int) -> MazePlan:
    env = GuardedMaze()
    shares = (np.arange(count) + 0.5) / count
    asked = np.concatenate([[0.0], -env.guard_cost * np.log1p(-shares)])  # exponential quantiles
    odds = np.append(1 - env.guard_probability, np.full(count, env.guard_probability / count))
    steps, points = env.paid_steps, len(grid.at_goal)
    slope = (1.0 - mean_share) / level

    def utility(total: Any) -> Any:
        return mean_share * total + slope * np.minimum(total - bend, 0.0)

    # After the paid moves time costs nothing, and there is more than enough to reach the goal.
    late = utility(env.goal_reward - steps - asked)
    values = np.repeat(late[:, None], points, axis=1).astype(np.float32)
    before = np.full(points, late[0], np.float32)
    actions = np.zeros((count + 2, steps, points), np.int32)
    for time in reversed(range(steps)):
        arrived = utility(env.goal_reward - time - asked)
        values[:, grid.at_goal] = arrived[:, None]
        before[grid.at_goal] = arrived[0]
        met = odds @ values
        worth = np.zeros((len(_MOVES), count + 2, points), np.float32)
        for action, (calm, (rows, past)) in enumerate(zip(grid.calm, grid.watched, strict=True)):
            nexts = calm @ np.concatenate([before[None], values]).T
            nexts[rows, 0] += past @ met
            nexts[rows, 1:] += past @ values.T
            worth[action] = nexts.T
        actions[:, time], best = worth.argmax(axis=0), worth.max(axis=0)
        before, values = best[0], best[1:]
    value = float(grid.start @ before) + (1.0 - mean_share) * bend
    return MazePlan(
        jnp.asarray(actions),
        jnp.asarray(asked),
        jnp.asarray(grid.numbers),
        grid.spacing,
        value,
    )
