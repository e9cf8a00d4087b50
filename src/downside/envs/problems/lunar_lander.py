"""Gymnasium's Lunar Lander, twice: with wind, and with a gamble. Box2D simulates it."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from downside.envs._parameters import as_float, check_real, check_whole
from downside.envs.problems.by_name import check_names

WINDY = {"continuous": False, "gravity": -10.0, "wind_power": 15.0, "turbulence_power": 1.5}
RISKY = {"continuous": False, "bonus_mean": 70.0, "bonus_spread": 100.0, "layout_seed": 4}


def windy_lunar_lander(*, render_mode: str | None = None, **parameters: Any) -> gym.Env:
    """Land a spacecraft while the wind pushes it: `LunarLander-v3` with `enable_wind=True`.

    ## Description
    The lander starts at the top of the screen and has to come down gently on a pad. Wind and
    turbulence make the outcome random: the third problem of the paper.

    ## Action Space
    `Discrete(4)`: 0 nothing, 1 left engine, 2 main engine, 3 right engine; a `Box` of shape (2,)
    with `continuous=True`.

    ## Observation Space
    `Box` of shape (8,), float32: position (2), velocity (2), angle, angular velocity, and whether
    each of the two legs touches the ground.

    ## Rewards
    Closer to the pad, slower and more upright is better; each leg on the ground is worth 10, a
    frame of the main engine costs 0.3 and of a side engine 0.03; 100 for a landing, -100 for a
    crash. Returns are in the hundreds: see `reward_scale` of the wrappers.

    ## Starting State
    The top centre, with a random push.

    ## Episode End
    Terminates on a crash, out of sight or at rest. Truncates after 1000 steps.

    ## Arguments
    `continuous` (False), `gravity` (-10, in (-12, 0)), `wind_power` (15, in [0, 20]) and
    `turbulence_power` (1.5, in [0, 2]), for example
    `gym.make("downside/WindyLunarLander-v0", wind_power=10.0)`.

    Args:
        render_mode: "human", "rgb_array" or None.
        **parameters: The arguments above.
    """
    check_names("WindyLunarLander", parameters, tuple(WINDY))
    chosen = WINDY | {name: as_float(value) for name, value in parameters.items()}
    check_real("gravity", chosen["gravity"], "Gymnasium uses -10.0.", above=-12.0, below=0.0)
    for name, most in (("wind_power", 20.0), ("turbulence_power", 2.0)):
        usual = f"Gymnasium uses {WINDY[name]}."
        check_real(name, chosen[name], usual, least=0.0, most=most)
    return _lander()(render_mode=render_mode, enable_wind=True, **chosen)


def _lander() -> Any:
    """Gymnasium's class, or an error that says what to install."""
    try:
        with warnings.catch_warnings():
            # Box2D warns while its extension loads; a warning that is an error then kills Python.
            warnings.simplefilter("ignore")
            from gymnasium.envs.box2d.lunar_lander import LunarLander
    except (ImportError, gym.error.DependencyNotInstalled) as error:
        raise gym.error.DependencyNotInstalled(
            "The lunar lander needs Box2D, which is not installed. "
            'Run `pip install "downside[box2d]"`.'
        ) from error
    return LunarLander


class RiskyLunarLander(gym.Wrapper):
    """Gymnasium's lander with one terrain and a gamble on its right side."""

    def __init__(self, env: gym.Env, bonus_mean: float, bonus_spread: float, layout_seed: int):
        super().__init__(env)
        self.bonus_mean, self.bonus_spread = bonus_mean, bonus_spread
        self.layout_seed = layout_seed
        self._generator = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """The same start in every episode; `seed` is that of the bonus."""
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        return super().reset(seed=self.layout_seed, options=options)

    def step(self, action: Any):
        """As the lander's, with the bonus at the end on the right side."""
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated and observation[0] > 0.0:
            reward = float(reward) + self._generator.normal(self.bonus_mean, self.bonus_spread)
        return observation, reward, terminated, truncated, info


def risky_lunar_lander(*, render_mode: str | None = None, **parameters: Any) -> gym.Env:
    """Land a spacecraft on the safe left side, or gamble on the right: `LunarLander-v3`.

    ## Description
    Terrain and start are the same in every episode, and there is no wind. An episode that ends
    right of the middle gets a random bonus, which is good on average and bad in its tail. From
    "Return Capping: Sample Efficient CVaR Policy Gradient Optimisation" (Mead, Duckworth, Lacerda
    and Hawes, 2025).

    ## Action Space
    `Discrete(4)`: 0 nothing, 1 left engine, 2 main engine, 3 right engine; a `Box` of shape (2,)
    with `continuous=True`.

    ## Observation Space
    `Box` of shape (8,), float32: position (2), velocity (2), angle, angular velocity, and whether
    each of the two legs touches the ground.

    ## Rewards
    Those of `LunarLander-v3`, and a bonus from N(`bonus_mean`, `bonus_spread`²) for an episode that
    terminates right of the middle.

    ## Starting State
    The top centre, with the push that `layout_seed` gives.

    ## Episode End
    Terminates on a crash, out of sight or at rest. Truncates after 1000 steps.

    ## Arguments
    `continuous` (False), `bonus_mean` (70), `bonus_spread` (100, at least 0) and `layout_seed` (4),
    for example `gym.make("downside/RiskyLunarLander-v0", bonus_spread=50.0)`.

    Args:
        render_mode: "human", "rgb_array" or None.
        **parameters: The arguments above.
    """
    check_names("RiskyLunarLander", parameters, tuple(RISKY))
    chosen = RISKY | {name: as_float(value) for name, value in parameters.items()}
    chosen["layout_seed"] = parameters.get("layout_seed", RISKY["layout_seed"])
    check_real("bonus_mean", chosen["bonus_mean"], "The default is 70.")
    check_real("bonus_spread", chosen["bonus_spread"], "0 makes the bonus certain.", least=0.0)
    check_whole("layout_seed", chosen["layout_seed"], "The default is 4.", least=0)
    lander = _lander()(render_mode=render_mode, continuous=chosen.pop("continuous"))
    return RiskyLunarLander(lander, **chosen)


class Lander(NamedTuple):
    """How a lander is made."""

    make: Callable[..., gym.Env]
    parameters: Mapping[str, Any]
    """The names of its parameters and their default values."""


LANDERS: Mapping[str, Lander] = {
    "windy_lunar_lander": Lander(windy_lunar_lander, WINDY),
    "risky_lunar_lander": Lander(risky_lunar_lander, RISKY),
}
