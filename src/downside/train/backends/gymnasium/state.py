"""What changes in a run in a Gymnasium environment, and where its randomness comes from."""

import zlib
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt8

from downside.agents.algorithm import AbstractAlgorithm
from downside.agents.learner import Normalisation, return_scale
from downside.agents.networks import channel_axis, input_spread
from downside.agents.settings import GymnasiumSettings
from downside.envs import Memory
from downside.train.backends.replay import NumpyReplayBuffer, Observed, Ring, Transition
from downside.train.backends.state import CommonState
from downside.train.config import WINDOW

_STARTS = 256
"""First observations that are kept."""


class Average(eqx.Module):
    """The mean of the networks after each of some outer steps (stochastic weight averaging).

    Consecutive policies fail in different episodes; averaging their weights cancels much of this.
    """

    networks: Any
    count: Int[np.ndarray, ""]


class GymState(CommonState):
    """What changes in a run, without the experience (`Experience`)."""

    rounds: Int[np.ndarray, ""]
    """Rounds of `update_interval` steps of all environments and the updates that follow."""
    average: Average | None


class Experience:
    """What was lived through. Its arrays are written in place: after an error they are ahead of
    the `GymState`."""

    def __init__(
        self,
        observation_size: int,
        num_actions: int,
        capacity: int,
        dtype: Any = np.float32,
        episodes: int = WINDOW,
    ):
        self.replay = NumpyReplayBuffer(observation_size, num_actions, capacity, dtype)
        self.episodes = Ring(episodes, (3,), np.float64)
        """Of the last episodes: discounted return, sum of rewards, length."""
        self.starts = Ring(_STARTS, (observation_size,), dtype)
        self.start_masks = Ring(_STARTS, (num_actions,), bool)

    @property
    def _rings(self) -> dict[str, Ring]:
        return {"episodes": self.episodes, "starts": self.starts, "start_masks": self.start_masks}

    @classmethod
    def row_size(cls, observation_size: int, num_actions: int, dtype: Any) -> int:
        """The bytes of a transition."""
        single = cls(observation_size, num_actions, 1, dtype).replay
        return sum(leaf.nbytes for leaf in jax.tree.leaves((single.storage, single.successor)))

    def arrays(self) -> dict[str, Any]:
        """All arrays, as a pytree."""
        replay = self.replay
        rings = {name: (ring.rows, ring.added) for name, ring in self._rings.items()}
        return {"replay": (replay.storage, replay.successor, replay.added), **rings}

    def fill(self, arrays: Mapping[str, Any]) -> None:
        """Overwrites all arrays with those that `arrays` returned."""
        for array, value in zip(
            jax.tree.leaves(self.arrays()), jax.tree.leaves(dict(arrays)), strict=True
        ):
            array[...] = value

    def first_observations(self) -> Observed:
        """The first observations of the last episodes, always as many."""
        index = np.resize(np.arange(len(self.starts.filled())), _STARTS)
        return Observed(
            jnp.asarray(self.starts.rows[index]), jnp.asarray(self.start_masks.rows[index])
        )


def normalisation_of(
    algorithm: AbstractAlgorithm,
    outer: Any,
    played: Transition,
    returns: Any,
    shape: tuple[int, ...] = (),
) -> Normalisation:
    """What random play says about how large the numbers are.

    In 64 bits: what is measured of an input must not depend, in its last digit, on how many others
    there are, or agents that see the same would not be the same run. The pixels of a picture of
    this `shape` share the numbers of their channel.
    """
    observations = played.state.observation
    picture = observations.dtype == np.uint8 and channel_axis(shape) is not None
    inputs = inputs_of(
        algorithm, outer, observations[:, :0] if picture else observations, played.memory
    )
    mean = np.asarray(inputs).mean(axis=0, dtype=np.float64)
    deviation = np.asarray(input_spread(np.asarray(inputs, np.float64)))
    if picture:
        pixel_mean, pixel_deviation = channel_statistics(observations, shape)
        mean = np.concatenate([pixel_mean, mean])
        deviation = np.concatenate([pixel_deviation, deviation])
    hidden = algorithm.inputs_hidden_at_first
    if hidden:  # set to 0 now, but shown later
        shown = algorithm.memory_input(outer).show(played.memory)
        later = np.stack([np.asarray(part, np.float64) for part in shown], axis=-1)
        deviation[-hidden:] = input_spread(later)[-hidden:]
    deviation = np.where(deviation > 1e-6, deviation, 1.0)
    spread, size = return_scale(np.asarray(returns))
    return Normalisation(
        jnp.asarray(mean, jnp.float32),
        jnp.asarray(deviation, jnp.float32),
        jnp.asarray(returns.mean(), jnp.float32),
        jnp.asarray(spread, jnp.float32),
        jnp.asarray(size, jnp.float32),
    )


def channel_statistics(
    pixels: UInt8[np.ndarray, "n d"], shape: tuple[int, ...]
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """The mean and the standard deviation of the channel of each pixel."""
    shape = shape if len(shape) == 3 else (*shape, 1)
    axis = channel_axis(shape) or 0
    ordered = np.moveaxis(pixels.reshape(-1, *shape), axis + 1, -1).reshape(-1, shape[axis])
    # From how often each value occurs: no copy of the pixels in larger numbers.
    counts = np.stack([np.bincount(channel, minlength=256) for channel in ordered.T], axis=-1)
    values, share = np.arange(256.0)[:, None], counts / counts.sum(axis=0)
    mean = (share * values).sum(axis=0)
    deviation = np.sqrt((share * (values - mean) ** 2).sum(axis=0))
    ones = np.ones([1 if i == axis else size for i, size in enumerate(shape)])
    along = [-1 if i == axis else 1 for i in range(len(shape))]
    of_pixel = [(ones * numbers.reshape(along)).ravel() for numbers in (mean, deviation)]
    return of_pixel[0], of_pixel[1]


def inputs_of(
    algorithm: AbstractAlgorithm, outer: Any, observations: Any, memory: Memory
) -> Float[np.ndarray, "n e"]:
    """What the networks see."""
    inputs = jax.vmap(lambda x, memory: algorithm.network_input(x, memory, outer))(
        observations.astype(np.float32), memory
    )
    return np.asarray(inputs)


def averaged(
    state: GymState, progress: float, settings: GymnasiumSettings
) -> tuple[Average | None, Any]:
    """The average after an outer step, and the networks to keep: the average in the last
    `averaging` of the run, before that those that learn.

    Networks that maximised the mean because h was not known yet are left out. Agents without an h
    begin as late, so that they can be compared.
    """
    networks = state.learner.networks
    first = 1.0 - settings.averaging
    if settings.risk_neutral_fraction < 1.0:
        first = max(first, settings.risk_neutral_fraction)
    if state.average is None:
        return None, networks
    if progress <= first:  # also of a run that was stretched to a new end
        return Average(networks, np.zeros((), np.int64)), networks
    count = int(state.average.count) + 1
    if count > 1:
        networks = _moved(state.average.networks, networks, 1.0 / count)
    return Average(networks, np.asarray(count, np.int64)), networks


def _moved(old: Any, new: Any, share: float) -> Any:
    """Some of the way from the old networks to the new ones."""
    weights, rest = eqx.partition(old, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(weights)
    others = jax.tree.leaves(eqx.filter(new, eqx.is_inexact_array))
    return eqx.combine(jax.tree.unflatten(tree, _interpolate(leaves, others, share)), rest)


@jax.jit
def _interpolate(old: list, new: list, share: float) -> list:
    return [before + share * (after - before) for before, after in zip(old, new, strict=True)]


class Streams:
    """NumPy generators in named streams from the root of a run; each costs little to make."""

    def __init__(self, key: Key[Array, ""]):
        self._root = int(np.asarray(jax.random.key_data(key)).view(np.uint64).ravel()[0])

    def generator(self, name: str, number: int) -> np.random.Generator:
        """A generator that depends on the root, the name and the number alone."""
        counter = [0, 0, zlib.crc32(name.encode()), number]
        return np.random.Generator(np.random.Philox(counter=counter, key=self._root))

    def seed(self, name: str, number: int = 0) -> int:
        """A seed for environments."""
        return int(self.generator(name, number).integers(0, 2**31 - 1))


def episode_seed(key: Key[Array, ""], timesteps: int) -> int:
    """The seed that environments are reset with when training begins or goes on."""
    return Streams(key).seed("episodes", timesteps)


def without_values(state: GymState) -> GymState:
    """The state with nothing known of what policies are worth."""
    average = state.average
    if average is not None:  # of what was learned for other episodes
        average = Average(average.networks, np.zeros_like(average.count))
    unknown = jnp.asarray(-jnp.inf, state.best.value.dtype)
    return eqx.tree_at(
        lambda s: (s.best.value, s.average),
        state,
        (unknown, average),
        is_leaf=lambda leaf: leaf is None,
    )


def random_legal(
    generator: np.random.Generator, masks: Bool[np.ndarray, "n A"]
) -> Int[np.ndarray, " n"]:
    """A legal action at random, in each environment."""
    return np.where(masks, generator.random(masks.shape), -1.0).argmax(axis=1)


def explored(
    generator: np.random.Generator,
    explore: Bool[np.ndarray, " n"],
    masks: Bool[np.ndarray, "n A"],
    chosen: Int[np.ndarray, "n *k"],
) -> Int[np.ndarray, " n"]:
    """The greedy actions, with others where to `explore`.

    `chosen` has the greedy action of each environment, or its best k with the best one first: then
    half of the others are drawn from these.
    """
    others = random_legal(generator, masks)
    if chosen.ndim == 1:
        return np.where(explore, others, chosen)
    near = generator.random(len(chosen)) < 0.5
    drawn = chosen[np.arange(len(chosen)), generator.integers(0, chosen.shape[1], len(chosen))]
    return np.where(explore, np.where(near, drawn, others), chosen[:, 0])
