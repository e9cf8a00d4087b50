"""What an update costs against the number of quantiles: our scoring, and the plain double sum.

Updates of the preset `paper` (batch 256, 21 actions, three layers of 128) with everything the same
but how h is evaluated: the double sum of Algorithm 2 over N knots and N quantiles, the same h as
the piecewise-linear function it is, h of a single CVaR, and the mean (QR-DQN). All compiled, on one
core, many updates in one program, timed in turns; the median counts.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from downside.agents import Aim
from downside.experiments._rows import Row, read_rows, select, write_about, write_rows
from downside.experiments.optimum import ENVIRONMENT
from downside.risk import CVaR, Exponential, Utility
from downside.train import QRDQN, QRSRM, fused
from downside.train.program import make_program

UPDATES, ROUNDS = 10, 7
SCORINGS = ("double sum, N knots", "lookup, N knots", "one knot (CVaR)", "mean (QR-DQN)")


class DoubleSum(Utility):
    """h as Algorithm 2 writes it: a sum over its knots for each of the quantiles."""

    def __init__(self, same: Utility):
        super().__init__(same.knots, same.drops, linear=same.linear, offset=same.offset)

    def expectation(self, values: Any, weights: Any = None) -> Any:
        """E[h(Z)] over the last axis."""
        assert weights is None
        falls = jnp.minimum(values[..., None] - self.knots, 0.0) * self.drops
        return self.offset + self.linear * values.mean(axis=-1) + falls.sum(axis=-1).mean(axis=-1)


def measured(path: Path, counts: Sequence[int], *, quick: bool) -> list[Row]:
    """Milliseconds of an update for each scoring and number of quantiles; a file is kept."""
    rows = read_rows(path)
    updates, rounds = (1, 1) if quick else (UPDATES, ROUNDS)
    for count in counts:
        if select(rows, quantiles=count):
            continue
        functions = {name: update(name, count, updates) for name in SCORINGS}
        times: dict[str, list[float]] = {name: [] for name in SCORINGS}
        for _ in range(rounds):
            for name, function in functions.items():
                begin = time.perf_counter()
                jax.block_until_ready(function())
                times[name].append(1e3 * (time.perf_counter() - begin) / updates)
        rows += [
            {"scoring": name, "quantiles": count, "milliseconds": round(float(np.median(own)), 4)}
            for name, own in times.items()
        ]
        write_rows(path, rows)
        write_about(
            path.with_suffix(".json"),
            "downside reproduce quantiles",
            environment=ENVIRONMENT,
            preset="paper",
            updates=updates,
            rounds=rounds,
        )
    return rows


def update(scoring: str, count: int, updates: int) -> Callable[[], Any]:
    """Some updates with this scoring, compiled."""
    kind = QRDQN if scoring.startswith("mean") else QRSRM
    risk = None if kind is QRDQN else "cvar(0.5)"
    agent = kind(ENVIRONMENT, risk=risk, preset="paper", quantiles=count, updates_per_step=updates)
    program = make_program(agent._core, agent.settings, agent._make_trunk, 500_000)
    run = fused.begin(program, agent._algorithm, jax.random.key(0))
    if kind is QRSRM:
        run = eqx.tree_at(lambda one: one.goal, run, Aim(_utility(scoring, count), jnp.zeros(())))
    learn, key = fused.compiled(fused.learn), jax.random.key(2)
    jax.block_until_ready(learn(program, agent._algorithm, run, key)[1])
    return lambda: learn(program, agent._algorithm, run, key)[1]


def _utility(scoring: str, count: int) -> Utility:
    """H as it is in the middle of a run."""
    start = jnp.sort(jax.random.normal(jax.random.key(1), (count,)))
    if scoring.startswith("one knot"):
        return CVaR(0.5).utility(start)
    dense = Exponential(4.0).utility(start)
    return DoubleSum(dense) if scoring.startswith("double") else dense
