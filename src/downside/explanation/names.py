"""What observations and actions are called, for people who did not write the environment."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from downside.envs import AbstractJaxEnv, AmericanPut, CliffWalk, MeanReversion, Tabular

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
    """How to say what an environment shows and does."""

    observation: Callable[[Float[np.ndarray, " d"]], dict[str, float]]
    """What an observation says, by name."""
    action: Callable[[int], str]
    """What an action does, as an order."""


def names_of(env: Any) -> Names:
    """The names for an environment: in JAX, with a Gymnasium face, or any other."""
    core = env if isinstance(env, AbstractJaxEnv) else getattr(unwrapped(env), "core", None)
    if isinstance(core, MeanReversion):
        return Names(
            observation=lambda seen: {"price": float(seen[0]), "inventory": float(seen[1])},
            action=lambda action: _trade(float(core.trades[action])),
        )
    if isinstance(core, AmericanPut):
        return Names(
            observation=lambda seen: {"price": float(seen[0])},
            action=lambda action: ("hold", "exercise")[action],
        )
    if isinstance(core, CliffWalk):
        return Names(
            observation=lambda seen: dict(
                zip(("row", "column"), map(float, divmod(_marked(seen), core.columns)), strict=True)
            ),
            action=lambda action: _DIRECTIONS[action],
        )
    if isinstance(core, Tabular):
        return Names(
            observation=lambda seen: {"state": float(_marked(seen[: core.num_states]))},
            action=_number,
        )
    if type(unwrapped(env)).__name__ == "LunarLander":
        return Names(
            observation=lambda seen: dict(zip(_LANDER, map(float, seen), strict=False)),
            action=lambda action: _ENGINES[action],
        )
    return Names(observation=_numbered, action=_number)


def unwrapped(env: Any) -> Any:
    """The environment inside all wrappers."""
    return getattr(env, "unwrapped", env)


def _trade(amount: float) -> str:
    if abs(amount) < 1e-9:
        return "do nothing"
    return f"{'buy' if amount > 0 else 'sell'} {abs(amount):g}"


def _marked(seen: np.ndarray) -> int:
    return int(np.argmax(seen))


def _number(action: int) -> str:
    return f"action {action}"


def _numbered(seen: Float[np.ndarray, " d"]) -> dict[str, float]:
    return {f"observation {i}": float(value) for i, value in enumerate(seen[:12])}
