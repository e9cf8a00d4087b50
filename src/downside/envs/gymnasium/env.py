"""A Gymnasium environment over any environment written in JAX."""

from typing import Any

import gymnasium as gym
import jax
import numpy as np
from jaxtyping import Array, Float

from downside.envs import render
from downside.envs.actions import check_action
from downside.envs.core import AbstractJaxEnv
from downside.envs.faults import named_faults, ready
from downside.envs.problems.by_name import build


class GymnasiumEnv(gym.Env[np.ndarray, Any]):
    """Any JAX environment as a `gymnasium.Env`, stepped by one compiled call.

    `info["action_mask"]` says which actions are legal in the returned observation, in the form
    that `action_space.sample(mask)` takes; for continuous actions there is none. All copies with
    equal parameters share the compiled functions.
    """

    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        core: AbstractJaxEnv | type[AbstractJaxEnv] | str,
        *,
        render_mode: str | None = None,
        **parameters: Any,
    ):
        """Make a Gymnasium environment of `core`.

        Args:
            core: An environment, its class, or the name of one of ours, such as "MeanReversion".
            render_mode: "rgb_array" for pictures, "ansi" for text, None for neither.
            **parameters: With a name or a class: the parameters of that environment.
        """
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(
                f"`render_mode` must be None or one of {self.metadata['render_modes']}, "
                f"got {render_mode!r}. For a window, show the frames of 'rgb_array'."
            )
        self.core = build(core, parameters)
        self.render_mode = render_mode
        self.observation_space = self.core.observation_space
        self.action_space = self.core.action_space
        self._key: Any = None
        self._state: Any = None
        self._over = True
        self._history: list[render.Moment] = []

    @property
    def state(self) -> Any:
        """The state of the core, as in `options={"state": ...}`."""
        return self._state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " d"], dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Starts the random numbers anew; without one they go on.
            options: `{"state": state}` starts from that state of the core.

        Returns:
            The first observation, and `{"action_mask": ...}` if actions are discrete.
        """
        super().reset(seed=seed)
        if seed is not None or self._key is None:
            self._key = key_from(self.np_random)
        with named_faults():
            self._key, state, observation, mask = ready(_reset(self.core, self._key))
            given = (options or {}).get("state")
            if given is not None:
                state, observation, mask = ready(_view(self.core, _like(given, state)))
        self._state, self._over = state, False
        self._history = []
        self._record(None, 0.0)
        return np.array(observation), self._info(mask)

    def step(
        self, action: Any
    ) -> tuple[Float[np.ndarray, " d"], float, bool, bool, dict[str, Any]]:
        """Act under fresh noise."""
        action = self._check(action)
        with named_faults():
            self._key, *result = ready(_step(self.core, self._key, self._state, action))
        return self._after(action, *result)

    def step_with_noise(
        self, action: Any, noise: Any
    ) -> tuple[Float[np.ndarray, " d"], float, bool, bool, dict[str, Any]]:
        """Act under the given noise, for comparisons; the random numbers stay where they are."""
        action = self._check(action)
        with named_faults():
            result = ready(_step_with_noise(self.core, self._state, action, noise))
        return self._after(action, *result)

    def render(self) -> Any:
        """The episode so far: a picture for "rgb_array", text for "ansi"."""
        if self.render_mode is None:
            gym.logger.warn(
                "`render` was called without a `render_mode`. Pass one to `gym.make`, for "
                'example render_mode="rgb_array".'
            )
            return None
        if not self._history:
            raise gym.error.ResetNeeded("Call `reset` before `render`: there is nothing to draw.")
        draw = render.picture if self.render_mode == "rgb_array" else render.text
        return draw(self.core, self._history)

    def _check(self, action: Any) -> Any:
        if self._over:
            raise gym.error.ResetNeeded(
                "The episode is over or was never started. Call `reset` before `step`."
            )
        return check_action(self.action_space, action)

    def _info(self, mask: Any) -> dict[str, Any]:
        return {"action_mask": np.array(mask)} if self.core.num_actions else {}

    def _after(self, action: Any, state, observation, reward, terminated, truncated, mask):
        self._state = state
        self._over = bool(terminated) or bool(truncated)
        self._record(action, float(reward))
        info = self._info(mask)
        return np.array(observation), float(reward), bool(terminated), bool(truncated), info

    def _record(self, action: Any, reward: float) -> None:
        if self.render_mode is not None:
            self._history.append(render.Moment(jax.device_get(self._state), action, reward))


def key_from(generator: np.random.Generator) -> Array:
    """The data of a JAX key that continues a NumPy generator.

    The data rather than the key: compiled calls take it in a third less time.
    """
    return jax.random.key_data(jax.random.key(int(generator.integers(2**31))))


def split(key_data: Array, num: int) -> tuple[Array, ...]:
    """The data of the key to continue with, and `num - 1` keys to use."""
    first, *rest = jax.random.split(jax.random.wrap_key_data(key_data), num)
    return jax.random.key_data(first), *rest


def _like(given: Any, state: Any) -> Any:
    if jax.tree.structure(given) != jax.tree.structure(state):
        raise ValueError(
            f"`options['state']` must be a {type(state).__name__}, got {given!r}. "
            "Take it from `env.unwrapped.state` or `core.initial_state(key)`."
        )
    return jax.tree.map(lambda new, old: jax.numpy.asarray(new, old.dtype), given, state)


# The core is an argument rather than a constant of these functions: as its parameters are part of
# its tree structure, copies with equal parameters find the same compiled program.
@jax.jit
def _view(core, state):
    return state, core.observe(state), core.action_mask(state).astype(np.int8)


@jax.jit
def _reset(core, key):
    key, use = split(key, 2)
    return key, *_view(core, core.initial_state(use))


@jax.jit
def _step(core, key, state, action):
    key, use = split(key, 2)
    step = core.step(use, state, action)
    return key, *step, core.action_mask(step.state).astype(np.int8)


@jax.jit
def _step_with_noise(core, state, action, noise):
    step = core.step_with_noise(state, action, noise)
    return *step, core.action_mask(step.state).astype(np.int8)
