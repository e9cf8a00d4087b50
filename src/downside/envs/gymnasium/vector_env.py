"""A Gymnasium vector environment that steps thousands of copies in one compiled call."""

import functools
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float

from downside.envs._parameters import check_whole
from downside.envs.actions import check_actions
from downside.envs.core import AbstractJaxEnv, Step
from downside.envs.faults import named_faults, ready
from downside.envs.gymnasium.env import key_from, split
from downside.envs.problems.by_name import build


class GymnasiumVectorEnv(VectorEnv[np.ndarray, Any, np.ndarray]):
    """Many copies of any JAX environment as a `gymnasium.vector.VectorEnv`.

    `infos["action_mask"]` says which actions are legal in the returned observations; for continuous
    actions there is none. Episodes that end are handled as Gymnasium defines it:

    - NEXT_STEP: the last observation is returned; the next step ignores its action, resets the copy
      and returns the first observation with reward 0.
    - SAME_STEP: the first observation of the next episode is returned; the last one of the old
      episode is `infos["final_obs"][i]`, where `infos["_final_obs"][i]` is set.
    - DISABLED: nothing happens until `reset(options={"reset_mask": mask})`.
    """

    def __init__(
        self,
        core: AbstractJaxEnv | str,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **parameters: Any,
    ):
        """Make `num_envs` copies of `core`.

        Args:
            core: An environment, or the name of one of ours, such as "MeanReversion".
            num_envs: Number of copies.
            autoreset_mode: What happens when an episode ends, see the class.
            render_mode: Must be None: a thousand copies are not drawn.
            **parameters: With a name: the parameters of that environment.
        """
        check_whole("num_envs", num_envs, "It is the number of copies.", least=1)
        if render_mode is not None:
            raise ValueError(
                f"`render_mode` must be None for the native vector environment, got "
                f'{render_mode!r}. Pass vectorization_mode="sync" to draw every copy.'
            )
        self.core = build(core, parameters)
        self.num_envs = num_envs
        self.autoreset_mode = as_autoreset_mode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = self.core.observation_space
        self.single_action_space = self.core.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._key: Any = None
        self._state: Any = None
        self._observation: Any = None
        self._mask: Any = None
        self._over = np.zeros(num_envs, bool)

    @property
    def state(self) -> Any:
        """The states of all copies, stacked."""
        return self._state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, "n d"], dict[str, Any]]:
        """Start an episode in every copy, or in those that `options["reset_mask"]` selects.

        Args:
            seed: Starts the random numbers of all copies anew; without one they go on.
            options: `{"reset_mask": mask}` with a boolean mask of shape `(num_envs,)`.

        Returns:
            The observations of all copies, and their `action_mask` if actions are discrete.
        """
        super().reset(seed=seed)
        if seed is not None or self._key is None:
            self._key = key_from(self.np_random)
        chosen = copies_to_reset(options, self.num_envs, running=self._state is not None)
        with named_faults():
            self._key, *fresh = ready(_reset_all(self.core, self._key, self.num_envs))
        if chosen.all():
            self._state, self._observation, self._mask = fresh
        else:
            old = (self._state, self._observation, self._mask)
            self._state, self._observation, self._mask = _select(chosen, tuple(fresh), old)
        self._over = self._over & ~chosen
        return np.array(self._observation), self._infos(chosen.copy())

    def step(
        self, actions: Any
    ) -> tuple[Float[np.ndarray, "n d"], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Act in every copy under fresh noise."""
        return self._advance(actions, None)

    def step_with_noise(
        self, actions: Any, noise: Any
    ) -> tuple[Float[np.ndarray, "n d"], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Act in every copy under the given noise, stacked over copies; for comparisons."""
        return self._advance(actions, noise)

    def _advance(self, actions: Any, noise: Any):
        actions = self._check(actions)
        mode = self.autoreset_mode
        with named_faults():
            self._key, step, mask, now = ready(
                _advance(self.core, self._key, self._state, actions, self._over, noise, mode)
            )
        self._state, self._observation, self._mask = now
        rewards = np.array(step.reward, np.float64)
        terminated, truncated = np.array(step.terminated), np.array(step.truncated)
        done = terminated | truncated
        infos: dict[str, Any] = {}
        if mode is AutoresetMode.SAME_STEP:
            if done.any():
                infos = final_infos(np.array(step.observation), np.array(mask), done)
        else:
            self._over = done
        infos |= self._infos(np.ones(self.num_envs, bool))
        return np.array(self._observation), rewards, terminated, truncated, infos

    def _check(self, actions: Any) -> np.ndarray:
        if self._state is None:
            raise gym.error.ResetNeeded("Call `reset` before `step`.")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._over.any():
            raise gym.error.ResetNeeded(
                f"The episodes of copies {np.flatnonzero(self._over).tolist()} are over. With "
                "autoreset disabled, call `reset(options={'reset_mask': mask})` before `step`."
            )
        return check_actions(self.single_action_space, actions, self.num_envs)

    def _infos(self, present: Bool[np.ndarray, " n"]) -> dict[str, Any]:
        if not self.core.num_actions:
            return {}
        return {"action_mask": np.array(self._mask), "_action_mask": present}


def reset_mask(options: dict[str, Any] | None, num_envs: int) -> Bool[np.ndarray, " n"] | None:
    """`options["reset_mask"]`, checked and copied; None if there is none."""
    mask = (options or {}).get("reset_mask")
    if mask is None:
        return None
    if not (isinstance(mask, np.ndarray) and mask.shape == (num_envs,) and mask.dtype == bool):
        raise ValueError(
            f"`options['reset_mask']` must be a boolean NumPy array of shape ({num_envs},), "
            f"got {mask!r}. Use `terminations | truncations`."
        )
    if not mask.any():
        raise ValueError(
            "`options['reset_mask']` must select at least one copy, got only False. "
            "Call `reset` only when an episode has ended."
        )
    return mask.copy()


def copies_to_reset(
    options: dict[str, Any] | None, num_envs: int, *, running: bool
) -> Bool[np.ndarray, " n"]:
    """The copies that begin a new episode: all of them without a mask, which needs copies that are
    running."""
    chosen = reset_mask(options, num_envs)
    if chosen is None:
        return np.ones(num_envs, bool)
    if not running:
        raise gym.error.ResetNeeded(
            "`options['reset_mask']` needs copies that are running. Call `reset()` first."
        )
    return chosen


def as_autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """What happens when an episode ends, from its name."""
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise ValueError(
            f"`autoreset_mode` must be one of {[one.value for one in AutoresetMode]}, "
            f"got {mode!r}. Gymnasium's default is 'NextStep'."
        ) from None


def final_infos(observations: np.ndarray, masks: np.ndarray, done: np.ndarray) -> dict[str, Any]:
    """The last observations and infos of the episodes that ended, laid out as Gymnasium does."""
    final_obs = np.full(len(done), None, dtype=object)
    for i in np.flatnonzero(done):
        final_obs[i] = observations[i].copy()
    final = {"final_obs": final_obs, "_final_obs": done.copy()}
    legal = {"action_mask": masks * done[:, None].astype(np.int8), "_action_mask": done.copy()}
    final_info = legal if masks.shape[1] else {}
    return {**final, "final_info": final_info, "_final_info": done.copy()}


def _select(chosen: Any, new: Any, old: Any) -> Any:
    """`new` where a copy is chosen and `old` elsewhere, leaf by leaf."""

    def pick(a, b):
        return jnp.where(jnp.reshape(chosen, (-1,) + (1,) * (jnp.ndim(a) - 1)), a, b)

    return jax.tree.map(pick, new, old)


def _fresh(core: AbstractJaxEnv, key: Any, num_envs: int) -> tuple[Any, Any, Any]:
    state, observation = jax.vmap(core.reset)(jax.random.split(key, num_envs))
    return state, observation, jax.vmap(core.action_mask)(state).astype(np.int8)


@functools.partial(jax.jit, static_argnames="num_envs")
def _reset_all(core, key, num_envs):
    key, use = split(key, 2)
    return key, *_fresh(core, use, num_envs)


@functools.partial(jax.jit, static_argnames="mode")
def _advance(core, key, state, actions, over, noise, mode):
    num_envs = len(actions)
    key, noise_key, reset_key = split(key, 3)
    if noise is None:
        noise = jax.vmap(core.sample_noise)(jax.random.split(noise_key, num_envs))
    step = jax.vmap(core.step_with_noise)(state, actions, noise)
    mask = jax.vmap(core.action_mask)(step.state).astype(np.int8)
    now = (step.state, step.observation, mask)
    if mode is AutoresetMode.NEXT_STEP:
        now = _select(over, _fresh(core, reset_key, num_envs), now)
        step = Step(
            now[0],
            now[1],
            jnp.where(over, 0.0, step.reward),
            step.terminated & ~over,
            step.truncated & ~over,
        )
    elif mode is AutoresetMode.SAME_STEP:
        done = step.terminated | step.truncated
        now = _select(done, _fresh(core, reset_key, num_envs), now)
    return key, step, mask, now
