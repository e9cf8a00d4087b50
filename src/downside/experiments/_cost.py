"""What an update costs against the number of quantiles: our scoring, and the plain double sum.

The update of the preset `paper` (batch 256, 21 actions, three layers of 128, Adam), written out
below, with four ways to score actions: the double sum of Algorithm 2 over N knots and N quantiles,
the same h as a piecewise-linear function, h of a single CVaR, and the mean (QR-DQN). Compiled, many
updates in one program, timed in turns; the median counts.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from downside import ops
from downside.experiments._rows import Row, add_rows, read_rows, select
from downside.experiments.optimum import ENVIRONMENT
from downside.risk import CVaR, Exponential, Utility

UPDATES, ROUNDS = 10, 7
BATCH, ACTIONS, INPUTS = 256, 21, 5
GAMMA, KAPPA, LEARNING_RATE = 0.99, 1.0, 2.5e-4
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
    """Milliseconds of an update for each scoring and number of quantiles; written rows are kept."""
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
        new = [
            {"scoring": name, "quantiles": count, "milliseconds": round(float(np.median(taken)), 4)}
            for name, taken in times.items()
        ]
        facts: Row = {
            "environment": ENVIRONMENT,
            "preset": "paper",
            "updates": updates,
            "rounds": rounds,
        }
        add_rows(path, rows, new, ("scoring", "quantiles"), "downside reproduce quantiles", facts)
    return rows


class _Batch(eqx.Module):
    """Transitions; the last two inputs are (s, c)."""

    observation: Any
    action: Any
    reward: Any
    next_observation: Any


def update(scoring: str, count: int, updates: int) -> Callable[[], Any]:
    """Some updates with this scoring, compiled."""
    utility = None if scoring.startswith("mean") else _utility(scoring, count)
    keys = jax.random.split(jax.random.key(0), 5)
    network = eqx.nn.MLP(INPUTS, ACTIONS * count, 128, 3, activation=jax.nn.relu, key=keys[0])
    optimiser = optax.adam(LEARNING_RATE)
    state = optimiser.init(eqx.filter(network, eqx.is_array))
    batch = _Batch(
        jax.random.normal(keys[1], (BATCH, INPUTS)),
        jax.random.randint(keys[2], (BATCH,), 0, ACTIONS),
        jax.random.normal(keys[3], (BATCH,)),
        jax.random.normal(keys[4], (BATCH, INPUTS)),
    )

    def loss(network: Any, target: Any, transition: _Batch) -> Any:
        following = target(transition.next_observation).reshape(ACTIONS, count)
        if utility is None:
            scores = ops.mean_score(following)
        else:
            accumulated, discount_so_far = transition.next_observation[-2:]
            scores = ops.utility_score(following, utility, accumulated, discount_so_far)
        targets = transition.reward + GAMMA * following[scores.argmax()]
        quantiles = network(transition.observation).reshape(ACTIONS, count)[transition.action]
        return ops.quantile_huber_loss(quantiles, jax.lax.stop_gradient(targets), kappa=KAPPA)

    def mean_loss(network: Any, target: Any) -> Any:
        return jax.vmap(lambda transition: loss(network, target, transition))(batch).mean()

    arrays, static = eqx.partition(network, eqx.is_array)

    @jax.jit
    def learn(arrays: Any, state: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            arrays, state = carry
            online = eqx.combine(arrays, static)
            gradient = eqx.filter_grad(mean_loss)(online, network)
            change, state = optimiser.update(gradient, state)
            return (eqx.apply_updates(arrays, change), state), None

        return jax.lax.scan(step, (arrays, state), length=updates)[0]

    jax.block_until_ready(learn(arrays, state))
    return lambda: learn(arrays, state)


def _utility(scoring: str, count: int) -> Utility:
    """A utility as in the middle of a run."""
    start = jnp.sort(jax.random.normal(jax.random.key(1), (count,)))
    if scoring.startswith("one knot"):
        return CVaR(0.5).utility(start)
    dense = Exponential(4.0).utility(start)
    return DoubleSum(dense) if scoring.startswith("double") else dense
