"""Episodes of a policy in Gymnasium environments: the only loops over them that there are.

- `VectorRollout`: a vector environment, one step of all its episodes after the other.
- `play_episodes`: one episode for each seed, in environments that are never reset behind the
  caller's back.

Each keeps the memory (s, c) of every episode. `envs/rollout.py` has the same for JAX environments.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from jaxtyping import Bool, Float

from downside.envs.faults import EnvironmentFaultError
from downside.envs.gymnasium.vector_adapter import VectorEnvAdapter, VectorStep
from downside.envs.memory import Memory

MAX_EPISODE_STEPS = 100_000
"""Steps after which an episode is taken to never end."""


class VectorRollout:
    """Episodes in all copies of a vector environment; where one ends, the next one begins."""

    def __init__(self, env: VectorEnvAdapter, gamma: float, seed: int | None):
        self.env, self.gamma = env, gamma
        self.reset(seed)

    def reset(self, seed: int | None) -> None:
        """Begins new episodes everywhere; those under way are abandoned."""
        self.observations, self.masks = self.env.reset(seed)
        count = self.env.num_envs
        self.memory = Memory.initial(count)
        self.rewards, self.lengths = np.zeros(count), np.zeros(count)
        self.started = np.ones(count, bool)
        """Whether `observations` is the first of an episode."""
        self._resets = self.env.resets

    @property
    def disturbed(self) -> bool:
        """Whether somebody else has reset the environment since."""
        return self.env.resets != self._resets

    def step(self, actions: Any) -> tuple[VectorStep, Float[np.ndarray, "k 3"]]:
        """Acts in all copies.

        Returns:
            The step; and for each episode that ended, in the order of the copies, its discounted
            return, the sum of its rewards and its length.
        """
        step = self.env.step(actions)
        paid = np.where(step.is_step, step.rewards, 0.0)
        discount = np.where(step.is_step, self.gamma, 1.0)
        self.memory = self.memory.update(paid, discount)
        self.rewards = self.rewards + paid
        self.lengths = self.lengths + step.is_step
        ended = np.stack([self.memory.accumulated, self.rewards, self.lengths], axis=-1)[step.over]
        if step.over.any():
            self.memory = self.memory.reset_where(step.over)
            self.rewards = np.where(step.over, 0.0, self.rewards)
            self.lengths = np.where(step.over, 0.0, self.lengths)
        self.observations, self.masks = step.observations, step.masks
        self.started = step.started
        return step, ended

    def play(
        self,
        act: "Callable[[VectorRollout], Any]",
        episodes: int,
        on_end: Callable[[Float[np.ndarray, " 3"]], Any] | None = None,
    ) -> list[list[np.ndarray]]:
        """Plays until each copy has finished its share of so many episodes.

        Each copy plays as many: the first episodes to end would mostly be short ones.

        Arguments:
            act: the actions of all copies.
            episodes: how many, in all copies together.
            on_end: called with the row of `step` of each of these episodes, in the order in which
                they end.

        Returns:
            For each copy the rows of `step` of its episodes.
        """
        count = self.env.num_envs
        wanted = np.full(count, episodes // count) + (np.arange(count) < episodes % count)
        finished: list[list[np.ndarray]] = [[] for _ in range(count)]
        while any(len(rows) < share for rows, share in zip(finished, wanted, strict=True)):
            if self.lengths.max() > MAX_EPISODE_STEPS:
                raise endless(self.env.name)
            step, ended = self.step(act(self))
            for i, row in zip(np.flatnonzero(step.over), ended, strict=True):
                if len(finished[i]) < wanted[i]:
                    finished[i].append(row)
                    if on_end is not None:
                        on_end(row)
        return finished


def in_turns(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """The first of each, then the second of each, and so on."""
    turns = itertools.zip_longest(*rows)
    return [row for turn in turns for row in turn if row is not None]


def endless(name: str, steps: int = MAX_EPISODE_STEPS) -> EnvironmentFaultError:
    """The error for an episode that does not end."""
    return EnvironmentFaultError(
        f"An episode of {name} did not end in {steps:,} steps. Wrap the environment in "
        "`gymnasium.wrappers.TimeLimit`."
    )


# --- one episode for each seed -----------------------------------------------------------------


class Situation(NamedTuple):
    """One time of the episodes that are played side by side."""

    time: int
    observations: list[Any]
    """As each environment returned them."""
    memory: Memory
    masks: Bool[np.ndarray, "n A"] | None
    """Which actions are legal; None where the environments do not say."""
    running: Bool[np.ndarray, " n"]
    """Which episodes go on: neither terminated nor truncated."""
    terminated: Bool[np.ndarray, " n"]
    rewards: Float[np.ndarray, " n"]
    """What the step before paid."""


def play_episodes(
    envs: Sequence[gym.Env],
    seeds: Sequence[int],
    act: Callable[[Situation], Any],
    visit: Callable[[Situation, Any], None] | None = None,
    *,
    gamma: float,
    max_steps: int,
) -> Situation:
    """Plays one episode in each environment, for as many as there are seeds.

    Arguments:
        envs: environments, at least as many as seeds.
        seeds: each is passed to `reset` of its environment.
        act: the actions of all environments; those of episodes that are over are not used.
        visit: called at each time with the situation and the actions about to be taken, and once
            more at the end, with actions None. An episode that is over stays in its last situation.
        gamma: the discount factor.
        max_steps: after so many steps episodes are left as they are.
    """
    count = len(seeds)
    begun = [env.reset(seed=int(seed)) for env, seed in zip(envs, seeds, strict=False)]
    observations = [observation for observation, _ in begun]
    infos = [info for _, info in begun]
    memory = Memory.initial(count)
    running, terminated, rewards = np.ones(count, bool), np.zeros(count, bool), np.zeros(count)
    for time in itertools.count():
        masks = None
        if all("action_mask" in info for info in infos):
            masks = np.array([info["action_mask"] for info in infos], bool)
        now = Situation(
            time, list(observations), memory, masks, running.copy(), terminated.copy(), rewards
        )
        over = not running.any() or time >= max_steps
        actions = None if over else act(now)
        if visit is not None:
            visit(now, actions)
        if actions is None:
            return now
        rewards = np.zeros(count)
        for i in np.flatnonzero(running).tolist():
            observations[i], reward, terminated[i], truncated, infos[i] = envs[i].step(actions[i])
            rewards[i] = float(reward)
            running[i] = not (terminated[i] or truncated)
        discount = np.where(now.running, gamma, 1.0)
        memory = memory.update(rewards, discount)
    raise AssertionError("the loop above returns")
