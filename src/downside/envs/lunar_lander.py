"""Gymnasium's Lunar Lander with wind. Box2D simulates it, so there is no JAX core."""

import warnings
from typing import Any

import gymnasium as gym

from downside.envs._parameters import as_float, check_real
from downside.envs.problems import check_names

PARAMETERS = {
    "continuous": False,
    "gravity": -10.0,
    "wind_power": 15.0,
    "turbulence_power": 1.5,
}


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
    check_names("WindyLunarLander", parameters, tuple(PARAMETERS))
    chosen = PARAMETERS | {name: as_float(value) for name, value in parameters.items()}
    check_real("gravity", chosen["gravity"], "Gymnasium uses -10.0.", above=-12.0, below=0.0)
    for name, most in (("wind_power", 20.0), ("turbulence_power", 2.0)):
        usual = f"Gymnasium uses {PARAMETERS[name]}."
        check_real(name, chosen[name], usual, least=0.0, most=most)
    try:
        with warnings.catch_warnings():
            # Box2D warns while its extension loads; a warning that is an error then kills Python.
            warnings.simplefilter("ignore")
            from gymnasium.envs.box2d.lunar_lander import LunarLander
    except (ImportError, gym.error.DependencyNotInstalled) as error:
        raise gym.error.DependencyNotInstalled(
            "WindyLunarLander needs Box2D, which is not installed. "
            'Run `pip install "downside[box2d]"`.'
        ) from error
    return LunarLander(render_mode=render_mode, enable_wind=True, **chosen)
