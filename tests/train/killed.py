"""Trains a tiny agent with a checkpoint after each outer step, until it is done or killed.

python -m tests.train.killed FOLDER        begins
python -m tests.train.killed FOLDER resume goes on from the latest checkpoint

KILLED_ENV names another environment, such as the simulator "tests.train.market:Market".
"""

import os
import sys

import jax

import downside as ds

from . import market  # noqa: F401  (so that a checkpoint may name it)
from .tiny import CHUNK, ENV, TINY

CHUNKS = int(os.environ.get("KILLED_CHUNKS", "6"))
"""Outer steps of the run; with 60 it is killed some twenty times."""


def main(folder: str, resume: bool) -> None:
    """Says "begun" once it trains, and "done" when it is."""
    callback = [ds.Checkpoints(folder, every_steps=1, keep=2), tell]
    if resume:
        ds.load(folder).resume(callback=callback)
    else:
        env = os.environ.get("KILLED_ENV", ENV)
        agent = ds.QRSRM(env, risk="cvar(0.5)", seed=0, **TINY)
        agent.learn(CHUNKS * CHUNK, callback=callback)
    sys.stdout.write("done\n")


def tell(agent: ds.Agent) -> None:
    """One line per outer step."""
    sys.stdout.write(f"{agent.num_timesteps}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    jax.config.update("jax_compilation_cache_dir", sys.argv[2])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    main(sys.argv[1], sys.argv[3:] == ["resume"])
