"""Four agents on as many devices as there are; run as a program, it prints what they have become.

XLA_FLAGS=--xla_force_host_platform_device_count=4 python -m tests.train.sharded threads
"""

import json
import sys

import jax
import numpy as np

import downside as ds
from tests.train.tiny import ENV, TINY, TWO


def trained(engine):
    """The device that each was trained on, what it returns, and every weight, losing nothing."""
    agents = ds.train_many(
        ENV,
        risks=["cvar(0.5)", "cvar(0.2)"],
        seeds=[0, 1],
        total_timesteps=TWO,
        engine=engine,
        together=4,
        **TINY,
    )
    return {
        "devices": [next(iter(agent.outer_variable.location.devices())).id for agent in agents],
        "returns": [agent.simulate_returns(4, seed=0).tolist() for agent in agents],
        "weights": [
            [np.asarray(leaf).tobytes().hex() for leaf in jax.tree.leaves(agent.networks)]
            for agent in agents
        ],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(trained(sys.argv[1])))
