"""Wrappers that make any Gymnasium environment remember what it has earned."""

from typing import Any, overload

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import Float

from downside.envs.core import AbstractJaxEnv, real_array
from downside.envs.gymnasium.flatten import flat_space, flatten
from downside.envs.memory import (
    AbstractMemoryInput,
    Memory,
    ReturnInput,
    TargetInput,
    append_memory,
    check_memory,
)
from downside.envs.memory_env import JaxMemoryAware, append_to_box
from downside.envs.wrappers.vector_memory_aware import (
    VectorMemoryAware,
    VectorReturnAware,
    VectorTargetAware,
)


class _MemoryAware(gym.Wrapper[np.ndarray, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Appends what is shown of the memory to the flattened observation."""

    def __init__(
        self, env: gym.Env, inputs: AbstractMemoryInput, gamma: float, reward_scale: float
    ):
        if not isinstance(env, gym.Env):
            raise TypeError(
                "`env` must be a Gymnasium environment, a vector of them or an AbstractJaxEnv, got "
                f"{env!r}. `gymnasium.make` gives one from an id."
            )
        check_memory(gamma, reward_scale)
        super().__init__(env)
        self.inputs, self.gamma, self.reward_scale = inputs, gamma, reward_scale
        self.next_inputs = inputs
        """What is shown from the next episode on."""
        self._inner_space = env.observation_space
        flat = flat_space(env.observation_space)
        self.observation_space = append_to_box(flat, inputs.low, inputs.high)
        self.memory = Memory.initial()
        """(s, c) after the last reward."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " d"], dict[str, Any]]:
        """Start an episode with a fresh memory."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.memory, self.inputs = Memory.initial(), self.next_inputs
        return self._observe(observation), info

    def step(self, action: Any) -> tuple[Float[np.ndarray, " d"], Any, bool, bool, dict[str, Any]]:
        """Act; the reward goes into the memory and is returned as it is."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.memory = self.memory.update(self.reward_scale * float(reward), self.gamma)
        return self._observe(observation), reward, terminated, truncated, info

    def _observe(self, observation: Any) -> Float[np.ndarray, " d"]:
        return append_memory(flatten(self._inner_space, observation), self.memory, self.inputs)


class MemoryAware(_MemoryAware):
    """Appends what `inputs` shows of the memory: what `agent.wrap` does for any agent.

    Calling it on a `VectorEnv` gives a `VectorMemoryAware`, on an environment written in JAX a
    `JaxMemoryAware`.
    """

    def __new__(cls, env: Any, inputs: AbstractMemoryInput, gamma: float) -> Any:
        """Choose the version for the kind of environment."""
        if isinstance(env, VectorEnv):
            return VectorMemoryAware(env, inputs, gamma)
        if isinstance(env, AbstractJaxEnv):
            return JaxMemoryAware(env, inputs, gamma)
        return super().__new__(cls)

    def __init__(self, env: gym.Env, inputs: AbstractMemoryInput, gamma: float):
        """Wrap `env`.

        Args:
            env: A `gymnasium.Env`, a `VectorEnv` or an `AbstractJaxEnv`.
            inputs: What of the memory is shown.
            gamma: Discount γ, in (0, 1].
        """
        gym.utils.RecordConstructorArgs.__init__(self, inputs=inputs, gamma=gamma)
        super().__init__(env, inputs, gamma, 1.0)


class ReturnAware(_MemoryAware):
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
    `JaxMemoryAware`.
    """

    @overload
    def __new__(
        cls, env: VectorEnv, gamma: float, *, reward_scale: float = 1.0
    ) -> VectorReturnAware: ...
    @overload
    def __new__(
        cls, env: AbstractJaxEnv, gamma: float, *, reward_scale: float = 1.0
    ) -> JaxMemoryAware: ...
    @overload
    def __new__(cls, env: gym.Env, gamma: float, *, reward_scale: float = 1.0) -> "ReturnAware": ...
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Choose the version for the kind of environment."""
        env = args[0] if args else kwargs.get("env")
        if isinstance(env, VectorEnv):
            return VectorReturnAware(*args, **kwargs)
        if isinstance(env, AbstractJaxEnv):
            return _return_aware(*args, **kwargs)
        return super().__new__(cls)

    def __init__(self, env: gym.Env, gamma: float, *, reward_scale: float = 1.0):
        """Wrap `env`.

        Args:
            env: A `gymnasium.Env`, a `VectorEnv` or an `AbstractJaxEnv`.
            gamma: Discount γ, in (0, 1].
            reward_scale: What rewards are multiplied by on their way into s.
        """
        gym.utils.RecordConstructorArgs.__init__(self, gamma=gamma, reward_scale=reward_scale)
        super().__init__(env, ReturnInput(), gamma, reward_scale)


class TargetAware(_MemoryAware):
    r"""Appends b to the observation: the return that is still missing to a target.

    $b' = (b - k r)/\gamma$ from `b`, with $\gamma$ = `gamma` and $k$ = `reward_scale`: the
    state of QR-CVaR. `b` is in the units of scaled returns. Everything else is as in
    `ReturnAware`.

    Calling it on a `VectorEnv` gives a `VectorTargetAware`, on an environment written in JAX a
    `JaxMemoryAware`.
    """

    @overload
    def __new__(
        cls, env: VectorEnv, gamma: float, b: float, *, reward_scale: float = 1.0
    ) -> VectorTargetAware: ...
    @overload
    def __new__(
        cls, env: AbstractJaxEnv, gamma: float, b: float, *, reward_scale: float = 1.0
    ) -> JaxMemoryAware: ...
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
            return _target_aware(*args, **kwargs)
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
        super().__init__(env, TargetInput(b), gamma, reward_scale)

    def set_target(self, b: float) -> None:
        """Use another target from the next episode on."""
        self.next_inputs = TargetInput(b)


def _return_aware(
    env: AbstractJaxEnv, gamma: float, *, reward_scale: float = 1.0
) -> JaxMemoryAware:
    return JaxMemoryAware(env, ReturnInput(), gamma, reward_scale)


def _target_aware(
    env: AbstractJaxEnv, gamma: float, b: Any, *, reward_scale: float = 1.0
) -> JaxMemoryAware:
    # As an array, so that another target compiles nothing anew.
    inputs = TargetInput(real_array(TargetInput(b).target))
    return JaxMemoryAware(env, inputs, gamma, reward_scale)
