"""The calls of a user's NumPy simulator: rows in, rows out.

`SimulatorCalls` has the simulator as it was checked at the start. Its methods take arrays with any
number of leading axes, as compiled programs hand them over, and call the user's functions with one
row for each copy. Nothing in here touches JAX: it runs inside of compiled programs.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from downside.envs.faults import SimulatorError, fault_in
from downside.envs.simulators.actions import Actions
from downside.envs.simulators.batches import Layout, Leaf
from downside.envs.simulators.keyed_draws import draw_for_keys

_STEP, _COARSE_STEP = 1e-6, 1e-3
"""Of finite differences, in 64 and in 32 bits."""


class SimulatorCalls:
    """A simulator, how its batches are built, and its functions on arrays."""

    horizon: int | None
    observation_size: int
    observation_space: gym.spaces.Box
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]

    def __init__(self, simulator: Any, actions: Actions, state: Layout):
        self.simulator, self.actions, self.state = simulator, actions, state
        self.name = type(simulator).__name__
        self.noise: Layout | None = None
        """Of the noise; None without noise."""
        self.declared: Any = None
        """The kind and the shape of each part of the noise, if it is declared."""
        self.truncates = False
        """Whether `step` says when an episode is truncated."""

    @property
    def real(self) -> list[int]:
        """The leaves of the state that have derivatives."""
        return [i for i, leaf in enumerate(self.state.leaves) if leaf.real]

    @property
    def step_size(self) -> float:
        """Of finite differences."""
        sizes = [leaf.dtype.itemsize for leaf in self.state.leaves if leaf.real]
        return _COARSE_STEP if sizes and min(sizes) < 8 else _STEP

    # --- the user's functions, on rows -----------------------------------------------------------

    def ask(self, method: str, *arguments: Any) -> Any:
        """What a function of the user gives, or an error that names their line."""
        return ask(self.simulator, method, *arguments)

    def states(self, generator: np.random.Generator, rows: int) -> list[np.ndarray]:
        """States to start from."""
        call = f"`initial_state` of {self.name}"
        given = self.ask("initial_state", generator, rows)
        return _checked(self.state.flatten, given, rows, call)

    def noises(self, generator: np.random.Generator, rows: int) -> list[np.ndarray]:
        """Noises, of a simulator that draws them itself."""
        assert self.noise is not None
        call = f"`sample_noise` of {self.name}"
        given = self.ask("sample_noise", generator, rows)
        return _checked(self.noise.flatten, given, rows, call)

    def observe(self, state: list[np.ndarray]) -> np.ndarray:
        """What is observed, of shape (rows, d)."""
        rows = len(state[0])
        given: Any = tuple(state)
        if hasattr(self.simulator, "observe"):
            given = self.ask("observe", self.state.unflatten(state))
        columns = given if isinstance(given, tuple | list) else (given,)
        try:
            parts = [np.asarray(column, np.float64).reshape(rows, -1) for column in columns]
        except (TypeError, ValueError):
            raise SimulatorError(
                f"`observe` of {self.name} must give an array of numbers with a row for each of "
                f"the {rows} copies, or a tuple of its columns, got {given!r}."
            ) from None
        return np.concatenate(parts, axis=1)

    def mask(self, state: list[np.ndarray]) -> np.ndarray:
        """Which actions are legal."""
        rows, count = len(state[0]), self.actions.count
        given = np.asarray(self.ask("action_mask", self.state.unflatten(state)))
        if given.shape != (rows, count) or given.dtype != bool:
            raise SimulatorError(
                f"`action_mask` of {self.name} must give booleans of shape {(rows, count)}, got "
                f"{given.dtype} of shape {given.shape}."
            )
        return given

    def bounds(self, state: list[np.ndarray]) -> list[np.ndarray]:
        """The lowest and the highest legal continuous actions."""
        rows = len(state[0])
        given = self.ask("action_bounds", self.state.unflatten(state))
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise SimulatorError(f"`action_bounds` of {self.name} must give (low, high).")
        shape = (rows, *self.actions.low.shape)
        low, high = (
            np.clip(np.asarray(bound, float).reshape(shape), self.actions.low, self.actions.high)
            for bound in given
        )
        return [low, high]

    def step(
        self, state: list[np.ndarray], action: np.ndarray, noise: list[np.ndarray] | None
    ) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
        """State, reward, terminated and truncated after an action, as `Actions.rows` gives it."""
        rows, call = len(state[0]), f"`step` of {self.name}"
        given_noise = None
        if noise is not None:
            assert self.noise is not None
            given_noise = self.noise.unflatten(noise)
        result = self.ask("step", self.state.unflatten(state), action, given_noise)
        if not isinstance(result, tuple) or len(result) not in (3, 4):
            raise SimulatorError(
                f"{call} must give a tuple (state, reward, terminated), or these and truncated, "
                f"got {_short(result)}."
            )
        self.truncates = self.truncates or len(result) == 4
        after = _checked(self.state.flatten, result[0], rows, call)
        reward = _checked(_REWARD.check, result[1], rows, call).astype(np.float64)
        flags = [
            _checked(leaf.check, flag, rows, call)
            for leaf, flag in zip(_FLAGS, result[2:], strict=False)
        ]
        if len(flags) == 1:
            flags.append(np.zeros(rows, bool))
        return after, reward, *flags

    # --- on arrays with leading axes -------------------------------------------------------------

    def draw_states(self, keys: np.ndarray) -> list[np.ndarray]:
        """A state to start from for each key."""
        return draw_for_keys(b"state", keys, self.states)

    def draw_noises(self, keys: np.ndarray, count: int) -> list[np.ndarray]:
        """`count` noises for each key; in mirrored pairs, if the simulator mirrors noise."""
        pairs = functools.partial(self._mirrored_noises, count=count)
        return draw_for_keys(b"noise", keys, pairs if self.mirrors else self.noises, count)

    def draw_noise(self, keys: np.ndarray) -> list[np.ndarray]:
        """A noise for each key."""
        return draw_for_keys(b"noise", keys, self.noises)

    @property
    def mirrors(self) -> bool:
        """Whether the simulator has mirror images of the noises that it draws."""
        return hasattr(self.simulator, "mirrored")

    def _mirrored_noises(
        self, generator: np.random.Generator, rows: int, count: int
    ) -> list[np.ndarray]:
        """For each of the keys of these rows: noises, then their mirror images."""
        keys, half = rows // count, (count + 1) // 2
        noise = self.noises(generator, keys * half)
        mirrored = self.mirror_rows(*noise)

        def pairs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            both = [x.reshape(keys, half, *x.shape[1:]) for x in (a, b)]
            return np.concatenate(both, axis=1)[:, :count].reshape(rows, *a.shape[1:])

        return list(map(pairs, noise, mirrored))

    def mirror_rows(self, *noise: np.ndarray) -> list[np.ndarray]:
        """The mirror images of noises."""
        assert self.noise is not None
        lead, rows = _rows(noise, self.noise.leaves)
        given = self.ask("mirrored", self.noise.unflatten(rows))
        call = f"`mirrored` of {self.name}"
        mirrored = _checked(self.noise.flatten, given, len(rows[0]), call)
        return [array.reshape((*lead, *array.shape[1:])) for array in mirrored]

    def observe_rows(self, *state: np.ndarray) -> list[np.ndarray]:
        """What is observed of states."""
        lead, rows = _rows(state, self.state.leaves)
        observed = self.observe(rows)
        bad = ~np.isfinite(observed).all(axis=1)
        if bad.any():
            row = int(np.argmax(bad))
            raise SimulatorError(
                f"`observe` of {self.name} must give finite numbers, got {observed[row]} for the "
                f"state {_row(self.state, rows, row)}."
            )
        return [observed.reshape(*lead, -1)]

    def mask_rows(self, *state: np.ndarray) -> list[np.ndarray]:
        """Which actions are legal in states."""
        lead, rows = _rows(state, self.state.leaves)
        return [self.mask(rows).reshape(*lead, -1)]

    def bounds_rows(self, *state: np.ndarray) -> list[np.ndarray]:
        """The lowest and the highest continuous action in states."""
        lead, rows = _rows(state, self.state.leaves)
        return [bound.reshape(*lead, -1) for bound in self.bounds(rows)]

    def step_rows(self, continuous: bool, slopes: bool, *arrays: np.ndarray) -> list[np.ndarray]:
        """State, reward, terminated and truncated after a step; where `slopes`, also the
        derivatives of the state and the reward by the state and the action.

        Arguments:
            continuous: whether actions are points rather than numbers of actions.
            slopes: whether derivatives are needed.
            arrays: whether the episode is over, the state, the action, the noise. Rows of episodes
                that are over are not shown to the user's code.
        """
        leaves, noise_leaves = self.state.leaves, self.noise.leaves if self.noise else []
        action = Leaf("action", *self.actions.jax_shape(continuous))
        lead, rows = _rows(arrays, [_FLAGS[0], *leaves, action, *noise_leaves])
        over, state, chosen = rows[0], rows[1 : 1 + len(leaves)], rows[1 + len(leaves)]
        noise = rows[2 + len(leaves) :] if self.noise else None
        alive = np.flatnonzero(~over)
        count, everyone = len(over), len(alive) == len(over)
        if not everyone:
            state, chosen = [array[alive] for array in state], chosen[alive]
            noise = None if noise is None else [array[alive] for array in noise]
        results = self._alive_step(state, chosen, noise, continuous, slopes) if len(alive) else None
        if everyone and results is not None:
            return [array.reshape((*lead, *array.shape[1:])) for array in results]
        filled = [*rows[1 : 1 + len(leaves)], np.zeros(count), np.ones(count, bool)]
        filled.append(np.zeros(count, bool))
        if slopes:
            filled.append(np.zeros((count, *self.slopes_shape(continuous))))
        for whole, part in zip(filled, results or (), strict=False):
            whole[alive] = part
        return [array.reshape((*lead, *array.shape[1:])) for array in filled]

    def _alive_step(
        self,
        state: list[np.ndarray],
        chosen: np.ndarray,
        noise: list[np.ndarray] | None,
        continuous: bool,
        slopes: bool,
    ) -> list[np.ndarray]:
        action = self.actions.rows(chosen, continuous)
        if continuous and not np.isfinite(action).all():
            raise SimulatorError(
                f"The agent's action for {self.name} is not a number: its training has diverged. "
                "Derivatives of `step` may be huge where a reward jumps, as a fixed cost does. Use "
                "ds.QRSRM or ds.ACSRM, which need none, or a smooth reward."
            )
        if slopes:
            after, reward, terminated, truncated, jacobian = self._differences(
                state, action, noise, continuous
            )
        else:
            after, reward, terminated, truncated = self.step(state, action, noise)
            jacobian = None
        bad = ~np.isfinite(reward)
        if bad.any():
            row = int(np.argmax(bad))
            shown = "" if noise is None else f" and noise {_row(self.noise, noise, row)}"
            raise SimulatorError(
                f"`step` of {self.name} must give finite rewards, got {reward[row]} for the state "
                f"{_row(self.state, state, row)}, action {action[row]}{shown}."
            )
        results = [*after, reward, terminated, truncated]
        return results if jacobian is None else [*results, jacobian]

    # --- derivatives -----------------------------------------------------------------------------

    def slopes_shape(self, continuous: bool) -> tuple[int, int]:
        """Of the derivatives of a step: (numbers of the state + reward) by (numbers of the state +
        numbers of a continuous action)."""
        size = sum(self.state.leaves[i].size for i in self.real)
        return size + 1, size + (self.actions.low.size if continuous else 0)

    def _differences(
        self,
        state: list[np.ndarray],
        action: np.ndarray,
        noise: list[np.ndarray] | None,
        continuous: bool,
    ) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """A step, and its derivatives by finite differences: every state is there again with one
        number moved, all in one call.

        An action that is a point of a grid is moved to its neighbours on both sides: only there is
        the reward defined, and a cost that jumps between two points, such as a fixed fee, is spread
        over their distance.
        """
        inputs = self.slopes_shape(continuous)[1]
        numbers = self.actions.low.size if continuous else 0
        on_grid = continuous and self.actions.points is not None
        copies = 1 + inputs + (numbers if on_grid else 0)  # the last: the other neighbours
        rows = len(state[0])
        state = [np.tile(x, (copies, *[1] * (x.ndim - 1))) for x in state]
        action = np.tile(action, (copies, *[1] * (action.ndim - 1)))
        if noise is not None:
            noise = [np.tile(x, (copies, *[1] * (x.ndim - 1))) for x in noise]
        moves = self._move(state, rows)
        flat = action.reshape(copies, rows, -1)
        below = np.zeros(inputs, int)
        if on_grid:
            below[inputs - numbers :] = inputs + 1 + np.arange(numbers)
        for k in range(numbers):
            upper, lower = inputs - numbers + 1 + k, below[inputs - numbers + k]
            self._move_action(flat[upper, :, k], flat[lower, :, k], k)
            moves.append(flat[upper, :, k] - flat[lower, :, k])
        after, reward, terminated, truncated = self.step(state, action, noise)
        results = [after[i].reshape(copies, rows, -1) for i in self.real]
        values = np.concatenate([*results, reward.reshape(copies, rows, 1)], axis=2)
        jacobian = np.stack(
            [
                (values[number + 1] - values[below[number]]) / move[:, None]
                for number, move in enumerate(moves)
            ],
            axis=2,
        )
        return (
            [x[:rows] for x in after],
            reward[:rows],
            terminated[:rows],
            truncated[:rows],
            jacobian,
        )

    def _move_action(self, upper: np.ndarray, lower: np.ndarray, k: int) -> None:
        """Moves number k of the action to both neighbours within the box. Where actions are no
        points of a grid only `upper` moves: a little up, or down where there is no room."""
        low, high, spacing = self.actions.low[k], self.actions.high[k], self.actions.spacing[k]
        if spacing:
            np.clip(upper + spacing, low, high, out=upper)
            np.clip(lower - spacing, low, high, out=lower)
            return
        change = self.step_size * np.maximum(1.0, np.abs(upper))
        upper += np.where(upper + change > high, -change, change)

    def _move(self, state: list[np.ndarray], rows: int) -> list[np.ndarray]:
        """Moves one number of the state in each copy of it but the first; gives by how much."""
        moves = []
        for i in self.real:
            numbers = state[i].reshape(-1, rows, self.state.leaves[i].size)
            for k in range(numbers.shape[2]):
                before = numbers[len(moves) + 1, :, k].copy()
                after = before + self.step_size * np.maximum(1.0, np.abs(before))
                after = after.astype(numbers.dtype)
                numbers[len(moves) + 1, :, k] = after
                moves.append((after - before).astype(np.float64))
            state[i] = numbers.reshape(state[i].shape)
        return moves

    def observe_slopes(self, *state: np.ndarray) -> list[np.ndarray]:
        """What is observed of states, and its derivatives by the numbers of the state."""
        lead, rows = _rows(state, self.state.leaves)
        count = len(rows[0])
        inputs = self.slopes_shape(continuous=False)[1]
        tiled = [np.tile(x, (1 + inputs, *[1] * (x.ndim - 1))) for x in rows]
        moves = self._move(tiled, count)
        values = self.observe(tiled).reshape(1 + inputs, count, -1)
        slopes = [(values[n + 1] - values[0]) / move[:, None] for n, move in enumerate(moves)]
        jacobian = np.stack(slopes, axis=2) if slopes else np.zeros((*values[0].shape, 0))
        return [values[0].reshape(*lead, -1), jacobian.reshape(*lead, *jacobian.shape[1:])]


def ask(simulator: Any, method: str, *arguments: Any) -> Any:
    """What a function of the user gives, or an error that names their line."""
    try:
        return getattr(simulator, method)(*arguments)
    except Exception as error:
        raise fault_in(f"`{method}` of {type(simulator).__name__}", error) from error


_REWARD = Leaf("reward", (), np.dtype(float))
_FLAGS = (Leaf("terminated", (), np.dtype(bool)), Leaf("truncated", (), np.dtype(bool)))


def _short(result: Any) -> str:
    return f"{len(result)} entries" if isinstance(result, tuple) else type(result).__name__


def _checked(function: Callable, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ValueError as error:
        raise SimulatorError(str(error)) from None


def _rows(
    arrays: Sequence[np.ndarray], leaves: Sequence[Leaf]
) -> tuple[tuple[int, ...], list[np.ndarray]]:
    """The leading axes that all arrays have together, and copies of them as rows, in the user's
    types."""
    leads = [
        array.shape[: array.ndim - len(leaf.shape)]
        for array, leaf in zip(arrays, leaves, strict=True)
    ]
    lead = np.broadcast_shapes(*leads)
    count = math.prod(lead)
    rows = []
    for array, leaf in zip(arrays, leaves, strict=True):
        whole = np.broadcast_to(array, (*lead, *leaf.shape))
        rows.append(np.array(whole, leaf.dtype, order="C").reshape((count, *leaf.shape)))
    return lead, rows


def _row(layout: Layout | None, arrays: list[np.ndarray], row: int) -> Any:
    """One row, to show."""
    assert layout is not None
    return layout.unflatten([array[row] for array in arrays])
