"""Deep Hedging's problem in Heston's model on other paths and with another learner, as a check.

    python benchmarks/heston_paths.py                          # our price, from nothing of ours
    python benchmarks/heston_paths.py --substeps 6             # the same, six steps a day
    python benchmarks/heston_paths.py --integral left          # the scheme of the paper
    python benchmarks/heston_paths.py --published --steps 40000
    python benchmarks/heston_paths.py --agent runs/...         # one of ours on these paths

Paths are NumPy's: the variance from its noncentral chi-square distribution, the price by Broadie
and Kaya's formula, with the integral of the variance over a step by the trapezoid or by its left
end. The learner is a plain one: a network for each day that sees the log price and the variance,
without (s, c). With `--published` it is that of Buehler, Gonon, Teichmann and Wood (2019, section
5.1): 2 x 17 units, batch normalisation, positions without bounds, batches of 256, Adam with a rate
of 0.005, and the level of the tail learned as a variable. Prices are those of 400,000 fresh paths.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import downside as ds

REVERSION, LONG, VOL, CORRELATION, START = 1.0, 0.04, 2.0, -0.7, 0.04
MATURITY, DAYS, STRIKE, EXPECTED = 30 / 365, 30, 100.0, 1.692
SWAPS = 1000.0
"""Swaps in a unit of position, without `--published`."""


def paths(seed, count, integral, substeps):
    """Variance, price and swap at each date."""
    random = np.random.default_rng(seed)
    step = MATURITY / DAYS / substeps
    scale = VOL**2 * -np.expm1(-REVERSION * step) / (4 * REVERSION)
    freedom, decay = 4 * REVERSION * LONG / VOL**2, np.exp(-REVERSION * step)
    variance, log_price = np.full(count, START), np.full(count, np.log(STRIKE))
    accrued, dates = np.zeros(count), []

    def now(left):
        expected = (variance - LONG) / REVERSION * -np.expm1(-REVERSION * left) + LONG * left
        return variance, np.exp(log_price), accrued + expected

    dates.append(now(MATURITY))
    for day in range(DAYS):
        for _ in range(substeps):
            after = scale * random.noncentral_chisquare(freedom, variance * decay / scale)
            share = variance if integral == "left" else 0.5 * (variance + after)
            moved = after - variance + REVERSION * step * (share - LONG)
            noise = np.sqrt((1 - CORRELATION**2) * step * share) * random.standard_normal(count)
            log_price = log_price + CORRELATION / VOL * moved - 0.5 * step * share + noise
            variance, accrued = after, accrued + step * share
        dates.append(now(MATURITY * (1 - (day + 1) / DAYS)))
    return [np.stack(series) for series in zip(*dates, strict=True)]


def samples(options, seed, count):
    """What a network sees each day, the changes of both prices, and the payoff."""
    variance, price, swap = paths(seed, count, options.integral, options.substeps)
    if options.published:
        inputs, unit = (np.log(price), variance), 1.0
    else:
        inputs, unit = (np.log(price / STRIKE) / 0.057, np.sqrt(variance / LONG)), SWAPS
    changes = np.stack([np.diff(price, axis=0), unit * np.diff(swap, axis=0)], axis=-1)
    payoff = np.maximum(price[-1] - STRIKE, 0.0)
    seen = np.stack([series[:-1] for series in inputs], axis=-1)
    return [jnp.asarray(array, jnp.float32) for array in (seen, changes, payoff)]


def fresh(key, width, bold):
    """Weights of a network for each day."""
    keys = jax.random.split(key, 3)

    def layer(key, inputs, outputs):
        bound = np.sqrt(6 / (inputs + outputs))
        shape = (DAYS, inputs, outputs)
        return jax.random.uniform(key, shape, minval=-bound, maxval=bound)

    zeros, ones = jnp.zeros((DAYS, 1, width)), jnp.ones((DAYS, 1, width))
    return {
        "layers": [layer(keys[0], 2, width), layer(keys[1], width, width)],
        "biases": [zeros, zeros],
        "gains": [ones, ones],
        "head": layer(keys[2], width, 2) * bold,
        "head_bias": jnp.zeros((DAYS, 1, 2)),
        "level": jnp.zeros(()),
    }


def losses(weights, data, options, moments=None):
    """Payoff less what the hedge earns, on each path; and the moments that normalised it."""
    seen, changes, payoff = data
    used = []
    for index in range(2):
        seen = seen @ weights["layers"][index]
        if options.published:
            batch = (seen.mean(axis=1, keepdims=True), seen.var(axis=1, keepdims=True))
            mean, variance = batch if moments is None else moments[index]
            seen = weights["gains"][index] * (seen - mean) / jnp.sqrt(variance + 1e-3)
            used.append((mean, variance))
        seen = jax.nn.relu(seen + weights["biases"][index])
    positions = seen @ weights["head"] + weights["head_bias"]
    if not options.published:  # the bounds of downside/Hedging-v0
        positions = jnp.array([0.5, 0.0]) + jnp.array([1.5, 5.0]) * jnp.tanh(positions)
    return payoff - (positions * changes).sum(axis=(0, 2)), used


def objective(weights, data, options):
    """The mean of the worst share of the losses."""
    lost, share = losses(weights, data, options)[0] - EXPECTED, options.share
    if options.published:
        return weights["level"] + jnp.maximum(lost - weights["level"], 0.0).mean() / share
    return jnp.sort(lost)[-max(1, round(share * lost.shape[0])) :].mean()


def replay(agent, seed, count, options):
    """The losses of an agent of downside/Hedging-v0 on such paths."""
    env = agent.jax_env
    variance, price, swap = paths(seed, count, options.integral, options.substeps)
    length, positions, earned = np.sqrt(LONG * MATURITY), np.zeros((count, 2)), np.zeros(count)
    for day in range(DAYS):
        seen = [
            np.log(price[day] / STRIKE) / length,
            np.full(count, day / DAYS),
            positions[:, 0],
            np.sqrt(variance[day] / LONG),
            swap[day] / (LONG * MATURITY),
            positions[:, 1] / env.max_swaps,
            *(earned, np.ones(count)),  # s and c
        ]
        positions, _ = agent.predict(np.stack(seen, axis=1).astype(np.float32))
        moved = np.stack([price[day + 1] - price[day], swap[day + 1] - swap[day]], axis=1)
        earned = earned + (positions * moved).sum(axis=1)
    return np.maximum(price[-1] - STRIKE, 0.0) - earned


def report(lost, what):
    """Prints the prices of these losses."""
    lost = np.sort(lost)[::-1]
    prices = [lost[: round(share * len(lost))].mean() for share in (0.5, 0.01)]
    excess = np.maximum(lost - EXPECTED, 0.0).mean()
    print(
        f"{what}: cvar(0.5) {prices[0]:.3f}, cvar(0.01) {prices[1]:.3f}, mean {lost.mean():.3f}, "
        f"mean excess {excess:.3f}",
        flush=True,
    )


def main():
    """Trains or replays, and prints prices by both measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--integral", choices=("trapezoid", "left"), default="trapezoid")
    parser.add_argument("--substeps", type=int, default=1, help="of a day")
    parser.add_argument("--published", action="store_true")
    parser.add_argument("--share", type=float, default=0.01, help="the worst share of the paths")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--pool", type=int, default=300_000, help="paths to learn from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--agent", help="a run folder of PG-SRM in this problem, to be replayed")
    options = parser.parse_args()
    begin = time.process_time()
    if options.agent:
        agent = ds.load(options.agent)
        lost = [replay(agent, 5000 + part, 50_000, options) for part in range(8)]
        report(np.concatenate(lost), options.agent)
        return
    data = samples(options, 1000 + options.seed, options.pool)
    key, every = jax.random.key(options.seed), max(1, options.steps // 4)
    if options.published:
        width, batch, optimiser = 17, 256, optax.adam(0.005)
    else:
        width, batch = 32, 4096
        falling = optax.cosine_decay_schedule(0.01, options.steps, 0.01)
        optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(falling))
    weights = fresh(key, width, float(options.published))
    moments = optimiser.init(weights)

    @jax.jit
    def train(weights, moments, keys, data):
        def step(carry, key):
            weights, moments = carry
            rows = jax.random.randint(key, (batch,), 0, options.pool)
            seen, changes, payoff = data
            chosen = (seen[:, rows], changes[:, rows], payoff[rows])
            gradient = jax.grad(objective)(weights, chosen, options)
            change, moments = optimiser.update(gradient, moments, weights)
            return (optax.apply_updates(weights, change), moments), None

        return jax.lax.scan(step, (weights, moments), keys)[0]

    test = [samples(options, 5000 + part, 50_000) for part in range(8)]
    for done in range(every, options.steps + 1, every):
        keys = jax.random.split(jax.random.fold_in(key, done), every)
        weights, moments = train(weights, moments, keys, data)
        few = [array[..., :50_000, :] if array.ndim == 3 else array[:50_000] for array in data]
        used = losses(weights, few, options)[1]
        lost = [np.asarray(losses(weights, part, options, used)[0]) for part in test]
        report(np.concatenate(lost), f"{done} steps, {time.process_time() - begin:.0f} s")


if __name__ == "__main__":
    main()
