"""stable-baselines3's vector environments as Gymnasium's. Nothing of theirs is imported."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


def is_sb3_vector_env(env: Any) -> bool:
    """Whether it is a `VecEnv`, by what it can do."""
    names = ("num_envs", "step_async", "step_wait", "observation_space", "action_space")
    return not isinstance(env, gym.Env | VectorEnv) and all(hasattr(env, name) for name in names)


def from_sb3(env: Any) -> Any:
    """A `VecEnv` as a Gymnasium vector environment; everything else as it is."""
    return Sb3VectorEnv(env) if is_sb3_vector_env(env) else env


class Sb3VectorEnv(VectorEnv):
    """A `VecEnv` of stable-baselines3, such as `DummyVecEnv` or what `make_vec_env` returns.

    It resets an episode in the step that ends it, and keeps the last observation in
    `info["terminal_observation"]`; `info["TimeLimit.truncated"]` tells a time limit from an end.
    """

    def __init__(self, env: Any):
        self.inside = env
        self.num_envs = int(env.num_envs)
        self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.observation_space = batch_space(env.observation_space, self.num_envs)
        self.action_space = batch_space(env.action_space, self.num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = getattr(env, "render_mode", None)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins new episodes everywhere."""
        del options
        if seed is not None:
            self.inside.seed(seed if isinstance(seed, int) else seed[0])
        observations = self.inside.reset()
        return observations, self._masks(self._reset_infos())

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Acts in all of them."""
        observations, rewards, over, each = self.inside.step(np.asarray(actions))
        over = np.asarray(over, bool)
        limited = np.array([bool(info.get("TimeLimit.truncated", False)) for info in each])
        fresh = self._reset_infos()
        infos = self._masks([fresh[i] if over[i] else info for i, info in enumerate(each)])
        if over.any():
            final = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(over):
                final[i] = each[i]["terminal_observation"]
            infos.update(final_obs=final, _final_obs=over)
        return observations, np.asarray(rewards), over & ~limited, over & limited, infos

    def _reset_infos(self) -> list[dict[str, Any]]:
        return list(getattr(self.inside, "reset_infos", [{}] * self.num_envs))

    def _masks(self, infos: list[dict[str, Any]]) -> dict[str, Any]:
        given = [info.get("action_mask") for info in infos]
        if all(mask is None for mask in given):
            return {}
        masks = np.full(self.num_envs, None, dtype=object)
        for i, mask in enumerate(given):
            masks[i] = mask
        return {"action_mask": masks, "_action_mask": np.array([m is not None for m in given])}

    def render(self) -> Any:
        """As inside."""
        return self.inside.render()

    def close(self, **options: Any) -> None:
        """As inside."""
        del options
        self.inside.close()
