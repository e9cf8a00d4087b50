"""Settings under which a run takes milliseconds, once it is compiled.

What is compiled is shared by all tests that use the same shapes: take these rather than others.
"""

import equinox as eqx
import jax
import numpy as np

import downside as ds
from downside.envs import MeanReversion
from downside.train.backends.gymnasium.backend import GymBackend
from downside.train.checkpoints.checkpoint import to_arrays

# Trades -2, -1, 0, 1, 2 in three periods; two of them in a row may break the limit.
ENV = MeanReversion(periods=3, num_trades=5, inventory_limit=2.0)

COMMON = {
    "hidden_sizes": (16, 16),
    "quantiles": 5,
    "num_envs": 8,
    "batch_size": 8,
    "buffer_size": 512,
    "warmup_steps": 64,
    "updates_per_step": 2,
    "outer_interval": 8,
    "outer_episodes": 16,
    "top_actions": 2,
    "random_actions": 1,
    "samples_per_action": 2,
    "optimiser": "adam",
    "evaluation_fraction": 0.0,
}
"""For every agent: a chunk is 4 steps of 8 environments."""

TINY = {**COMMON, "shifts": 3}
"""For the agents with an outer step."""

CHUNK = 32
"""Environment steps between two outer steps."""
TWO = 2 * CHUNK

PAPER = {
    "preset": "paper",
    "hidden_sizes": (16, 16),
    "quantiles": 5,
    "batch_size": 8,
    "warmup_steps": 64,
    "outer_interval": 4,
    "outer_episodes": 16,
}
"""The paper's algorithm: a chunk is 4 steps of 10 environments."""

SMALL = {
    "hidden_sizes": (16, 16),
    "quantiles": 5,
    "batch_size": 16,
    "buffer_size": 1000,
    "warmup_steps": 50,
    "outer_interval": 25,
    "updates_per_step": 1,
    "update_interval": 1,
    "num_critics": 1,
    "adapt": False,
}
"""For Gymnasium environments: a run takes a second or two."""


def make(seed=0, **changes):
    """The agent that most tests train."""
    return ds.QRSRM(ENV, risk="cvar(0.5)", seed=seed, **{**TINY, **changes})


def state_of(agent):
    """What changes while it learns."""
    assert agent._driver.state is not None
    return agent._driver.state


def experience_of(agent):
    """What it lived through in a Gymnasium environment."""
    backend = agent._driver.backend
    assert isinstance(backend, GymBackend)
    assert backend.experience is not None
    return backend.experience


def same(agent, other):
    """Whether all that a checkpoint holds is the same, bit for bit."""
    first, second = (
        to_arrays(each._driver.backend.to_tree(state_of(each))) for each in (agent, other)
    )
    return first.keys() == second.keys() and all(
        np.array_equal(array, second[name], equal_nan=array.dtype.kind == "f")
        for name, array in first.items()
    )


def weights(tree):
    """All arrays of a pytree, copied."""
    return [np.array(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))]


def all_equal(arrays, others):
    """Whether two lists of arrays are equal."""
    return all(np.array_equal(a, b) for a, b in zip(arrays, others, strict=True))
