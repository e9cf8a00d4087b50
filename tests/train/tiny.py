"""Settings under which a run takes milliseconds, once it is compiled.

What is compiled is shared by all tests that use the same shapes: take these rather than others.
"""

from downside.envs import MeanReversion

# Trades -2, -1, 0, 1, 2 in three periods; two of them in a row may break the limit.
ENV = MeanReversion(periods=3, num_trades=5, inventory_limit=2.0)

COMMON = {
    "hidden": (16, 16),
    "quantiles": 5,
    "num_envs": 8,
    "batch_size": 8,
    "buffer_size": 512,
    "warmup_steps": 64,
    "updates_per_step": 2,
    "outer_interval": 8,
    "outer_episodes": 16,
    "near_greedy": 2,
    "random_actions": 1,
    "outcomes": 2,
    "optimiser": "adam",
    "distribution_fraction": 0.0,
}
"""For every agent: a chunk is 4 steps of 8 environments."""

TINY = {**COMMON, "shifts": 3}
"""For the agents with an outer step."""

CHUNK = 32
"""Environment steps between two outer steps."""
TWO = 2 * CHUNK
