"""How much cheaper h is as a piecewise-linear function than as the paper's double sum.

    python benchmarks/utility.py

Prints ratios, taken in turns in one run, because absolute times on a shared machine mean little.
"""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from downside import CVaR, Exponential

STATES, ACTIONS = 256, 21


def double_sum(theta: jax.Array, s: jax.Array, c: jax.Array, knots: jax.Array, drops: jax.Array):
    """Algorithm 2: Q(x, s, c, a) = 1/N sum_ij mu_i (s + c theta_j - knot_i)^-, plainly written."""
    z = s[:, None, None] + c[:, None, None] * theta
    falls = jnp.minimum(z[..., None] - knots, 0.0) * drops
    return falls.sum(axis=-1).mean(axis=-1)


def double_sum_mapped(theta, s, c, knots, drops):
    """The same, written for one action and mapped: how XLA fuses it best."""

    def one(quantiles, s, c):
        return jnp.mean(jnp.sum(drops * jnp.minimum(s + c * quantiles[:, None] - knots, 0.0), -1))

    return jax.vmap(lambda rows, s, c: jax.vmap(lambda row: one(row, s, c))(rows))(theta, s, c)


def ours(theta, s, c, utility):
    """The same score through the utility, which an agent builds anew once per outer step."""
    return utility.expectation(s[:, None, None] + c[:, None, None] * theta)


def fastest(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The shortest time of each, in milliseconds, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        jax.block_until_ready(function())  # compile
    for _ in range(rounds):
        for name, function in functions.items():
            begin = time.perf_counter()
            jax.block_until_ready(function())
            times[name].append(1e3 * (time.perf_counter() - begin))
    return {name: min(measured) for name, measured in times.items()}


def measure(count: int, rounds: int) -> dict[str, float]:
    """Times for N quantiles: the double sums, a dense spectrum, one knot, and building h."""
    theta = jnp.sort(jax.random.normal(jax.random.key(0), (STATES, ACTIONS, count)), axis=-1)
    s, c = jnp.linspace(-1.0, 1.0, STATES), jnp.full(STATES, 0.9)
    start = jnp.sort(jax.random.normal(jax.random.key(1), (count,)))
    dense, single = Exponential(4.0), CVaR(0.5)
    drops = jnp.asarray(-np.diff(dense.spectrum(np.arange(count + 1) / count)), jnp.float32)

    def call(function: Callable, *inputs: object) -> Callable[[], object]:
        compiled = jax.jit(function)
        return lambda: compiled(*inputs)

    mine = {
        "dense spectrum": call(ours, theta, s, c, dense.utility(start)),
        "one knot": call(ours, theta, s, c, single.utility(start)),
        "building h (dense)": call(dense.utility, start),
    }
    theirs = {
        "double sum": call(double_sum, theta, s, c, start, drops),
        "double sum, mapped": call(double_sum_mapped, theta, s, c, start, drops),
    }
    if count <= 100:
        return fastest(theirs | mine, rounds)
    # A large double sum moves gigabytes and would disturb what is timed next to it.
    return fastest(theirs, 2) | fastest(mine, rounds)


def main() -> None:
    """Prints the table and the ratios."""
    small, large = measure(50, rounds=100), measure(400, rounds=30)
    print(f"h on {STATES} states x {ACTIONS} actions x N quantiles, N knots (best times, ms)")
    print(f"{'':22}{'N = 50':>10}{'N = 400':>10}{'growth':>9}")
    for name in small:
        growth = large[name] / small[name]
        print(f"{name:22}{small[name]:10.2f}{large[name]:10.2f}{growth:8.1f}x")
    best = min(small["double sum"], small["double sum, mapped"])
    growth = large["dense spectrum"] / small["dense spectrum"]
    print(f"\nAgainst the faster of the two double sums at N = 50 ({best:.2f} ms):")
    print(f"  dense spectrum, 50 knots: {best / small['dense spectrum']:6.1f}x faster (floor 3x)")
    print(f"  one knot:                 {best / small['one knot']:6.1f}x faster (floor 20x)")
    print(
        f"  N = 50 -> 400 costs       {growth:6.1f}x more   (limit 12x; operations of the sum: 64x)"
    )


if __name__ == "__main__":
    main()
