"""A policy in any Gymnasium environment, the way stable-baselines3 evaluates one."""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from downside.envs.gymnasium.rollout import VectorRollout
from downside.envs.gymnasium.sb3_vector_env import from_sb3
from downside.envs.gymnasium.vector_adapter import VectorEnvAdapter
from downside.evaluation.bootstrap import whole_number


@runtime_checkable
class Predicts(Protocol):
    """Anything with stable-baselines3's `predict`."""

    def predict(self, observation: Any, *arguments: Any, **named: Any) -> tuple[Any, Any]:
        """The action for an observation."""
        ...


def evaluate_policy(
    model: Predicts,
    env: Any,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    return_episode_rewards: bool = False,
    seed: int | None = None,
) -> tuple[Any, Any]:
    """Plays so many episodes and sums their rewards, without discount.

    For risk values with intervals use `ds.evaluate`. If the model has a method `wrap`, as our
    agents have, the environment is wrapped by it.

    Arguments:
        model: anything with `predict`.
        env: where to play, a Gymnasium environment or a vector environment, also one of
            stable-baselines3; each environment of a vector plays as many episodes.
        n_eval_episodes: how many in all.
        deterministic: False if the model may explore.
        return_episode_rewards: whether to return the results of each episode.
        seed: of the first reset.

    Returns:
        Mean and standard deviation over episodes; or the sums of rewards and the lengths, in the
        order in which the episodes end.
    """
    count, env = whole_number(n_eval_episodes, "n_eval_episodes"), from_sb3(env)
    wrap = getattr(model, "wrap", None)
    adapter = VectorEnvAdapter(env if wrap is None else wrap(env), num_envs=1)

    def act(rollout: VectorRollout) -> Any:
        # Models without masks do not take the argument.
        masks = {} if rollout.masks.all() else {"action_masks": rollout.masks}
        observations = adapter.raw_observations
        actions, _ = model.predict(observations, deterministic=deterministic, **masks)
        # Discrete actions are counted from 0 by the adapter; all others are passed on.
        return np.asarray(actions) - adapter.first_action if adapter.num_actions else actions

    episodes: list[np.ndarray] = []
    VectorRollout(adapter, 1.0, seed).play(act, count, episodes.append)
    rewards = [float(total) for _, total, _ in episodes]
    if return_episode_rewards:
        return rewards, [int(length) for _, _, length in episodes]
    return float(np.mean(rewards)), float(np.std(rewards))
