"""One training update at the paper's setting, against PyTorch and stable-baselines3-contrib.

    make bench-update

Batch 256, 21 actions, three layers of 128, 50 quantiles. Ours includes drawing the batch from the
replay, and is timed as it runs: many updates in one compiled program. The peers (`peers.py`) are
timed in an environment of their own, in turn with ours, so that a busy machine is busy for all.
"""

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable

import equinox as eqx
import jax

import downside as ds
from downside.train.backends.jax import program as jax_program

RISKS = {"torch-cvar": "cvar(0.5)", "torch-dense": "exponential(4)"}
UPDATES = 20


def ours(risk: str, quantiles: int) -> Callable[[], float]:
    """A function that times some updates of ours and says how long one took, in seconds."""
    agent = ds.QRSRM(
        "downside/MeanReversion-v0",
        risk=risk,
        preset="paper",
        quantiles=quantiles,
        updates_per_step=UPDATES,
    )
    spec, algorithm = agent._driver.plan(500_000), agent._driver.algorithm
    state, _ = jax_program.init(spec, algorithm, jax.random.key(0))
    # h as it is in the middle of a run.
    outer = algorithm.learned_outer_step(
        state.outer,
        jax.numpy.sort(jax.random.normal(jax.random.key(1), (50,))),
        lambda _: jax.numpy.zeros(()),
        1.0,
    )
    state = eqx.tree_at(lambda s: s.outer, state, outer)
    # Peers may use all cores; so may we, here.
    update = eqx.filter_jit(jax_program.update)
    key = jax.random.key(2)
    jax.block_until_ready(update(spec, algorithm, state, key)[1])

    def timed() -> float:
        begin = time.perf_counter()
        jax.block_until_ready(update(spec, algorithm, state, key)[1])
        return (time.perf_counter() - begin) / UPDATES

    return timed


def peer(python: str, name: str, quantiles: int, threads: int, repeats: int) -> float:
    """The median seconds of one update of a peer."""
    command = [python, "benchmarks/peers.py", "--peer", name, "--json"]
    command += ["--quantiles", str(quantiles), "--threads", str(threads)]
    command += ["--repeats", str(repeats)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(output.splitlines()[-1])["median"]


def main() -> None:
    """Prints the table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=".venv-bench/bin/python", help="of the peers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    times: dict[str, list[float]] = {}
    mine = {name: ours(risk, 50) for name, risk in RISKS.items()}
    large = {name: ours(risk, 200) for name, risk in RISKS.items()}
    for _ in range(options.rounds):
        for name, risk in RISKS.items():
            for label, timed, repeats in (("N = 50", mine[name], 10), ("N = 200", large[name], 4)):
                samples = [timed() for _ in range(repeats)]
                times.setdefault(f"ours, {risk}, {label}", []).append(statistics.median(samples))
            seconds = peer(options.python, name, 50, options.threads, 10)
            times.setdefault(f"PyTorch, double sum, {risk}", []).append(seconds)
        seconds = peer(options.python, "sb3", 50, options.threads, 10)
        times.setdefault("sb3-contrib QRDQN", []).append(seconds)
    middle = {name: statistics.median(samples) for name, samples in times.items()}
    print(f"One update (ms, median of {options.rounds} rounds)")
    for name, seconds in middle.items():
        print(f"  {name:40}{1e3 * seconds:10.2f}")
    print("Ratios")
    for risk in RISKS.values():
        ours_seconds = middle[f"ours, {risk}, N = 50"]
        torch = middle[f"PyTorch, double sum, {risk}"] / ours_seconds
        sb3 = middle["sb3-contrib QRDQN"] / ours_seconds
        growth = middle[f"ours, {risk}, N = 200"] / ours_seconds
        print(f"  {risk:16} {torch:6.1f}x faster than PyTorch's double sum (floor 20x)")
        print(f"  {'':16} {sb3:6.1f}x faster than sb3-contrib's risk-neutral QRDQN (floor 3x)")
        print(f"  {'':16} {growth:6.1f}x the time for N = 200 instead of 50 (at most 5x)")


if __name__ == "__main__":
    main()
