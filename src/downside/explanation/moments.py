"""Episodes as lists of moments, and where the distribution of what is still to come is known from.

A moment is what Theorem 2 needs of one time: the accumulated reward s, the discount so far c, and
something to look up the return distribution by. `walk` collects them over the Gymnasium face of an
environment, many copies at a time, so that it serves compiled and foreign environments alike.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from jaxtyping import Bool, Float, Int

from downside.explanation.names import Names
from downside.risk import AbstractSpectralRisk, Distribution

LANES = 64
"""Copies of an environment that walk side by side."""
MOST_STEPS = 5_000
"""After so many steps an episode is looked at no further."""


class Moment(NamedTuple):
    """One time in an episode."""

    time: int
    """Number of decisions before it."""
    observation: Float[np.ndarray, " d"]
    """What the environment shows, flattened."""
    accumulated: float
    """s: the discounted reward so far."""
    discount_so_far: float
    """c: what a reward counts from here on."""
    action: int | None
    """What the policy does; None where the problem is over and nothing can be earned any more."""
    reward: float | None
    """What that paid; None at the end of an episode."""
    legal: Bool[np.ndarray, " A"] | None
    """Which actions are allowed; None for all of them."""
    handle: Any
    """What the source looks the return distribution up by."""


class Situation(NamedTuple):
    """What the policy decides on, for each lane."""

    observations: Float[np.ndarray, "L d"]
    accumulated: Float[np.ndarray, " L"]
    discount_so_far: Float[np.ndarray, " L"]
    handles: list[Any]
    legal: Bool[np.ndarray, "L A"] | None


class AbstractSource(abc.ABC):
    """A policy, its episodes, and the distributions of what it still expects on the way."""

    risk: AbstractSpectralRisk
    """The measure that the policy is meant to optimise."""
    gamma: float
    """The discount factor."""
    label: str
    """What is explained."""
    kind: str
    """Where the distributions come from: "learned", "simulated" or "exact"."""
    resolution: float
    """By how much a level can be off because distributions are kept in finitely many numbers."""
    names: Names
    """What observations and actions are called."""
    note: str = ""
    """What a reader must know beforehand, if anything."""

    @abc.abstractmethod
    def walk(self, seeds: Sequence[int]) -> list[list[Moment]]:
        """An episode for each seed."""

    @abc.abstractmethod
    def start(self, first: Sequence[Moment]) -> Distribution:
        """The return of an episode, seen from the start; some began with the moments `first`."""

    def fresh_returns(self) -> Float[np.ndarray, " n"] | None:
        """What many more episodes return, where they are cheap; otherwise None."""
        return None

    @abc.abstractmethod
    def chosen(self, moments: Sequence[Moment]) -> Distribution:
        """The return to come at each moment if the policy goes on: a batch."""

    @abc.abstractmethod
    def alternatives(self, moment: Moment) -> tuple[list[int], Distribution]:
        """The actions that are allowed at a moment, and the return to come after each: a batch."""


def walk(
    lanes: Sequence[gym.Env],
    act: Callable[[Situation], Int[np.ndarray, " L"]],
    handle: Callable[[gym.Env, Any], Any],
    seeds: Sequence[int],
    *,
    gamma: float,
    memory: int,
) -> list[list[Moment]]:
    """An episode for each seed.

    Arguments:
        lanes: copies of the environment, as the policy wants to see it.
        act: the action of each lane.
        handle: from a copy and its observation to what is kept of the moment.
        seeds: of the episodes.
        gamma: the discount factor.
        memory: how many numbers at the end of an observation are the agent's own.
    """
    episodes: list[list[Moment]] = []
    for begin in range(0, len(seeds), len(lanes)):
        episodes += _side_by_side(
            lanes, act, handle, seeds[begin : begin + len(lanes)], gamma, memory
        )
    return episodes


def _side_by_side(
    lanes: Sequence[gym.Env], act: Any, handle: Any, seeds: Sequence[int], gamma: float, memory: int
) -> list[list[Moment]]:
    count = len(seeds)
    begun = [env.reset(seed=int(seed)) for env, seed in zip(lanes, seeds, strict=False)]
    seen, infos = [one for one, _ in begun], [info for _, info in begun]
    handles = [handle(env, one) for env, one in zip(lanes, seen, strict=False)]
    accumulated, discount = np.zeros(count), 1.0
    running, over = np.ones(count, bool), np.zeros(count, bool)
    episodes: list[list[Moment]] = [[] for _ in seeds]
    for time in range(MOST_STEPS + 1):
        legal = None
        if all("action_mask" in info for info in infos):
            legal = np.array([info["action_mask"] for info in infos], bool)
        discounts = np.full(count, discount)
        actions = act(Situation(np.array(seen), accumulated.copy(), discounts, handles, legal))
        for lane in np.flatnonzero(running).tolist():
            flat = np.asarray(seen[lane], dtype=float).ravel()
            now = Moment(
                time=time,
                observation=flat[: flat.size - memory],
                accumulated=float(accumulated[lane]),
                discount_so_far=discount,
                action=None if over[lane] else int(actions[lane]),
                reward=None,
                legal=None if legal is None else legal[lane],
                handle=handles[lane],
            )
            if over[lane] or infos[lane].get("_cut") or time == MOST_STEPS:
                episodes[lane].append(now)
                running[lane] = False
                continue
            seen[lane], reward, terminated, truncated, info = lanes[lane].step(int(actions[lane]))
            infos[lane] = {**info, "_cut": truncated and not terminated}
            handles[lane] = handle(lanes[lane], seen[lane])
            over[lane] = terminated
            episodes[lane].append(now._replace(reward=float(reward)))
            accumulated[lane] += discount * float(reward)
        if not running.any():
            break
        discount *= gamma
    return episodes


def stacked(parts: Sequence[Distribution]) -> Distribution:
    """Distributions of any sizes as one batch; what is missing gets probability 0."""
    size = max(part.values.shape[-1] for part in parts)
    values = np.array([_padded(part.values, size, "edge") for part in parts])
    shares = np.array([_padded(part.probabilities, size, "constant") for part in parts])
    return Distribution(values, shares, quantile_side=parts[0].quantile_side)


def _padded(row: Any, size: int, mode: Any) -> Float[np.ndarray, " n"]:
    row = np.asarray(row, dtype=float)
    return np.pad(row, (0, size - row.size), mode=mode)


def nothing_to_come(count: int, like: Distribution | None = None) -> Distribution:
    """The return from where the problem is over: surely 0."""
    size = 1 if like is None else like.values.shape[-1]
    return Distribution(
        np.zeros((count, size)), quantile_side=like.quantile_side if like else "lower"
    )
