"""Any Gymnasium environment as the hosted loop sees it: flat arrays, one convention for the end of
an episode, and errors that say what the environment did."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Key

from downside.envs import AbstractJaxEnv
from downside.envs.core import Transition
from downside.envs.flatten import flat_space, flatten, flatten_batch
from downside.envs.past_steps import PastMemory
from downside.envs.vector_wrappers import autoreset_mode
from downside.train.origin import Origin

_EVALUATED = 32
"""Environments side by side when a policy is evaluated: a call of the networks costs nearly the
same for all of them (`benchmarks/hosted.py`)."""


class EnvironmentFaultError(RuntimeError):
    """The environment did something that no agent can learn from."""


class Seen(NamedTuple):
    """What one step of all environments led to."""

    after: Float[np.ndarray, "n d"]
    """What the action led to; of an episode that ended, its last observation."""
    after_masks: Bool[np.ndarray, "n A"]
    """Which actions are legal there."""
    rewards: Float[np.ndarray, " n"]
    terminated: Bool[np.ndarray, " n"]
    over: Bool[np.ndarray, " n"]
    """Whether the episode ended, by termination or by a time limit."""
    lived: Bool[np.ndarray, " n"]
    """False where the step did nothing but reset."""
    observations: Float[np.ndarray, "n d"]
    """What to act on next: where an episode ended, the first observation of the next one."""
    masks: Bool[np.ndarray, "n A"]
    started: Bool[np.ndarray, " n"]
    """Whether `observations` is the first of an episode."""


class Host:
    """A vector environment, whatever its observations and its autoreset mode."""

    def __init__(
        self,
        env: gym.Env | VectorEnv | str,
        num_envs: int,
        parameters: Mapping[str, Any] | None = None,
        repeatable: bool = False,
        past_steps: int = 0,
    ):
        origin = Origin.of(env, parameters)
        self.name, self._id, self.parameters = str(origin), origin.id, dict(origin.parameters)
        self._owned, self._repeatable = isinstance(env, str), repeatable
        if isinstance(env, str):
            kind = _Repeatable if repeatable else _Checked
            make = lambda: kind(gym.make(env, **self.parameters))  # noqa: E731
            self.env: VectorEnv = _vector([make] * num_envs)
        elif isinstance(env, VectorEnv):
            self.env = env
        else:
            self.env = _vector([lambda: _Checked(env)])
        self.num_envs = self.env.num_envs
        self.mode = autoreset_mode(self.env)
        self.actions = _discrete(self.env)
        self.past = PastMemory(
            past_steps, flat_space(self.env.single_observation_space).shape[0], self.actions
        )
        """What is remembered of the steps before, behind every observation."""
        self.size = self.past.size + len(self.past.low)
        self._last = np.zeros((self.num_envs, self.past.size), np.float32)
        self._remembered = self.past.initial(self.num_envs)
        self._resetting = np.zeros(self.num_envs, bool)
        self.resets = 0
        """How often new episodes were begun everywhere: who finds more of them than his own knows
        that somebody else has used the environment."""
        self.aligned = self._id is not None
        """Whether episode i of an evaluation begins with a seed that depends on i and on that of
        the evaluation alone, whoever plays; no longer once no second environment could be made."""

    def reset(self, seed: int) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, "n A"]]:
        """Begins new episodes everywhere."""
        self.resets += 1
        # By themselves environments get seed, seed + 1, ...: those of other evaluations, too.
        seeds = _spread(seed, self.num_envs) if self._repeatable else seed
        observations, infos = self._call("reset", self.env.reset, seed=seeds)
        self._resetting = np.zeros(self.num_envs, bool)
        flat, masks = self._flat(observations, "reset"), self._masks(infos)
        self._last, self._remembered = flat, self.past.initial(self.num_envs)
        return np.concatenate([flat, self._remembered], axis=-1), masks

    def step(self, actions: Int[np.ndarray, " n"]) -> Seen:
        """Acts in all of them."""
        first = int(self.env.single_action_space.start)  # pyright: ignore[reportAttributeAccessIssue]
        result = self._call("step", self.env.step, actions + first)
        raw, rewards, terminated, truncated, infos = result
        terminated = np.asarray(terminated, bool)
        # With autoreset in the same step the mask is already that of the next episode.
        same = self.mode is AutoresetMode.SAME_STEP
        ended = np.zeros_like(terminated) if same else terminated
        observations, masks = self._flat(raw, "step"), self._masks(infos, ended)
        rewards = self._finite(np.asarray(rewards, np.float64), "reward", "step")
        over = terminated | np.asarray(truncated, bool)
        lived, started = ~self._resetting, self._resetting
        after, after_masks = observations, masks
        if self.mode is AutoresetMode.NEXT_STEP:
            over = over & lived
            self._resetting = over
        elif over.any():
            after, after_masks, started = observations.copy(), masks.copy(), over
            if self.mode is AutoresetMode.SAME_STEP:
                self._take_final(infos, over, after, after_masks)
            else:
                raw, infos = self._call("reset", self.env.reset, options={"reset_mask": over})
                fresh, legal = self._flat(raw, "reset"), self._masks(infos)
                observations = np.where(over[:, None], fresh, observations)
                masks = np.where(over[:, None], legal, masks)
        past = self.past.update(self._remembered, self._last, actions, after)
        self._last = observations
        self._remembered = np.where(started[:, None], np.float32(0.0), past)
        after = np.concatenate([after, past], axis=-1)
        observations = np.concatenate([observations, self._remembered], axis=-1)
        return Seen(
            after, after_masks, rewards, terminated, over, lived, observations, masks, started
        )

    def cut(self, which: Bool[np.ndarray, " n"]) -> None:
        """Ends these episodes with the next step, as a time limit would; in a vector environment
        that was handed over, none."""
        if isinstance(self.env, SyncVectorEnv):
            for i in np.flatnonzero(which):
                one = self.env.envs[i]
                if isinstance(one, _Checked):
                    one.cut = True

    def another(self, render_mode: str | None = None) -> gym.Env | None:
        """A new environment of the same kind, or None if nobody knows how to make one."""
        if self._id is None:
            return None
        pictures = {} if render_mode is None else {"render_mode": render_mode}
        return gym.make(self._id, **{**self.parameters, **pictures})

    def for_evaluation(self, episodes: int) -> "Host":
        """Environments to evaluate a policy in: new ones where they can be made, always as many
        and with a seed for every episode, so that two policies play the same ones."""
        if self._id is None:
            return self
        try:
            made = Host(
                self._id,
                min(episodes, _EVALUATED),
                self.parameters,
                repeatable=True,
                past_steps=self.past.steps,
            )
        except Exception as error:  # whatever the environment raises that can be there only once
            warnings.warn(
                f"No second {self.name} could be made ({type(error).__name__}: {error}), so that "
                "episodes are played in the one that is there.",
                stacklevel=2,
            )
            self.aligned = False
            return self
        if (made.size, made.actions) != (self.size, self.actions):  # it was changed by hand
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
                f"A worker process of {self.name} died in `{what}` ({type(error).__name__}). What "
                "was learned is kept. Run with a synchronous vector environment to see its error."
            ) from error
        except Exception as error:
            raise EnvironmentFaultError(
                f"{self.name} raised {type(error).__name__} in `{what}`: {error}. What was learned "
                "is kept: mend the environment and go on with `agent.resume()`."
            ) from error

    def _flat(self, observations: Any, what: str) -> Float[np.ndarray, "n d"]:
        try:
            flat = flatten_batch(self.env, observations)
        except (ValueError, TypeError, KeyError) as error:
            raise EnvironmentFaultError(
                f"{self.name} returned an observation from `{what}` that is not one of "
                f"{self.env.single_observation_space}: {error}."
            ) from error
        return self._finite(flat, "observation", what)

    def _finite(self, values: np.ndarray, kind: str, what: str) -> np.ndarray:
        if not np.isfinite(values).all():
            number = int(np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(1))[0])
            raise EnvironmentFaultError(
                f"The {kind} that {self.name} returned from `{what}` is not finite, in "
                f"environment {number}: {values[number]}. What was learned is kept."
            )
        return values

    def _masks(
        self, infos: Mapping[str, Any], ended: Bool[np.ndarray, " n"] | None = None
    ) -> Bool[np.ndarray, "n A"]:
        masks = np.ones((self.num_envs, self.actions), bool)
        given = infos.get("action_mask")
        if given is None:
            return masks
        present = np.asarray(infos.get("_action_mask", np.ones(self.num_envs, bool)))
        for i in np.flatnonzero(present):
            masks[i] = self._mask(given[i], ended is not None and ended[i])
        return masks

    def _mask(self, given: Any, ended: bool) -> Bool[np.ndarray, " A"]:
        mask = np.asarray(given).astype(bool)
        if ended and mask.shape == (self.actions,) and not mask.any():
            return ~mask  # nothing is chosen where it is over
        if mask.shape != (self.actions,) or not mask.any():
            raise EnvironmentFaultError(
                f"info['action_mask'] of {self.name} must have one entry for each of the "
                f"{self.actions} actions and allow at least one of them, got {given!r}."
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
        for i in np.flatnonzero(over):
            last = infos["final_obs"][i]
            after[i] = flatten(self.env.single_observation_space, last)
            masks[i] = True if given is None else self._mask(given[i], True)
        self._finite(after, "last observation", "step")


class _Checked(gym.Wrapper):
    """Sees to it that the observations are what the space says, before they are batched, where a
    wrong type would be cast in silence; and ends episodes when it is told to."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        space = env.observation_space
        # Asked at every step, and slow to find through all the wrappers.
        self._box = space if isinstance(space, gym.spaces.Box) else None
        self.cut = False
        """Whether the next step is the last one of the episode."""

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """As inside."""
        self.cut = False
        observation, info = self.env.reset(**arguments)
        return self._check(observation, "reset"), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As inside."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._check(observation, "step"), reward, terminated, truncated or self.cut, info

    def _check(self, observation: Any, what: str) -> Any:
        space = self._box
        if space is not None:
            got = np.asarray(observation)
            if got.shape == space.shape and got.dtype == space.dtype:
                return observation
            if got.shape != space.shape or not np.can_cast(got.dtype, space.dtype, "same_kind"):
                raise EnvironmentFaultError(
                    f"{self.env} returned an observation from `{what}` of shape {got.shape} and "
                    f"type {got.dtype}, but its space is {space.shape}, {space.dtype}."
                )
        return observation


class _Repeatable(_Checked):
    """Begins every episode with a seed of its own, not where the one before left the generator:
    what happens in an episode then does not depend on what was done in earlier ones."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self._root, self._episode = 0, 0

    def reset(self, *, seed: int | None = None, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """With a seed the first of several episodes; without, the next of them."""
        self._root, self._episode = (self._root, self._episode + 1) if seed is None else (seed, 0)
        return super().reset(seed=_spread((self._root, self._episode), 1)[0], **arguments)


def _spread(seed: int | tuple[int, ...], count: int) -> list[int]:
    """So many seeds that have nothing in common with those of other numbers."""
    return [int(word >> 1) for word in np.random.SeedSequence(seed).generate_state(count)]


def _vector(makers: list[Any]) -> VectorEnv:
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)


def _discrete(env: VectorEnv) -> int:
    space = env.single_action_space
    if not isinstance(space, gym.spaces.Discrete):
        raise ValueError(
            f"`env` must have discrete actions, got {space}. Wrap it in "
            "`gymnasium.wrappers.TransformAction` so that a number picks one of a few actions."
        )
    return int(space.n)


class HostState(NamedTuple):
    """All that is known of the state of an environment that is not ours."""

    observation: Float[Array, " d"]
    mask: Bool[Array, " A"]


class HostCore(AbstractJaxEnv[HostState]):
    """A hosted environment where a compiled function needs one: how large observations are, and
    where episodes began lately. It cannot be stepped."""

    starts: HostState
    """The first observations of some episodes, stacked."""

    @property
    def num_actions(self) -> int:
        """How many actions there are."""
        return self.starts.mask.shape[-1]

    @property
    def observation_space(self) -> gym.spaces.Box:
        """Flat observations, of any size."""
        return gym.spaces.Box(-np.inf, np.inf, self.starts.observation.shape[-1:], np.float32)

    @property
    def horizon(self) -> int | None:
        """Unknown."""
        return None

    @property
    def bounded(self) -> bool:
        """Unknown, so that episodes may never end."""
        return False

    def initial_state(self, key: Key[Array, ""]) -> HostState:
        """One of the starts, each as likely as any other."""
        index = jax.random.randint(key, (), 0, self.starts.mask.shape[0])
        return HostState(self.starts.observation[index], self.starts.mask[index])

    def sample_noise(self, key: Key[Array, ""]) -> Any:
        """Nothing."""
        del key
        return jnp.zeros(())

    def transition(self, state: HostState, action: Int[ArrayLike, ""], noise: Any) -> Transition:
        """Not known."""
        raise NotImplementedError("A hosted environment can only be stepped by itself.")

    def observe(self, state: HostState) -> Float[Array, " d"]:
        """What is known of the state."""
        return state.observation

    def action_mask(self, state: HostState) -> Bool[Array, " A"]:
        """As the environment said."""
        return state.mask
