"""What a simulator is, and whether it keeps the rules, played in NumPy before an agent meets it."""

import random
from typing import Any

import gymnasium as gym
import numpy as np

from downside._names import did_you_mean
from downside.envs.faults import SimulatorError
from downside.envs.simulators.actions import Actions
from downside.envs.simulators.batches import Layout
from downside.envs.simulators.calls import SimulatorCalls, ask

_ROWS = 7
"""Copies that are played."""
_STEPS = 300
"""Of each episode at most so many steps are played."""
_WHOLE_CHECKS = 3
"""Steps after which rows are also asked for alone: in the others it is enough that the same
question gets the same answer."""
_METHODS = (
    *("initial_state", "step", "observe", "sample_noise", "mirrored"),
    *("action_mask", "action_bounds", "horizon", "actions", "noise"),
    *("observation_names", "action_names", "observation_space", "gamma"),
)
_FORMS = '"normal", "uniform", ("normal", k), or a dictionary of these'


def describe(simulator: Any) -> SimulatorCalls:
    """The simulator with the layout of its batches, or an error on what it lacks."""
    name = type(simulator).__name__
    for method in ("initial_state", "step"):
        if not callable(getattr(simulator, method, None)):
            theirs = [known for known in dir(simulator) if not known.startswith("_")]
            raise TypeError(
                f"{name} must have a method `{method}`.{did_you_mean(method, theirs)} A simulator "
                "has `horizon`, `actions`, `initial_state(rng, count)` and `step(state, action, "
                "noise)`; see help(ds.Simulator)."
            )
    for attribute in ("horizon", "actions"):
        if not hasattr(simulator, attribute):
            what = "the largest number of steps of an episode, or None"
            if attribute == "actions":
                what = "a number of actions, the points that they stand for, or a Box"
            raise TypeError(f"{name} must have an attribute `{attribute}`: {what}.")
    horizon = simulator.horizon
    if horizon is not None and not (
        isinstance(horizon, int | np.integer) and not isinstance(horizon, bool) and horizon >= 1
    ):
        raise ValueError(
            f"`horizon` of {name} must be a whole number of at least 1, or None, got {horizon!r}."
        )
    actions = Actions(simulator.actions, name)
    generator = np.random.default_rng(0)
    given = ask(simulator, "initial_state", generator, _ROWS)
    calls = SimulatorCalls(
        simulator, actions, _layout(given, "state", f"`initial_state` of {name}")
    )
    if not calls.state.leaves:
        raise SimulatorError(f"`initial_state` of {name} must give at least one array.")
    _describe_noise(calls, generator)
    calls.horizon = None if horizon is None else int(horizon)
    states = calls.states(np.random.default_rng(0), _ROWS)
    calls.observation_size = calls.observe(states).shape[1]
    calls.observation_space = _observation_space(calls)
    calls.observation_names = _names(calls, "observation_names", calls.observation_size)
    calls.action_names = _names(calls, "action_names", actions.count or actions.low.size)
    return calls


def _layout(given: Any, what: str, call: str) -> Layout:
    try:
        return Layout(given, _ROWS, what, call)
    except ValueError as error:
        raise SimulatorError(str(error)) from None


def _describe_noise(calls: SimulatorCalls, generator: np.random.Generator) -> None:
    draws = callable(getattr(calls.simulator, "sample_noise", None))
    declared = getattr(calls.simulator, "noise", None)
    if draws and declared is not None:
        raise TypeError(
            f"{calls.name} has both `noise` and `sample_noise`. Declare the noise, or draw it."
        )
    if draws:
        given = calls.ask("sample_noise", generator, _ROWS)
        calls.noise = _layout(given, "noise", f"`sample_noise` of {calls.name}")
    elif declared is not None:
        calls.declared = _declaration(declared, calls.name)
        example = _numpy_noise(calls.declared, generator, _ROWS)
        calls.noise = Layout(example, _ROWS, "noise", "`noise`")


def _declaration(declared: Any, name: str) -> Any:
    """The noise of each part as its kind and shape."""
    if isinstance(declared, dict) and declared:
        return {str(key): _declaration(part, name) for key, part in declared.items()}
    kind, shape = declared, ()
    if isinstance(declared, tuple | list) and len(declared) == 2:
        kind, size = declared
        shape = (size,)
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
            kind = None
    if kind not in ("normal", "uniform"):
        raise ValueError(
            f"`noise` of {name} must be {_FORMS}, got {declared!r}. For any other distribution "
            "define `sample_noise(self, rng, count)`."
        )
    return kind, tuple(map(int, shape))


def _numpy_noise(declared: Any, generator: np.random.Generator, rows: int) -> Any:
    if isinstance(declared, dict):
        return {name: _numpy_noise(part, generator, rows) for name, part in declared.items()}
    kind, shape = declared
    draw = generator.standard_normal if kind == "normal" else generator.random
    return draw((rows, *shape))


def draw_noise(
    calls: SimulatorCalls, generator: np.random.Generator, rows: int
) -> list[np.ndarray] | None:
    """Noise for so many rows, drawn by NumPy; None without noise."""
    if calls.noise is None:
        return None
    if calls.declared is None:
        return calls.noises(generator, rows)
    return calls.noise.flatten(_numpy_noise(calls.declared, generator, rows), rows, "`noise`")


def _observation_space(calls: SimulatorCalls) -> gym.spaces.Box:
    size = calls.observation_size
    space = getattr(calls.simulator, "observation_space", None)
    if space is None:
        return gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
    if not isinstance(space, gym.spaces.Box) or space.shape != (size,):
        raise ValueError(
            f"`observation_space` of {calls.name} must be a Box of shape {(size,)}, as `observe` "
            f"gives {size} numbers, got {space}."
        )
    return gym.spaces.Box(
        space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32
    )


def _names(calls: SimulatorCalls, what: str, count: int) -> tuple[str, ...]:
    names = getattr(calls.simulator, what, None)
    if names is None:
        return ()
    if isinstance(names, str) or len(names) != count:
        raise ValueError(
            f"`{what}` of {calls.name} must be {count} names, one for each number, got {names!r}."
        )
    return tuple(map(str, names))


# --- the rules ------------------------------------------------------------------------------------


def check_simulator(calls: SimulatorCalls, seed: int = 0) -> None:
    """Plays a few copies, and raises on the first rule that the simulator breaks."""
    _check_draws(calls)
    generator = np.random.default_rng(seed)
    state = calls.states(generator, _ROWS)
    over = np.zeros(_ROWS, bool)
    length = min(calls.horizon or _STEPS, _STEPS)
    for time in range(length):
        noise = draw_noise(calls, generator, _ROWS)
        action = _random_actions(calls, generator, state)
        alive = np.flatnonzero(~over)
        arguments = ([x[alive] for x in state], action[alive])
        noises = None if noise is None else [x[alive] for x in noise]
        after, reward, terminated, truncated = _check_step(calls, *arguments, noises, time)
        _check_numbers(calls, reward, after)
        for whole, part in zip(state, after, strict=True):
            whole[alive] = part
        over[alive] = terminated | truncated
        if over.all():
            break
    else:
        if calls.horizon is not None and calls.horizon <= _STEPS:
            raise SimulatorError(
                f"Episodes of {calls.name} must end within its `horizon` of {calls.horizon} "
                "steps. Keep the time in the state, and give terminated = time == horizon."
            )


def _check_draws(calls: SimulatorCalls) -> None:
    """Starts and noises must follow from the generator that is passed."""
    draws = [("initial_state", calls.states)]
    if calls.noise is not None and calls.declared is None:
        draws.append(("sample_noise", calls.noises))
    for method, draw in draws:
        first, second = (draw(np.random.default_rng(1), _ROWS) for _ in range(2))
        if not _same(first, second):
            raise SimulatorError(
                f"`{method}` of {calls.name} must draw from the `rng` that it gets: with the same "
                f"`rng` it gave different numbers.{_own_generator(calls)}"
            )
        for rows in (1, 3):
            draw(np.random.default_rng(1), rows)
    if calls.noise is not None and calls.declared is None and calls.mirrors:
        noise = calls.noises(np.random.default_rng(1), _ROWS)
        if not _same(calls.mirror_rows(*calls.mirror_rows(*noise)), noise, 1e-6):
            raise SimulatorError(
                f"`mirrored` of {calls.name} must give a noise whose mirror image is the noise "
                "itself: -noise for a standard normal, 1 - noise for a uniform one."
            )


def _random_actions(
    calls: SimulatorCalls, generator: np.random.Generator, state: list[np.ndarray]
) -> np.ndarray:
    """Legal ones, as `step` gets them."""
    actions = calls.actions
    if actions.count:
        chance = generator.random((_ROWS, actions.count))
        if hasattr(calls.simulator, "action_mask"):
            mask = _check_view(calls, "action_mask", calls.mask, state)
            if not mask.any(axis=1).all():
                raise SimulatorError(
                    f"`action_mask` of {calls.name} must allow at least one action, got none."
                )
            chance = np.where(mask, chance, -1.0)
        return actions.rows(chance.argmax(axis=1), continuous=False)
    low, high = actions.low, actions.high
    if hasattr(calls.simulator, "action_bounds"):
        low, high = calls.bounds([x.copy() for x in state])
    chosen = low + (high - low) * generator.random((_ROWS, actions.low.size))
    return actions.rows(chosen, continuous=True)


def _check_step(
    calls: SimulatorCalls,
    state: list[np.ndarray],
    action: np.ndarray,
    noise: list[np.ndarray] | None,
    time: int,
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    def ask(rows: Any = slice(None)) -> list[np.ndarray]:
        arguments = [x[rows].copy() for x in state], action[rows].copy()
        noises = None if noise is None else [x[rows].copy() for x in noise]
        kept = _copies([*arguments[0], arguments[1], *(noises or ())])
        after, *rest = calls.step(*arguments, noises)
        if not _same(kept, [*arguments[0], arguments[1], *(noises or ())]):
            raise SimulatorError(
                f"`step` of {calls.name} must not change its arguments, but it did. Make new "
                "arrays: `price = state['price'] + 1` instead of `state['price'] += 1`."
            )
        return _copies([*after, *rest])

    first, again = ask(), ask()
    if not _same(first, again):
        raise SimulatorError(
            f"`step` of {calls.name} must be a function of state, action and noise: called twice "
            "with the same arguments, it gave different results. Draw all randomness in "
            "`sample_noise(self, rng, count)`, which gets a seeded numpy.random.Generator, and use "
            "what `step` gets as `noise`; keep what changes in the state, not in the object."
            f"{_own_generator(calls)}"
        )
    if time < _WHOLE_CHECKS:
        count = len(action)
        for rows in ([count - 1], list(range(count))[::-1], list(range(0, count, 2))):
            if not _same([x[rows] for x in first], ask(rows), 1e-6):
                raise SimulatorError(
                    f"`step` of {calls.name} must treat every row by itself: rows {rows} alone "
                    f"led to other results than among all {count}. Look for sums, means, indices "
                    "and conditions that mix the copies."
                )
        _check_view(calls, "observe", calls.observe, first[: len(state)])
    return first[: len(state)], first[-3], first[-2], first[-1]


def _check_view(
    calls: SimulatorCalls, method: str, view: Any, state: list[np.ndarray]
) -> np.ndarray:
    """What `observe` or `action_mask` gives, after checking that it depends on each row alone."""
    given = _copies(state)
    result = np.array(view(given))
    count = len(result)
    alone = [view([x[i : i + 1].copy() for x in state])[0] for i in range(count)]
    if not _same(given, state):
        raise SimulatorError(f"`{method}` of {calls.name} must not change the state, but it did.")
    if not _same([result], [np.stack(alone)], 1e-6) or not _same([result], [view(given)]):
        raise SimulatorError(
            f"`{method}` of {calls.name} must be a function of each row of the state by itself: "
            f"a row alone, or asked for again, was not the same.{_own_generator(calls)}"
        )
    if not np.isfinite(result).all():
        raise SimulatorError(f"`{method}` of {calls.name} must give finite numbers, got {result}.")
    return result


def _check_numbers(calls: SimulatorCalls, reward: np.ndarray, state: list[np.ndarray]) -> None:
    if not np.isfinite(reward).all():
        raise SimulatorError(
            f"`step` of {calls.name} must give finite rewards, got {reward[~np.isfinite(reward)]}."
        )
    observed = calls.observe(_copies(state))
    if not np.isfinite(observed).all():
        row = int(np.argmin(np.isfinite(observed).all(axis=1)))
        raise SimulatorError(
            f"`observe` of {calls.name} must give finite numbers, also after the last step, got "
            f"{observed[row]}."
        )
    for leaf, array in zip(calls.state.leaves, state, strict=True):
        if leaf.dtype.kind in "iu" and np.abs(array).max(initial=0) >= 2**31:
            raise SimulatorError(
                f"`{leaf.path}` of {calls.name} must fit into 32 bits, got {array.max()}. Count "
                "from the start of the episode, or use real numbers."
            )


def _own_generator(calls: SimulatorCalls) -> str:
    """A sentence on the generator that the simulator holds, if it holds one."""
    kinds = (np.random.Generator, np.random.RandomState, random.Random)
    held = [name for name, value in vars(calls.simulator).items() if isinstance(value, kinds)]
    return f" It holds a generator of its own, `self.{held[0]}`." if held else ""


def _copies(arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [np.array(array) for array in arrays]


def _same(first: list[np.ndarray], second: list[np.ndarray], tolerance: float = 0.0) -> bool:
    return all(
        np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        for a, b in zip(first, second, strict=True)
    )
