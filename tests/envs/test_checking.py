"""`ds.check_env`, on environments that keep their contract and on some that break it."""

import dataclasses
import warnings
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.envs import GymnasiumEnv, GymnasiumVectorEnv, ReturnAware, StepResult

from ..train.toys import Counter, Faulty
from .scripted import Scripted
from .steered import Steered


# Gymnasium's recommendations, not faults.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*(normalized space|infinity|out of date)")
@pytest.mark.parametrize(
    "env",
    [
        Scripted(),
        Steered(),
        ReturnAware(Steered(), 0.9),
        GymnasiumEnv(Steered()),
        GymnasiumVectorEnv(Steered(), 2),
        Counter(),
        gym.vector.SyncVectorEnv([Counter, Counter]),
        "CartPole-v1",
    ],
    ids=str,
)
def test_environments_that_keep_their_contract_pass(env):
    ds.check_env(env)


@pytest.mark.slow
def test_parameters_go_with_an_id():
    ds.check_env("downside/MeanReversion-v0", continuous=True, periods=3)
    with pytest.raises(ValueError, match="`sigma` must be a finite number"):
        ds.check_env("downside/MeanReversion-v0", sigma=-1.0)


class Broken(Steered):
    """Gets one thing wrong."""

    fault: str = dataclasses.field(default="")

    @property
    def num_actions(self):
        return 5 if self.fault == "counted box" else 0

    @property
    def action_space(self) -> Any:
        if self.fault == "unbounded":
            return gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        if self.fault == "float64":
            return gym.spaces.Box(-1.0, 1.0, (2,), np.float64)
        if self.fault == "start":
            return gym.spaces.Discrete(3, start=1)
        return super().action_space

    @property
    def observation_space(self):
        if self.fault == "matrix":
            return gym.spaces.Box(0.0, 1.0, (2, 1), np.float32)
        return super().observation_space

    @property
    def relaxed(self):
        points = jnp.zeros((5, 2))
        return (Steered(), points) if self.fault == "relaxed" else None

    def mirrored(self, noise):
        return noise + 1.0 if self.fault == "mirrored" else -noise

    def action_bounds(self, state):
        low, high = super().action_bounds(state)
        if self.fault == "bounds":
            return high, low
        return (low[:1], high) if self.fault == "bounds shape" else (low, high)

    def action_mask(self, state):
        return jnp.ones(2, bool) if self.fault == "mask" else super().action_mask(state)

    def transition(self, state, action, noise):
        result = super().transition(state, action, noise)
        action = jnp.asarray(action)
        match self.fault:
            case "branch":
                return result if action[0] > 0.0 else super().transition(state, -action, noise)
            case "dtype":
                time, total = result.state
                return result._replace(state=(time.astype(jnp.int32), total))
            case "reward":
                return result._replace(reward=result.reward[None])
            case "terminated":
                return result._replace(terminated=1.0 * result.terminated)
            case "nan":
                return result._replace(reward=result.reward / (state[0] - 1.0))
            case "endless":
                return result._replace(terminated=jnp.zeros((), bool))
            case "root":
                return result._replace(reward=result.reward + jnp.sqrt(0.0 * action[1]))
            case "rounded":
                rounded = jnp.stack([action[0], jnp.round(action[1])])
                return super().transition(state, rounded, noise)
            case "clock":
                return StepResult(*result[:1], reward=next(_clock), **_rest(result))
        return result

    def observe(self, state):
        shown = super().observe(state)
        match self.fault:
            case "observation":
                return shown.at[1].set(jnp.where(state[0] > 1.0, 2e6, 0.0))
            case "size":
                return shown[:1]
        return shown


def _rest(result):
    return {"terminated": result.terminated, "truncated": result.truncated}


_clock = (jnp.asarray(float(i)) for i in range(1000))

FAULTS = [
    ("unbounded", r"`action_space` of Broken must be a flat float32 box with finite bounds"),
    ("float64", r"`action_space` of Broken must be a flat float32 box with finite bounds"),
    ("counted box", r"`num_actions` of Broken must be 0 with a Box as `action_space`, got 5"),
    ("start", r"`action_space` of Broken must be a Box or Discrete\(0\), got Discrete\(3, start=1"),
    ("matrix", r"`observation_space` of Broken must be a flat float32 Box, got Box"),
    ("mirrored", r"`mirrored` of Broken must give a noise of the same structure"),
    ("relaxed", r"`relaxed` of Broken must be an environment with a Box of actions, and one of"),
    ("bounds", r"`action_bounds` of Broken must be in order and inside of `action_space`"),
    ("bounds shape", r"`action_bounds` of Broken must be two vectors of shape \(2,\), got \(1,\)"),
    ("mask", r"`action_mask` of Broken must be 0 booleans, got shape \(2,\)"),
    ("branch", r"`step` of Broken must work inside of jax.jit, but JAX says"),
    ("dtype", r"The state after `transition` of Broken must have the structure.*int32"),
    ("reward", r"`reward` of Broken must be a scalar float, got shape \(1,\) and type float32"),
    ("terminated", r"`terminated` of Broken must be a scalar boolean, got shape \(\) and type fl"),
    ("nan", r"`reward` of Broken must be finite, got"),
    ("endless", r"Episodes of Broken must end within its `horizon` of 3 steps"),
    ("root", r"Derivatives of the rewards of Broken by its actions must be finite.* by action 1 "),
    ("clock", r"`transition` of Broken must be a function of state, action and noise"),
    ("observation", r"`observe` of Broken must stay inside of `observation_space`; number 1 does"),
    ("size", r"`observe` of Broken must have shape \(2,\) and type float32, got \(1,\)"),
]


@pytest.mark.parametrize(("fault", "sentence"), FAULTS, ids=[fault for fault, _ in FAULTS])
def test_what_an_environment_gets_wrong_is_named(fault, sentence):
    with jax.numpy_dtype_promotion("standard"), pytest.raises(ValueError, match=sentence):
        ds.check_env(Broken(fault))


def test_without_a_fault_that_environment_passes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.check_env(Broken())


@pytest.mark.slow
def test_an_action_that_no_reward_depends_on_smoothly_is_named():
    with pytest.warns(UserWarning, match=r"No reward of Broken changes with action 1 by a small"):
        ds.check_env(Broken("rounded"))


def test_faults_of_gymnasium_environments_are_named():
    with pytest.raises(Exception, match=r"nan|finite"):
        ds.check_env(Faulty("nan observation"))
