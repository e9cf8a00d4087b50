"""Wrappers that make any Gymnasium environment remember what it has earned."""

from typing import Any, Generic, TypeVar, overload

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import Float

from downside.envs.augment import JaxReturnAware, JaxTargetAware, append_to_box
from downside.envs.core import AbstractJaxEnv
from downside.envs.flatten import flat_space, flatten, remember
from downside.envs.memory import Memory, ReturnMemory, TargetMemory
from downside.envs.vector_wrappers import VectorReturnAware, VectorTargetAware

_Memory = TypeVar("_Memory", bound=Memory)


class _Aware(
    gym.Wrapper[np.ndarray, Any, Any, Any], gym.utils.RecordConstructorArgs, Generic[_Memory]
):
    """Appends a memory of the rewards to the flattened observation."""

    memory: _Memory

    def __init__(self, env: gym.Env, memory: _Memory):
        if not isinstance(env, gym.Env):
            raise TypeError(
                "`env` must be a Gymnasium environment, a vector of them or an AbstractJaxEnv, got "
                f"{env!r}. `gymnasium.make` gives one from an id."
            )
        super().__init__(env)
        self.memory = memory
        self._inner_space = env.observation_space
        self.observation_space = append_to_box(flat_space(env.observation_space), memory)
        self._now: tuple[Any, ...] = memory.initial

    @property
    def reward_scale(self) -> float:
        """What rewards are multiplied by on their way into the memory."""
        return self.memory.reward_scale

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " d"], dict[str, Any]]:
        """Start an episode with a fresh memory."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._now = self.memory.initial
        return self._observe(observation), info

    def step(self, action: Any) -> tuple[Float[np.ndarray, " d"], Any, bool, bool, dict[str, Any]]:
        """Act; the reward goes into the memory and is returned as it is."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._now = self.memory.update(self._now, float(reward))
        return self._observe(observation), reward, terminated, truncated, info

    def _observe(self, observation: Any) -> Float[np.ndarray, " d"]:
        return remember(flatten(self._inner_space, observation), self._now)


class ReturnAware(_Aware[ReturnMemory]):
    r"""Appends (s, c) to the observation: the discounted return so far and the next discount.

    $s' = s + c\, k r$ and $c' = \gamma c$ from $(0, 1)$, with $\gamma$ = `gamma` and
    $k$ = `reward_scale`. Works on any environment whose observations can be flattened (`Box` of any
    shape, `Discrete` as one-hot, `MultiDiscrete`, `MultiBinary`, `Dict`, `Tuple`); the result
    is a flat float32 `Box` that ends in s and c. The last observation of an episode carries the s
    and c after its last reward.

    The rewards that `step` returns are never scaled. Where returns are large, `reward_scale`
    brings s to a size that a network can read; a learner that uses s must then multiply its own
    rewards by the same number, for which there is `env.get_wrapper_attr("reward_scale")`.

    Calling it on a `VectorEnv` gives a `VectorReturnAware`, on an environment written in JAX a
    `JaxReturnAware`.
    """

    @overload
    def __new__(
        cls, env: VectorEnv, gamma: float, *, reward_scale: float = 1.0
    ) -> VectorReturnAware: ...
    @overload
    def __new__(
        cls, env: AbstractJaxEnv, gamma: float, *, reward_scale: float = 1.0
    ) -> JaxReturnAware: ...
    @overload
    def __new__(cls, env: gym.Env, gamma: float, *, reward_scale: float = 1.0) -> "ReturnAware": ...
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Choose the version for the kind of environment."""
        env = args[0] if args else kwargs.get("env")
        if isinstance(env, VectorEnv):
            return VectorReturnAware(*args, **kwargs)
        if isinstance(env, AbstractJaxEnv):
            return JaxReturnAware(*args, **kwargs)
        return super().__new__(cls)

    def __init__(self, env: gym.Env, gamma: float, *, reward_scale: float = 1.0):
        """Wrap `env`.

        Args:
            env: A `gymnasium.Env`, a `VectorEnv` or an `AbstractJaxEnv`.
            gamma: Discount γ, in (0, 1].
            reward_scale: What rewards are multiplied by on their way into s.
        """
        gym.utils.RecordConstructorArgs.__init__(self, gamma=gamma, reward_scale=reward_scale)
        super().__init__(env, ReturnMemory(gamma, reward_scale))


class TargetAware(_Aware[TargetMemory]):
    r"""Appends b to the observation: the return that is still missing to a target.

    $b' = (b - k r)/\gamma$ from `b`, with $\gamma$ = `gamma` and $k$ = `reward_scale`: the
    state of QR-CVaR. `b` is in the units of scaled returns. Everything else is as in
    `ReturnAware`.

    Calling it on a `VectorEnv` gives a `VectorTargetAware`, on an environment written in JAX a
    `JaxTargetAware`.
    """

    @overload
    def __new__(
        cls, env: VectorEnv, gamma: float, b: float, *, reward_scale: float = 1.0
    ) -> VectorTargetAware: ...
    @overload
    def __new__(
        cls, env: AbstractJaxEnv, gamma: float, b: float, *, reward_scale: float = 1.0
    ) -> JaxTargetAware: ...
    @overload
    def __new__(
        cls, env: gym.Env, gamma: float, b: float, *, reward_scale: float = 1.0
    ) -> "TargetAware": ...
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Choose the version for the kind of environment."""
        env = args[0] if args else kwargs.get("env")
        if isinstance(env, VectorEnv):
            return VectorTargetAware(*args, **kwargs)
        if isinstance(env, AbstractJaxEnv):
            return JaxTargetAware(*args, **kwargs)
        return super().__new__(cls)

    def __init__(self, env: gym.Env, gamma: float, b: float, *, reward_scale: float = 1.0):
        """Wrap `env`.

        Args:
            env: A `gymnasium.Env`, a `VectorEnv` or an `AbstractJaxEnv`.
            gamma: Discount γ, in (0, 1].
            b: The target at the start of each episode.
            reward_scale: What rewards are multiplied by on their way into b.
        """
        gym.utils.RecordConstructorArgs.__init__(self, gamma=gamma, b=b, reward_scale=reward_scale)
        super().__init__(env, TargetMemory(gamma, b, reward_scale))

    def set_target(self, b: float) -> None:
        """Use another target from the next episode on."""
        self.memory = TargetMemory(self.memory.gamma, b, self.memory.reward_scale)
