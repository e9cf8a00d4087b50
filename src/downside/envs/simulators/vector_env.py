"""Many copies of a NumPy simulator as a Gymnasium vector environment, without JAX in between."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float

from downside.envs._parameters import check_whole
from downside.envs.actions import check_actions
from downside.envs.faults import SimulatorError
from downside.envs.gymnasium.vector_env import as_autoreset_mode, copies_to_reset, final_infos
from downside.envs.simulators.checks import draw_noise
from downside.envs.simulators.simulator import Simulator


class SimulatorVectorEnv(VectorEnv[np.ndarray, Any, np.ndarray]):
    """Copies of a simulator, all stepped by one call of its `step`.

    `infos["action_mask"]` says which discrete actions are legal. Episodes that end are handled as
    in `GymnasiumVectorEnv`.
    """

    def __init__(
        self,
        core: Simulator,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ):
        """Make `num_envs` copies of `core`.

        Args:
            core: The simulator.
            num_envs: Number of copies.
            autoreset_mode: What happens when an episode ends, see the class.
        """
        check_whole("num_envs", num_envs, "It is the number of copies.", least=1)
        self.core, self.num_envs = core, num_envs
        self.autoreset_mode = as_autoreset_mode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = core.observation_space
        self.single_action_space = core.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._masks = bool(core.num_actions) and hasattr(core.simulator, "action_mask")
        self._state: list[np.ndarray] | None = None
        self._observations = np.zeros((num_envs, core.calls.observation_size), np.float32)
        self._over = np.zeros(num_envs, bool)

    @property
    def state(self) -> Any:
        """The states of all copies, as the simulator has them."""
        return None if self._state is None else self.core.calls.state.unflatten(self._state)

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
        chosen = copies_to_reset(options, self.num_envs, running=self._state is not None)
        self._restart(chosen)
        return self._observations.copy(), self._infos(chosen.copy())

    def _restart(self, chosen: Bool[np.ndarray, " n"]) -> None:
        """Begins new episodes in these copies."""
        calls, rows = self.core.calls, int(chosen.sum())
        if not rows:
            return
        fresh = calls.states(self.np_random, rows)
        if self._state is None:
            self._state = [
                np.array(x, leaf.dtype) for x, leaf in zip(fresh, calls.state.leaves, strict=True)
            ]
        else:
            for whole, part in zip(self._state, fresh, strict=True):
                whole[chosen] = part
        self._observations[chosen] = self._observe(fresh)
        self._over = self._over & ~chosen

    def _observe(self, state: list[np.ndarray]) -> Float[np.ndarray, "n d"]:
        observed = self.core.calls.observe(state).astype(np.float32)
        if not np.isfinite(observed).all():
            raise SimulatorError(
                f"`observe` of {self.core.calls.name} must give finite numbers, got "
                f"{observed[~np.isfinite(observed).all(axis=1)][0]}."
            )
        return observed

    def step(
        self, actions: Any
    ) -> tuple[Float[np.ndarray, "n d"], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Act in every copy under fresh noise."""
        chosen, running = self._check(actions), ~self._over
        calls, mode = self.core.calls, self.autoreset_mode
        assert self._state is not None
        rewards, terminated = np.zeros(self.num_envs), np.zeros(self.num_envs, bool)
        truncated = np.zeros(self.num_envs, bool)
        rows = int(running.sum())
        if rows:
            action = calls.actions.rows(chosen[running], self.core.continuous)
            noise = draw_noise(calls, self.np_random, rows)
            state = [x[running] for x in self._state]
            after, rewards[running], terminated[running], truncated[running] = calls.step(
                state, action, noise
            )
            if not np.isfinite(rewards).all():
                raise SimulatorError(f"`step` of {calls.name} must give finite rewards, got NaN.")
            for whole, part in zip(self._state, after, strict=True):
                whole[running] = part
            self._observations[running] = self._observe(after)
        done = terminated | truncated
        infos: dict[str, Any] = {}
        if mode is AutoresetMode.SAME_STEP:
            if done.any():
                infos = final_infos(self._observations.copy(), self._legal(), done)
                self._restart(done)
        else:
            self._restart(self._over)  # NEXT_STEP: their episodes had ended before
            self._over = done
        infos |= self._infos(np.ones(self.num_envs, bool))
        return self._observations.copy(), rewards, terminated, truncated, infos

    def _check(self, actions: Any) -> np.ndarray:
        if self._state is None:
            raise gym.error.ResetNeeded("Call `reset` before `step`.")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._over.any():
            raise gym.error.ResetNeeded(
                f"The episodes of copies {np.flatnonzero(self._over).tolist()} are over. With "
                "autoreset disabled, call `reset(options={'reset_mask': mask})` before `step`."
            )
        return check_actions(self.single_action_space, actions, self.num_envs)

    def _legal(self) -> np.ndarray:
        assert self._state is not None
        if not self._masks:
            return np.ones((self.num_envs, self.core.num_actions), np.int8)
        return self.core.calls.mask(self._state).astype(np.int8)

    def _infos(self, present: Bool[np.ndarray, " n"]) -> dict[str, Any]:
        if not self.core.num_actions:
            return {}
        return {"action_mask": self._legal(), "_action_mask": present}
