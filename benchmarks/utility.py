"""How much cheaper h is as a piecewise-linear function than as the paper's double sum.

    python benchmarks/utility.py

Scores are computed many times inside one compiled loop, as in training. Prints ratios, taken in
turns in one run, because absolute times on a shared machine mean little.
"""

import time
from collections.abc import Callable, Mapping

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
    """The same, written for one action and mapped."""

    def score(quantiles, s, c):
        return jnp.mean(jnp.sum(drops * jnp.minimum(s + c * quantiles[:, None] - knots, 0.0), -1))

    return jax.vmap(lambda rows, s, c: jax.vmap(lambda row: score(row, s, c))(rows))(theta, s, c)


def ours(theta, s, c, utility):
    """The same score through the utility, which an agent builds anew once per outer step."""
    return utility.expectation(s[:, None, None] + c[:, None, None] * theta)


def fastest(functions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
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


def measure(count: int, repeats: int, rounds: int) -> dict[str, float]:
    """Milliseconds per evaluation with `count` quantiles and as many knots (or one)."""
    theta = jnp.sort(jax.random.normal(jax.random.key(0), (STATES, ACTIONS, count)), axis=-1)
    accumulated = jax.random.normal(jax.random.key(2), (repeats, STATES))
    c = jnp.full(STATES, 0.9)
    start = jnp.sort(jax.random.normal(jax.random.key(1), (count,)))
    dense, single = Exponential(4.0).utility(start), CVaR(0.5).utility(start)

    def loop(score: Callable, *inputs: object) -> Callable[[], jax.Array]:
        compiled = jax.jit(
            lambda every, *inputs: jax.lax.map(lambda s: score(theta, s, c, *inputs), every)
        )
        return lambda: compiled(accumulated, *inputs)

    mine = {"dense spectrum": loop(ours, dense), "one knot": loop(ours, single)}
    theirs = {
        "double sum": loop(double_sum, dense.knots, dense.drops),
        "double sum, mapped": loop(double_sum_mapped, dense.knots, dense.drops),
    }
    line = dense.offset + dense.linear * (accumulated[..., None] + 0.9 * theta.mean(axis=-1))
    np.testing.assert_allclose(mine["dense spectrum"](), theirs["double sum"]() + line, atol=1e-4)
    # A large double sum moves gigabytes and would disturb what is timed next to it.
    times = fastest(theirs | mine, rounds) if count <= 100 else fastest(theirs, 1)
    if count > 100:
        times |= fastest(mine, rounds)
    return {name: total / repeats for name, total in times.items()}


def main() -> None:
    """Prints the table and the ratios."""
    small, large = measure(50, repeats=16, rounds=30), measure(400, repeats=2, rounds=20)
    print(f"h on {STATES} states x {ACTIONS} actions x N quantiles, N knots (best times, ms)")
    print(f"{'':22}{'N = 50':>10}{'N = 400':>10}{'growth':>9}")
    for name in small:
        growth = large[name] / small[name]
        print(f"{name:22}{small[name]:10.3f}{large[name]:10.2f}{growth:8.1f}x")
    best = min(small["double sum"], small["double sum, mapped"])
    growth = large["dense spectrum"] / small["dense spectrum"]
    print(f"\nAgainst the faster of the two double sums at N = 50 ({best:.2f} ms):")
    print(f"  dense spectrum, 50 knots: {best / small['dense spectrum']:6.1f}x faster (floor 3x)")
    print(f"  one knot:                 {best / small['one knot']:6.1f}x faster (floor 20x)")
    print(f"  N = 50 -> 400 costs       {growth:6.1f}x more   (at most 12x; the sum's terms: 64x)")


if __name__ == "__main__":
    main()
