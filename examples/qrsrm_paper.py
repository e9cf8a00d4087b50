"""QR-SRM as the paper describes it, in one file: Algorithms 1 and 2, and nothing beyond them.

    python examples/qrsrm_paper.py --risk "0.5*mean + 0.5*cvar(0.2)" --seed 0

JAX, Equinox and Optax, our trading environment and our risk measures. The library's
`ds.QRSRM(env, risk=..., preset="paper")` does the same; `tests/test_examples.py` shows that one
update and one outer step are equal to the library's.
"""

import argparse
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

import downside as ds
from downside.envs import MeanReversion

# What the paper states, completed by the customs of the code it builds on (CleanRL's QR-DQN).
GAMMA, QUANTILES, WIDTH, BATCH = 0.99, 50, 128, 256
LEARNING_RATE, KAPPA, ENVS, BUFFER = 2.5e-4, 1.0, 10, 100_000
WARMUP, TIMESTEPS = 10_000, 500_000
TARGET_INTERVAL, OUTER_INTERVAL = 500, 1_000  # in updates: one after each step of all environments
EXPLORATION_FINAL, EXPLORATION_FRACTION, RISK_NEUTRAL_FRACTION = 0.05, 0.5, 0.1

TAU = (jnp.arange(QUANTILES) + 0.5) / QUANTILES  # the middle ranks of the N quantiles
ADAM = optax.adam(LEARNING_RATE)


class Network(eqx.Module):
    """(x, s, c) -> the N quantiles of every action's return: three hidden layers of 128."""

    layers: list[eqx.nn.Linear]
    num_actions: int = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], size: int, num_actions: int):
        sizes = [size, WIDTH, WIDTH, WIDTH, num_actions * QUANTILES]
        keys = jax.random.split(key, 4)
        self.layers = [eqx.nn.Linear(sizes[i], sizes[i + 1], key=keys[i]) for i in range(4)]
        self.num_actions = num_actions

    def __call__(self, x: Float[Array, " d"], s: Array, c: Array) -> Float[Array, "A N"]:
        """The quantiles for one observation."""
        features = jnp.concatenate([x, jnp.stack([s, c])])
        for layer in self.layers[:-1]:
            features = jax.nn.relu(layer(features))
        return self.layers[-1](features).reshape(self.num_actions, QUANTILES)


class Transition(NamedTuple):
    """(x, s, c, a, r, x'), and whether the episode ended with it."""

    x: Array
    s: Array
    c: Array
    action: Array
    reward: Array
    next_x: Array
    done: Array


class State(NamedTuple):
    """Everything that changes in a run."""

    network: Network
    target: Network
    optimiser: Any
    h: Any  # the utility: a concave, piecewise-linear function of the return
    env: Any  # the states of all environments, and the (s, c) of each
    s: Array
    c: Array
    buffer: Transition
    added: Int[Array, ""]
    updates: Int[Array, ""]
    key: Key[Array, ""]


# --- Algorithm 2: the sample loss of the inner optimisation ---------------------------------------


def greedy(network: Network, h: Any, x: Array, s: Array, c: Array) -> Int[Array, ""]:
    """The action with the largest E[h(s + c G(x, s, c, a))]."""
    return jnp.argmax(h(s + c * network(x, s, c)).mean(axis=-1))


def huber_quantile_loss(theta: Float[Array, " N"], targets: Float[Array, " N"]) -> Array:
    """sum_i E_j rho_tau_i(T theta_j - theta_i) (appendix D)."""
    delta = targets[None, :] - theta[:, None]
    huber = jnp.where(
        jnp.abs(delta) <= KAPPA, 0.5 * delta**2, KAPPA * (jnp.abs(delta) - 0.5 * KAPPA)
    )
    weight = jnp.abs(TAU[:, None] - (delta < 0))
    return (weight * huber / KAPPA).mean(axis=1).sum()


def sample_loss(network: Network, target: Network, h: Any, t: Transition) -> Array:
    """The loss of one transition."""
    next_s, next_c = t.s + t.c * t.reward, GAMMA * t.c
    best = greedy(target, h, t.next_x, next_s, next_c)
    after = jnp.where(t.done, 0.0, target(t.next_x, next_s, next_c)[best])
    return huber_quantile_loss(network(t.x, t.s, t.c)[t.action], t.reward + GAMMA * after)


def update(state: State, batch: Transition) -> State:
    """One gradient step, and the target network every TARGET_INTERVAL of them."""

    def loss(network: Network) -> Array:
        return jax.vmap(lambda t: sample_loss(network, state.target, state.h, t))(batch).mean()

    gradient = eqx.filter_grad(loss)(state.network)
    change, optimiser = ADAM.update(gradient, state.optimiser)
    network = eqx.apply_updates(state.network, change)
    updates = state.updates + 1
    copied = jax.tree.map(
        lambda old, new: jnp.where(updates % TARGET_INTERVAL == 0, new, old),
        eqx.filter(state.target, eqx.is_array),
        eqx.filter(network, eqx.is_array),
    )
    target = eqx.combine(copied, state.target)
    return state._replace(network=network, target=target, optimiser=optimiser, updates=updates)


# --- Algorithm 1: the outer step ------------------------------------------------------------------


def outer_step(state: State, risk: ds.AbstractSpectralRisk, x0: Array) -> State:
    """The closed form of h, from the return distribution of the start state."""
    zero, unit = jnp.zeros(()), jnp.ones(())
    quantiles = jnp.sort(state.network(x0, zero, unit), axis=-1)
    values = quantiles @ jnp.asarray(risk.quantile_weights(QUANTILES), quantiles.dtype)
    return state._replace(h=risk.utility(quantiles[jnp.argmax(values)]))


# --- acting and learning --------------------------------------------------------------------------


def act(env: MeanReversion, state: State, exploration: Array, key: Key[Array, ""]) -> State:
    """One step of all environments, into the buffer; those that are done begin anew."""
    choose_key, explore_key, step_key, reset_key = jax.random.split(key, 4)
    x = jax.vmap(env.observe)(state.env)
    best = jax.vmap(functools.partial(greedy, state.network, state.h))(x, state.s, state.c)
    random = jax.random.randint(choose_key, (ENVS,), 0, env.num_actions)
    action = jnp.where(jax.random.uniform(explore_key, (ENVS,)) < exploration, random, best)
    after = jax.vmap(env.step)(jax.random.split(step_key, ENVS), state.env, action)
    done = after.terminated
    new = Transition(x, state.s, state.c, action, after.reward, after.observation, done)
    place = state.added % BUFFER
    buffer = jax.tree.map(
        lambda old, rows: jax.lax.dynamic_update_slice_in_dim(old, rows, place, 0),
        state.buffer,
        new,
    )
    fresh = jax.vmap(env.initial_state)(jax.random.split(reset_key, ENVS))
    env_state = jax.tree.map(lambda a, b: jnp.where(done, a, b), fresh, after.state)
    return state._replace(
        env=env_state,
        s=jnp.where(done, 0.0, state.s + state.c * after.reward),
        c=jnp.where(done, 1.0, GAMMA * state.c),
        buffer=buffer,
        added=state.added + ENVS,
    )


@eqx.filter_jit
def inner_optimisation(env: MeanReversion, state: State, timesteps: int) -> State:
    """OUTER_INTERVAL rounds of acting and updating, with h held fixed."""

    def one_round(arrays: Any, _: None) -> tuple[Any, None]:
        state = eqx.combine(arrays, rest)
        key, act_key, sample_key = jax.random.split(state.key, 3)
        progress = state.updates * ENVS / timesteps
        declined = jnp.clip(progress / EXPLORATION_FRACTION, 0.0, 1.0)
        exploration = 1.0 + declined * (EXPLORATION_FINAL - 1.0)
        state = act(env, state._replace(key=key), exploration, act_key)
        filled = jnp.minimum(state.added, BUFFER)
        index = jax.random.randint(sample_key, (BATCH,), 0, filled)
        state = update(state, jax.tree.map(lambda column: column[index], state.buffer))
        return eqx.filter(state, eqx.is_array), None

    arrays, rest = eqx.partition(state, eqx.is_array)
    arrays, _ = jax.lax.scan(one_round, arrays, None, OUTER_INTERVAL)
    return eqx.combine(arrays, rest)


def first_state(env: MeanReversion, risk: ds.AbstractSpectralRisk, seed: int) -> State:
    """A fresh network; h is the identity, with as many knots as it will have."""
    key, network_key, env_key = jax.random.split(jax.random.key(seed), 3)
    size = env.observation_space.shape[0]
    network = Network(network_key, size + 2, env.num_actions)
    blank = risk.utility(jnp.zeros(QUANTILES))
    flat = jnp.zeros_like(blank.knots)
    h = ds.Utility(flat, flat, linear=jnp.ones(()), offset=jnp.zeros(()))
    rows, column = jnp.zeros((BUFFER, size)), jnp.zeros(BUFFER)
    action, done = jnp.zeros(BUFFER, jnp.int32), jnp.zeros(BUFFER, bool)
    buffer = Transition(rows, column, column, action, column, rows, done)
    states = jax.vmap(env.initial_state)(jax.random.split(env_key, ENVS))
    optimiser = ADAM.init(eqx.filter(network, eqx.is_inexact_array))
    count = jnp.zeros((), jnp.int32)
    s, c = jnp.zeros(ENVS), jnp.ones(ENVS)
    return State(network, network, optimiser, h, states, s, c, buffer, count, count, key)


@eqx.filter_jit
def returns(env: MeanReversion, state: State, episodes: int, key: Key[Array, ""]) -> Array:
    """The discounted returns of the greedy policy in fresh episodes."""

    def episode(key: Key[Array, ""]) -> Array:
        def step(carry: tuple, key: Key[Array, ""]) -> tuple:
            x, s, c = carry
            action = greedy(state.network, state.h, env.observe(x), s, c)
            after = env.step(key, x, action)
            return (after.state, s + c * after.reward, GAMMA * c), None

        start = (env.initial_state(key), jnp.zeros(()), jnp.ones(()))
        return jax.lax.scan(step, start, jax.random.split(key, env.horizon))[0][1]

    return jax.vmap(episode)(jax.random.split(key, episodes))


def train(risk: ds.AbstractSpectralRisk, seed: int = 0, timesteps: int = TIMESTEPS) -> State:
    """Algorithm 1, from the risk-neutral policy. The last policy, with its h, is the result."""
    env = MeanReversion()
    state, step = first_state(env, risk, seed), eqx.filter_jit(act)
    for key in jax.random.split(jax.random.key(seed + 1), WARMUP // ENVS):
        state = step(env, state, jnp.ones(()), key)
    x0 = env.observe(env.initial_state(jax.random.key(0)))
    per_chunk = OUTER_INTERVAL * ENVS
    for chunk in range(timesteps // per_chunk):
        if chunk and chunk * per_chunk >= RISK_NEUTRAL_FRACTION * timesteps:
            state = outer_step(state, risk, x0)  # step 1
        state = inner_optimisation(env, state, timesteps)  # step 2
        if chunk % 10 == 9:
            value = risk(returns(env, state, 10_000, jax.random.key(1)))
            print(f"{(chunk + 1) * per_chunk:>9,} steps  {risk} {value:.3f}")
    return state


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The paper's QR-SRM.")
    parser.add_argument("--risk", default="cvar(0.5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timesteps", type=int, default=TIMESTEPS)
    given = parser.parse_args()
    train(ds.parse(given.risk), given.seed, given.timesteps)
