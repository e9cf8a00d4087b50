"""Names of observations and actions, for people who did not write the environment."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from jaxtyping import Float

from downside.envs import AbstractJaxEnv, AmericanPut, CliffWalk, MeanReversion, Tabular
from downside.explanation.narrative import number
from downside.explanation.trajectory import Action

_DIRECTIONS = ("up", "right", "down", "left")
_LANDER = (
    "position across",
    "height",
    "speed across",
    "speed upwards",
    "angle",
    "turning speed",
    "left leg on the ground",
    "right leg on the ground",
)
_ENGINES = ("engines off", "left engine", "main engine", "right engine")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Names:
    """Names for what an environment shows and does."""

    observation: Callable[[Float[np.ndarray, " d"]], dict[str, float]]
    """The numbers of an observation, by name."""
    action: Callable[[Any], str]
    """What an action does, as a command."""
    coordinates: tuple[str, ...] = ()
    """The names of the coordinates of a continuous action, where they have names."""


def names_of(env: Any) -> Names:
    """The names for an environment: in JAX, in JAX behind a Gymnasium environment, or any other.

    An environment may bring its names: `observation_names`, one for each number that it shows, and
    `action_names`, one for each discrete action or for each coordinate of a continuous one. They
    are attributes of the environment, entries of its `metadata`, or attributes `names` of its
    spaces. The parts of a `Dict` observation have the names of its keys.
    """
    core = env if isinstance(env, AbstractJaxEnv) else getattr(unwrapped(env), "core", None)
    names = _known_names(env, core)
    problem = unwrapped(env) if core is None else core
    observations = _given_names(env, problem, "observation")
    actions = _given_names(env, problem, "action")
    if not observations and core is None:
        observations = _names_of_parts(getattr(problem, "observation_space", None))
    if observations:
        names = dataclasses.replace(
            names,
            observation=lambda values: dict(zip(observations, map(float, values), strict=False)),
        )
    if actions:
        names = dataclasses.replace(
            names, action=lambda action: _named_action(actions, action), coordinates=actions
        )
    return names


def _given_names(env: Any, problem: Any, what: str) -> tuple[str, ...]:
    """The names that an environment brings, of its observations or its actions."""
    places = [getattr(problem, f"{what}_names", None)]
    for holder in (env, problem):
        metadata = getattr(holder, "metadata", None)
        if isinstance(metadata, Mapping):
            places.append(metadata.get(f"{what}_names"))
        places.append(getattr(getattr(holder, f"{what}_space", None), "names", None))
    for names in places:
        if isinstance(names, Sequence | np.ndarray) and not isinstance(names, str) and len(names):
            return tuple(str(name) for name in names)
    return ()


def _names_of_parts(space: Any) -> tuple[str, ...]:
    """The keys of a `Dict`, for each number that its parts are flattened to; nothing for others."""
    if not isinstance(space, gym.spaces.Dict):
        return ()
    names: list[str] = []
    for key, part in space.spaces.items():
        size = gym.spaces.flatdim(part)
        names += [str(key)] if size == 1 else [f"{key} {i}" for i in range(size)]
    return tuple(names)


def _known_names(env: Any, core: Any) -> Names:
    """The names for the environments that we know, and numbers for all others."""
    if isinstance(core, MeanReversion):
        return Names(
            observation=lambda values: {"price": float(values[0]), "inventory": float(values[1])},
            action=lambda action: _trade(
                action[0] if isinstance(action, tuple) else float(core.trades[action])
            ),
            coordinates=("trade",),
        )
    if isinstance(core, AmericanPut):
        return Names(
            observation=lambda values: {"price": float(values[0])},
            action=lambda action: ("hold", "exercise")[action],
        )
    if isinstance(core, CliffWalk):
        return Names(
            observation=lambda values: dict(
                zip(
                    ("row", "column"),
                    map(float, divmod(_marked(values), core.columns)),
                    strict=True,
                )
            ),
            action=lambda action: _DIRECTIONS[action],
        )
    if isinstance(core, Tabular):
        return Names(
            observation=lambda values: {"state": float(_marked(values[: core.num_states]))},
            action=_number,
        )
    if type(unwrapped(env)).__name__ == "LunarLander":
        return Names(
            observation=lambda values: dict(zip(_LANDER, map(float, values), strict=False)),
            action=lambda action: _ENGINES[action],
        )
    return Names(observation=_numbered, action=_number)


def unwrapped(env: Any) -> Any:
    """The environment inside all wrappers."""
    return getattr(env, "unwrapped", env)


def _trade(amount: float) -> str:
    if abs(amount) < 5e-4:
        return "do nothing"
    return f"{'buy' if amount > 0 else 'sell'} {float(f'{abs(amount):.3g}'):g}"


def _marked(values: np.ndarray) -> int:
    return int(np.argmax(values))


def _number(action: Action) -> str:
    if isinstance(action, tuple):
        texts = [number(coordinate) for coordinate in action]
        return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
    return f"action {action}"


def _named_action(names: tuple[str, ...], action: Action) -> str:
    """The name of a discrete action; the coordinates of a continuous one, each with its name."""
    if not isinstance(action, tuple):
        return names[action] if action < len(names) else _number(action)
    pairs = itertools.zip_longest(names[: len(action)], action)
    return ", ".join(f"{name or ''} {number(value)}".strip() for name, value in pairs)


def _numbered(values: Float[np.ndarray, " d"]) -> dict[str, float]:
    return {f"observation {i}": float(value) for i, value in enumerate(values[:12])}
