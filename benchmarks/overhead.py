"""What logging and checkpoints cost: a compiled run with them against the bare loop, in one run.

    python benchmarks/overhead.py

Both do the same updates; one in `learn`, with TensorBoard events, lines of JSON and a checkpoint
every minute (or as often as `--every` says), the other by calling the compiled step in a loop.
"""

import argparse
import statistics
import tempfile
import time

import jax

import downside as ds
from downside.train.backends.jax import program as jax_program

ENV = "downside/MeanReversion-v0"


def make() -> ds.Agent:
    """The default agent."""
    return ds.QRSRM(ENV, risk="cvar(0.5)", evaluation_fraction=0.0)


def bare(steps: int) -> float:
    """Seconds of the compiled steps alone."""
    agent = make()
    driver = agent._driver
    spec, algorithm = driver.plan(steps), driver.algorithm
    state, _ = jax_program.init(spec, algorithm, jax.random.key(0))
    state, metrics = jax.block_until_ready(jax_program.chunk(spec, algorithm, state))  # compiles
    begin = time.perf_counter()
    for _ in range(spec.chunks - 1):
        state, metrics = jax_program.chunk(spec, algorithm, state)
        jax.block_until_ready(metrics)
    return (time.perf_counter() - begin) / (spec.chunks - 1)


def whole(steps: int, every: float) -> float:
    """Seconds of a step of `learn` with everything that is written down."""
    with tempfile.TemporaryDirectory() as folder:
        agent = make()
        agent.tensorboard_log = folder
        begun: list[float] = []

        def first(_: ds.Agent) -> None:
            if not begun:
                begun.append(time.perf_counter())

        saving = ds.Checkpoints(folder, every_seconds=every)
        agent.learn(steps, callback=[saving, first])
        return (time.perf_counter() - begun[0]) / (len(agent.history) - 1)


def main() -> None:
    """Prints both and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=512_000)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between checkpoints")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    pairs = [
        (bare(options.steps), whole(options.steps, options.every)) for _ in range(options.rounds)
    ]
    alone, with_all = (statistics.median(part) for part in zip(*pairs, strict=True))
    print(f"  the compiled step alone                {alone:.3f} s")
    print(f"  with log, events and checkpoints       {with_all:.3f} s")
    print(f"  {with_all / alone - 1:+.1%} (at most 5%)")


if __name__ == "__main__":
    main()
