"""Backward recursion of mean-reversion trading, compiled."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from downside.exact.trading_grid import TradingGrid, TradingPolicy, cell_of
from downside.risk import Utility

_TERMINAL_CELLS = 8192
_FORBIDDEN = -1e30
"""The value of what is not allowed: finite, so that lines between two of them are, too."""


@partial(jax.jit, static_argnums=2)
def backward(
    grid: TradingGrid, utility: Utility, padding: int
) -> tuple[Float[Array, ""], TradingPolicy]:
    """The value of the best policy for `utility` at the start, and that policy.

    `padding` is how many wealths a trade can shift by, at the most.
    """
    gaps = (grid.prices - grid.decay * grid.prices[:, None]) / grid.deviation
    kernel = jnp.exp(-0.5 * gaps**2)
    kernel = kernel / kernel.sum(axis=1, keepdims=True)

    last = _before_last_move(grid, utility)
    times = jnp.arange(grid.env.periods)

    slopes = jnp.stack([utility.linear + utility.drops.sum(), utility.linear])

    def step(after_trade: Array, time: Array):
        before_trade = _best_trade(grid, after_trade, slopes, time, padding)
        return jnp.einsum("ij,jqw->iqw", kernel, before_trade), after_trade

    # Time 0 is worked out like the others and dropped: stacking the outputs then copies nothing.
    _, after_trade = jax.lax.scan(step, last, times, reverse=True)
    policy = TradingPolicy(grid, after_trade, slopes)
    start = grid.env.initial_state(jax.random.key(0))
    return jnp.max(policy.scores(start, jnp.zeros(()))), policy


def _before_last_move(grid: TradingGrid, utility: Utility) -> Float[Array, "P Q W"]:
    r"""$\mathbb{E}[h(w + \gamma^{T-1}(q (P_T - m) - \psi q^2)) \mid P]$ in closed form.

    The argument is normal with a mean that depends on everything and a deviation that depends on
    |q| alone, so a table over (q, mean) serves for all prices and wealths.
    """
    env, final = grid.env, grid.final_discount
    pull = grid.expected(env.periods) + grid.decay * grid.prices - env.mean
    q = grid.inventories
    worth = final * (q * pull[:, None] - env.terminal_penalty * q**2)  # (P, Q)
    wealth = grid.wealth_start + grid.wealth_step * jnp.arange(grid.wealth_count)
    low, high = worth.min() + wealth[0], worth.max() + wealth[-1]
    step = (high - low) / (_TERMINAL_CELLS - 2)
    if utility.knots.shape[0]:  # without inventory there is no noise: a cell must end at the bend
        sharpest = utility.knots[jnp.argmax(utility.drops)]
        low = sharpest - jnp.ceil((sharpest - low) / step) * step
    means = low + step * jnp.arange(_TERMINAL_CELLS)
    deviations = final * jnp.abs(q) * grid.deviation

    def expected(deviation: Array) -> Array:
        scale = jnp.maximum(deviation, 1e-6)

        def add(total: Array, bend: tuple[Array, Array]):
            knot, drop = bend
            z = (knot - means) / scale
            return total - drop * scale * (z * norm.cdf(z) + norm.pdf(z)), None

        straight = utility.offset + utility.linear * means
        total, _ = jax.lax.scan(add, straight, (utility.knots, utility.drops))
        return total

    table = jax.lax.map(expected, deviations)  # (Q, cells)

    def at_price(row: Array) -> Array:
        cell, place = cell_of(row[:, None] + wealth, low, step, _TERMINAL_CELLS)
        left = jnp.take_along_axis(table, cell, axis=1)
        right = jnp.take_along_axis(table, cell + 1, axis=1)
        return (1 - place) * left + place * right

    return jax.lax.map(at_price, worth)


def _between(before: Array, left: Array, right: Array, after: Array, place: Array) -> Array:
    """The value at `place` between `left` and `right`: the cubic through all four, held in check.

    A concave function lies above its chord and below the lines that its neighbours continue. Where
    it bends sharply a cubic overshoots both, and a maximum over trades would pick that up.
    """
    back, rest, far = place + 1, place - 1, place - 2
    cubic = (
        -place * rest * far / 6 * before
        + back * rest * far / 2 * left
        - back * place * far / 2 * right
        + back * place * rest / 6 * after
    )
    chord = left + place * (right - left)
    lines = jnp.minimum(left + place * (left - before), right + rest * (after - right))
    return jnp.clip(cubic, chord, jnp.maximum(lines, chord))


def _best_trade(
    grid: TradingGrid,
    after_trade: Float[Array, "P Q W"],
    slopes: Float[Array, " 2"],
    time: Array,
    padding: int,
) -> Float[Array, "P Q W"]:
    count, wide = grid.inventories.shape[0], grid.wealth_count
    shifts = grid.shift(grid.expected(time) + grid.prices, time) / grid.wealth_step
    whole = jnp.floor(shifts)
    half = (grid.env.num_trades - 1) * grid.stride // 2
    allowed = jnp.where(grid.allowed(grid.inventories), 0.0, _FORBIDDEN)[:, None]

    def at_price(row: tuple[Array, Array, Array]) -> Array:
        values, whole, part = row
        away = grid.wealth_step * jnp.arange(1, padding + 1)
        lower = values[:, :1] - slopes[0] * away[::-1]
        upper = values[:, -1:] + slopes[1] * away
        table = jnp.concatenate([lower, values, upper], axis=1) + allowed
        table = jnp.pad(table, ((half, half), (0, 0)), constant_values=_FORBIDDEN)

        best = jnp.full((count, wide), _FORBIDDEN)
        for action in range(grid.env.num_trades):  # unrolled: one pass over memory for all trades
            first_row, column = action * grid.stride, padding + whole[action]
            before, left, right, after = (
                jax.lax.dynamic_slice(table, (first_row, column + offset), (count, wide))
                for offset in (-1, 0, 1, 2)
            )
            value = _between(before, left, right, after, part[action])
            best = jnp.maximum(best, value)
        return best

    return jax.lax.map(at_price, (after_trade, whole.astype(jnp.int32), shifts - whole))
