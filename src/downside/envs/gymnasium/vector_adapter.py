"""Any Gymnasium environment as a vector of flat arrays, with one convention for the end of an
episode, and errors that say what the environment did."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Bool, Float, Shaped

from downside.envs.env_spec import EnvSpec
from downside.envs.faults import EnvironmentFaultError
from downside.envs.gymnasium.checked_env import (
    OLD_STYLE_REMEDY,
    SEVERAL_REWARDS,
    CheckedEnv,
    RepeatableEnv,
    env_maker,
    shown,
    spread_seeds,
)
from downside.envs.gymnasium.flatten import flat_space, flatten, flatten_batch, is_bytes
from downside.envs.wrappers.history import History
from downside.envs.wrappers.vector_memory_aware import autoreset_mode

_EVALUATED = 32
"""Environments side by side when a policy is evaluated: a call of the networks costs nearly the
same for all of them (`benchmarks/gymnasium_speed.py`)."""


class VectorStep(NamedTuple):
    """What one step of all environments led to."""

    next_observations: Shaped[np.ndarray, "n d"]
    """What the action led to; of an episode that ended, its last observation."""
    next_masks: Bool[np.ndarray, "n A"]
    """Which actions are legal there."""
    rewards: Float[np.ndarray, " n"]
    terminated: Bool[np.ndarray, " n"]
    over: Bool[np.ndarray, " n"]
    """Whether the episode ended, by termination or by a time limit."""
    is_step: Bool[np.ndarray, " n"]
    """False where the environment did nothing but reset."""
    observations: Shaped[np.ndarray, "n d"]
    """What to act on next: where an episode ended, the first observation of the next one."""
    masks: Bool[np.ndarray, "n A"]
    started: Bool[np.ndarray, " n"]
    """Whether `observations` is the first of an episode."""


class VectorEnvAdapter:
    """A vector environment, whatever its observations and its autoreset mode."""

    def __init__(
        self,
        env: gym.Env | VectorEnv | str,
        num_envs: int,
        parameters: Mapping[str, Any] | None = None,
        repeatable: bool = False,
        history_length: int = 0,
        clock: bool = False,
    ):
        spec = EnvSpec.of(env, parameters)
        self.name, self._id, self.parameters = str(spec), spec.id, dict(spec.parameters)
        self._owned, self._repeatable = isinstance(env, str), repeatable
        if isinstance(env, str):
            kind = RepeatableEnv if repeatable else CheckedEnv
            self.env: VectorEnv = _vector([env_maker(kind, env, self.parameters)] * num_envs)
        elif isinstance(env, VectorEnv):
            self.env = env
        else:
            self.env = _vector([lambda: CheckedEnv(env)])
        self.num_envs = self.env.num_envs
        self.mode = autoreset_mode(self.env)
        self.action_space = space = self.env.single_action_space
        """Of one environment."""
        discrete = isinstance(space, gym.spaces.Discrete)
        self.num_actions = int(space.n) if discrete else 0
        """How many actions there are; 0 if they are not discrete."""
        self.first_action = int(space.start) if discrete else 0
        self.choices = _choices(space)
        """How many actions there are to choose from: of a MultiDiscrete space, for each part."""
        self.history = History(
            history_length, flat_space(self.env.single_observation_space).shape[0], space, clock
        )
        """What is remembered of the steps before, behind every observation."""
        self.observation_size = self.history.size + len(self.history.low)
        as_bytes = is_bytes(self.env.single_observation_space) and not history_length
        self.observation_dtype = np.dtype(np.uint8 if as_bytes else np.float32)
        """Of flat observations: pixels stay bytes, a quarter of the memory."""
        self._bounds = None if as_bytes else _bounds(self.env.single_observation_space)
        self._last = np.zeros((self.num_envs, self.history.size), self.observation_dtype)
        self._past = self.history.initial(self.num_envs)
        self._resetting = np.zeros(self.num_envs, bool)
        self.resets = 0
        """How often all episodes were begun anew. A user of the environment who counts more than
        their own resets knows that somebody else has used it."""
        self.aligned = self._id is not None
        """Whether episode i of an evaluation begins with a seed that depends on i and on that of
        the evaluation alone, whoever plays; no longer once no second environment could be made."""

    def reset(self, seed: int | None) -> tuple[Shaped[np.ndarray, "n d"], Bool[np.ndarray, "n A"]]:
        """Begins new episodes everywhere."""
        self.resets += 1
        # By themselves environments get seed, seed + 1, ...: those of other evaluations, too.
        seeds = spread_seeds(seed, self.num_envs) if self._repeatable else seed
        observations, infos = self._call("reset", self.env.reset, seed=seeds)
        self._resetting = np.zeros(self.num_envs, bool)
        flat, masks = self._flat(observations, "reset"), self._masks(infos)
        self.raw_observations = observations
        """What to act on next, as the environment returned it."""
        self._last, self._past = flat, self.history.initial(self.num_envs)
        return self._with_past(flat, self._past), masks

    def step(self, actions: Any) -> VectorStep:
        """Acts in all of them; discrete actions are counted from 0, others are passed on."""
        chosen = actions + self.first_action if self.num_actions else actions
        raw, rewards, terminated, truncated, infos = self._call("step", self.env.step, chosen)
        terminated = np.asarray(terminated, bool)
        # With autoreset in the same step the mask is already that of the next episode.
        same = self.mode is AutoresetMode.SAME_STEP
        ended = np.zeros_like(terminated) if same else terminated
        observations, masks = self._flat(raw, "step"), self._masks(infos, ended)
        rewards = self._finite(self._numbers(rewards), "reward", "step")
        over = terminated | np.asarray(truncated, bool)
        is_step, started = ~self._resetting, self._resetting
        after, next_masks = observations, masks
        if self.mode is AutoresetMode.NEXT_STEP:
            over = over & is_step
            self._resetting = over
        elif over.any():
            after, next_masks, started = observations.copy(), masks.copy(), over
            if self.mode is AutoresetMode.SAME_STEP:
                self._take_final(infos, over, after, next_masks)
            else:
                raw, infos = self._call("reset", self.env.reset, options={"reset_mask": over})
                fresh, legal = self._flat(raw, "reset"), self._masks(infos)
                observations = np.where(over[:, None], fresh, observations)
                masks = np.where(over[:, None], legal, masks)
        self.raw_observations = raw
        past = self._past
        if self.history.low:
            past = self.history.update(past, self._last, actions, after)
            self._past = np.where(started[:, None], np.float32(0.0), past)
        self._last = observations
        after = self._with_past(after, past)
        observations = self._with_past(observations, self._past)
        return VectorStep(
            after, next_masks, rewards, terminated, over, is_step, observations, masks, started
        )

    def _with_past(
        self, flat: Shaped[np.ndarray, "n d"], past: Float[np.ndarray, "n m"]
    ) -> Shaped[np.ndarray, "n e"]:
        return np.concatenate([flat, past], axis=-1) if self.history.low else flat

    def cut(self, which: Bool[np.ndarray, " n"]) -> None:
        """Ends these episodes with the next step, as a time limit would; in a vector environment
        that was handed over, none."""
        if isinstance(self.env, SyncVectorEnv):
            for i in np.flatnonzero(which):
                env = self.env.envs[i]
                if isinstance(env, CheckedEnv):
                    env.cut = True

    def make_env(self, render_mode: str | None = None) -> gym.Env | None:
        """A new environment of the same kind, or None if nobody knows how to make one."""
        if self._id is None:
            return None
        pictures = {} if render_mode is None else {"render_mode": render_mode}
        return gym.make(self._id, **{**self.parameters, **pictures})

    def for_evaluation(self, episodes: int) -> "VectorEnvAdapter":
        """Environments to evaluate a policy in: new ones where they can be made, always as many
        and with a seed for every episode, so that two policies play the same ones."""
        if self._id is None:
            return self
        try:
            made = VectorEnvAdapter(
                self._id,
                min(episodes, _EVALUATED),
                self.parameters,
                repeatable=True,
                history_length=self.history.steps,
                clock=self.history.clock,
            )
        except Exception as error:  # whatever the environment raises that can be there only once
            warnings.warn(
                f"No second {self.name} could be made ({type(error).__name__}: {error}), so that "
                "episodes are played in the one that is there.",
                stacklevel=2,
            )
            self.aligned = False
            return self
        if (made.observation_size, made.action_space) != (
            self.observation_size,
            self.action_space,
        ):  # it was changed by hand
            made.close()
            self.aligned = False
            return self
        return made

    def close(self) -> None:
        """Ends what was started here; environments that were handed over stay open."""
        if self._owned:
            self.env.close()

    # --- what environments get wrong ----------------------------------------------------------

    def _call(self, what: str, function: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except EnvironmentFaultError:
            raise
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise EnvironmentFaultError(
                f"A worker process of {self.name} died in `{what}` ({type(error).__name__}). Run "
                "with a synchronous vector environment to see its error."
            ) from error
        except Exception as error:
            remedy = _REMEDY
            if any(sign in str(error) for sign in _SIGNS_OF_OLD_STYLE):
                remedy = f"It may be written for an older API: {OLD_STYLE_REMEDY}"
            elif "setting an array element with a sequence" in str(error):
                remedy = f"Its reward may be several numbers. {SEVERAL_REWARDS}"
            raise EnvironmentFaultError(
                f"{self.name} raised {type(error).__name__} in `{what}`: {str(error).rstrip('.')}. "
                f"{remedy}"
            ) from error

    def _flat(self, observations: Any, what: str) -> Shaped[np.ndarray, "n d"]:
        try:
            flat = flatten_batch(self.env, observations, self.observation_dtype)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise EnvironmentFaultError(
                f"{self.name} returned an observation from `{what}` that is not one of "
                f"{self.env.single_observation_space}: {error}."
            ) from error
        if (
            isinstance(self.env.single_observation_space, gym.spaces.Discrete)
            and not flat.any(1).all()
        ):
            raise EnvironmentFaultError(
                f"{self.name} returned an observation from `{what}` that is not one of "
                f"{self.env.single_observation_space}, got {observations}."
            )
        self._check_bounds(flat, what)
        return flat if flat.dtype == np.uint8 else self._finite(flat, "observation", what)

    def _check_bounds(self, flat: Shaped[np.ndarray, "n d"], what: str) -> None:
        """Warns once of observations far outside the space: they are used as they are."""
        if self._bounds is None:
            return
        low, high = self._bounds
        outside = (flat < low) | (flat > high)
        if not outside.any():
            return
        env, entry = (int(place) for place in np.argwhere(outside)[0])
        warnings.warn(
            f"{self.name} returned an observation from `{what}` that is far outside its space: "
            f"entry {entry} is {flat[env, entry]:g}. It is used as it is. Mend the environment or "
            "its `observation_space`.",
            stacklevel=2,
        )
        self._bounds = None

    def _numbers(self, rewards: Any) -> Float[np.ndarray, " n"]:
        array = np.asarray(rewards)
        if array.dtype.kind not in "biuf" or array.shape != (self.num_envs,):
            several = array.dtype.kind in "biuf" and array.shape[:1] == (self.num_envs,)
            more = f" {SEVERAL_REWARDS}" if several and array.ndim > 1 else ""
            raise EnvironmentFaultError(
                f"{self.name} must return a number as reward of each step, got "
                f"{shown(rewards)}.{more}"
            )
        return array.astype(np.float64)

    def _finite(self, values: np.ndarray, kind: str, what: str) -> np.ndarray:
        if not np.isfinite(values).all():
            number = int(np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(1))[0])
            raise EnvironmentFaultError(
                f"The {kind} that {self.name} returned from `{what}` is not finite, in "
                f"environment {number}: {values[number]}."
            )
        return values

    def _masks(
        self, infos: Mapping[str, Any], ended: Bool[np.ndarray, " n"] | None = None
    ) -> Bool[np.ndarray, "n A"]:
        masks = np.ones((self.num_envs, sum(self.choices)), bool)
        given = infos.get("action_mask")
        if given is None or not self.choices:  # what is not counted is not masked
            return masks
        present = np.asarray(infos.get("_action_mask", np.ones(self.num_envs, bool)))
        rows = np.flatnonzero(present)
        if isinstance(given, np.ndarray) and given.shape == masks.shape:  # all rows at once
            allowed = given[rows].astype(bool)
            edges = np.cumsum((0, *self.choices[:-1]))
            fine = np.logical_or.reduceat(allowed, edges, axis=1).all(axis=1)
            masks[rows[fine]], rows = allowed[fine], rows[~fine]
        for i in rows:
            masks[i] = self._mask(given[i], ended is not None and bool(ended[i]))
        return masks

    def _mask(self, given: Any, ended: bool) -> Bool[np.ndarray, " A"]:
        mask = np.asarray(given).astype(bool)
        fits = mask.shape == (sum(self.choices),)
        if ended and fits and not mask.any():
            return ~mask  # nothing is chosen where it is over
        parts = np.split(mask, np.cumsum(self.choices)[:-1]) if fits else []
        if not fits or not all(part.any() for part in parts):
            each = " of each choice" if len(self.choices) > 1 else ""
            raise EnvironmentFaultError(
                f"info['action_mask'] of {self.name} must have one entry for each of the "
                f"{sum(self.choices)} actions and allow at least one of them{each}, got {given!r}."
            )
        return mask

    def _take_final(
        self, infos: Mapping[str, Any], over: np.ndarray, after: np.ndarray, masks: np.ndarray
    ) -> None:
        """Writes the last observations of the episodes that ended over those of the next."""
        if "final_obs" not in infos:
            raise EnvironmentFaultError(
                f"`infos` of {self.name} must have the key 'final_obs' when an episode ends with "
                f"autoreset in the same step, got {sorted(infos)}. Take away what drops it."
            )
        final_info = infos.get("final_info", {})
        given = final_info.get("action_mask") if isinstance(final_info, Mapping) else None
        given = given if self.choices else None
        for i in np.flatnonzero(over):
            last = infos["final_obs"][i]
            after[i] = flatten(self.env.single_observation_space, last)
            masks[i] = True if given is None else self._mask(given[i], True)
        self._finite(after, "last observation", "step")


_REMEDY = "Mend the environment; in Python `agent.resume()` then goes on."
_SIGNS_OF_OLD_STYLE = (
    "values to unpack",
    "was not a tuple of the form",
    "unexpected keyword argument 'seed'",
    "unexpected keyword argument 'options'",
)
"""What errors say where `reset` or `step` returns or takes what it did before Gymnasium."""


def _choices(space: gym.Space) -> tuple[int, ...]:
    """How many actions each choice has; none for actions that are not counted."""
    if isinstance(space, gym.spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return tuple(int(count) for count in space.nvec.ravel())
    return ()


def _bounds(space: gym.Space) -> tuple[np.ndarray, np.ndarray] | None:
    """The bounds of flat observations, wider by twice their distance; None if there are none.

    Wider, since Gymnasium's own lander leaves its box: only what is far outside is a mistake.
    """
    if not isinstance(space, gym.spaces.Box) or not (
        np.isfinite(space.low).any() or np.isfinite(space.high).any()
    ):
        return None
    low, high = (bound.astype(np.float64).ravel() for bound in (space.low, space.high))
    both = np.isfinite(low) & np.isfinite(high)
    width = np.where(both, high, 1.0) - np.where(both, low, 0.0)
    return low - 2.0 * width, high + 2.0 * width


def _vector(makers: list[Any]) -> VectorEnv:
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
