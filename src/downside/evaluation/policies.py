"""A policy in any Gymnasium environment, the way stable-baselines3 evaluates one."""

from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from downside.evaluation.bootstrap import whole_number


@runtime_checkable
class Predicts(Protocol):
    """What has stable-baselines3's `predict`: ours, theirs, or yours."""

    def predict(self, observation: Any, *arguments: Any, **named: Any) -> tuple[Any, Any]:
        """The action for an observation."""
        ...


def evaluate_policy(
    model: Predicts,
    env: gym.Env | gym.vector.VectorEnv,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    return_episode_rewards: bool = False,
    seed: int | None = None,
) -> tuple[Any, Any]:
    """Plays so many episodes and sums their rewards, without discount.

    For risk values with intervals use `ds.evaluate`. An agent that remembers anything gets its
    environment wrapped.

    Arguments:
        model: anything with `predict`.
        env: where to play; each environment of a vector plays as many episodes.
        n_eval_episodes: how many in all.
        deterministic: whether the model may explore.
        return_episode_rewards: whether to return all of them.
        seed: of the first reset.

    Returns:
        Mean and standard deviation over episodes; or the sums of rewards and the lengths.
    """
    count = whole_number(n_eval_episodes, "n_eval_episodes")
    wrapped = getattr(model, "wrap", lambda one: one)(env)
    if not isinstance(wrapped, gym.vector.VectorEnv):
        single = wrapped
        wrapped = SyncVectorEnv([lambda: single], autoreset_mode=AutoresetMode.NEXT_STEP)
    mode = wrapped.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    environments = wrapped.num_envs
    wanted = count // environments + (np.arange(environments) < count % environments)
    rewards: list[float] = []
    lengths: list[int] = []
    totals, steps = np.zeros(environments), np.zeros(environments, int)
    resetting = np.zeros(environments, bool)
    observations, infos = wrapped.reset(seed=seed)
    while (wanted > 0).any():
        masks = infos.get("action_mask")
        legal = {} if masks is None else {"action_masks": np.stack(list(masks)).astype(bool)}
        actions, _ = model.predict(observations, deterministic=deterministic, **legal)
        observations, earned, terminated, truncated, infos = wrapped.step(np.asarray(actions))
        lived = ~resetting
        totals, steps = totals + np.where(lived, earned, 0.0), steps + lived
        over = np.logical_or(terminated, truncated) & lived
        for i in np.flatnonzero(over):
            if wanted[i] > 0:
                rewards.append(float(totals[i]))
                lengths.append(int(steps[i]))
                wanted[i] -= 1
            totals[i], steps[i] = 0.0, 0
        if mode is AutoresetMode.NEXT_STEP:
            resetting = over
        elif mode is AutoresetMode.DISABLED and over.any():
            observations, infos = wrapped.reset(options={"reset_mask": over})
    if return_episode_rewards:
        return rewards, lengths
    return float(np.mean(rewards)), float(np.std(rewards))
