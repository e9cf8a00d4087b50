"""The example that is the paper's algorithm in one file does what the library does with
preset="paper"."""

import runpy
import types
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.envs import Memory
from downside.train.backends.outer import learned_outer, start_states
from downside.train.backends.replay import Transition, branch_of

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def example():
    return types.SimpleNamespace(**runpy.run_path(str(EXAMPLES / "qrsrm_paper.py")))


@pytest.fixture(scope="module")
def agent():
    agent = ds.QRSRM(
        "downside/MeanReversion-v0", risk="0.5*mean + 0.5*cvar(0.2)", preset="paper", seed=1
    )
    agent._driver.plan(500_000)
    return agent


@pytest.fixture(scope="module")
def library(agent):
    """The learner and its state, with weights that are no longer those of the start."""
    learner = agent._driver.spec.learner(agent._driver.algorithm)
    state = learner.init(jax.random.key(3), agent.jax_env.observation_space.shape[0] + 2, None)
    keys = iter(jax.random.split(jax.random.key(4), 100))

    def perturb(networks):
        return jax.tree.map(
            lambda leaf: leaf + 0.05 * jax.random.normal(next(keys), leaf.shape),
            networks,
            is_leaf=eqx.is_array,
        )

    parts = [eqx.partition(n, eqx.is_inexact_array) for n in (state.networks, state.targets)]
    networks, targets = (eqx.combine(perturb(arrays), rest) for arrays, rest in parts)
    # What is not learned stays as it was.
    networks, targets = (
        eqx.tree_at(lambda n: n.quantiles.scale, n, state.networks.quantiles.scale)
        for n in (networks, targets)
    )
    return learner, eqx.tree_at(lambda s: (s.networks, s.targets), state, (networks, targets))


def as_example(example, networks):
    """The library's network in the form of the example's: weights the other way round."""
    network = networks.quantiles
    pairs = [(layer.weight, layer.bias) for layer in network.trunk.layers]
    pairs.append((network.head.weight, network.head.bias))
    out = example.Network(jax.random.key(0), pairs[0][0].shape[0], network.shape[0])
    return eqx.tree_at(
        lambda n: [array for layer in n.layers for array in (layer.weight, layer.bias)],
        out,
        [array for weight, bias in pairs for array in (weight.T, bias)],
    )


@pytest.fixture(scope="module")
def h(agent):
    """A utility in the middle of a run."""
    start = jnp.linspace(-1.0, 2.0, 50)
    algorithm = agent._driver.algorithm
    outer = algorithm.initial_outer(start)
    return algorithm.learned_outer_step(outer, start, lambda _: None, 1.0)


@pytest.fixture(scope="module")
def batch(example):
    size, count = 3, 32
    keys = jax.random.split(jax.random.key(5), 6)
    s, reward = (jax.random.normal(key, (count,)) for key in keys[:2])
    return example.Transition(
        jax.random.normal(keys[2], (count, size)),
        s,
        0.99 ** jax.random.randint(keys[3], (count,), 0, 10),
        jax.random.randint(keys[4], (count,), 0, 21),
        reward,
        jax.random.normal(keys[5], (count, size)),
        jnp.arange(count) % 5 == 0,
    )


def test_the_file_is_short():
    assert len((EXAMPLES / "qrsrm_paper.py").read_text().splitlines()) <= 250


@pytest.mark.slow
def test_one_update_is_the_library_s(example, agent, library, h, batch):
    learner, state = library
    transitions = jax.vmap(
        lambda t: branch_of(
            t.x,
            Transition(None, Memory(t.s, t.c), t.action, t.reward, None, t.done, jnp.asarray(0.99)),
            t.next_x,
            jnp.ones(21, bool),
        )
    )(batch)
    expected, _ = learner.update(state, transitions, h, jnp.ones(()))
    before = as_example(example, state.networks)
    optimiser = example.ADAM.init(eqx.filter(before, eqx.is_inexact_array))
    blank = example.first_state(agent.jax_env, agent.risk, 0)
    small = blank._replace(
        network=before,
        target=as_example(example, state.targets),
        optimiser=optimiser,
        h=agent._driver.algorithm.utility(h),
    )
    updated = example.update(small, batch)
    wanted = as_example(example, expected.networks)
    moved = 0.0
    for new, reference, old in zip(
        jax.tree.leaves(eqx.filter(updated.network, eqx.is_array)),
        jax.tree.leaves(eqx.filter(wanted, eqx.is_array)),
        jax.tree.leaves(eqx.filter(before, eqx.is_array)),
        strict=True,
    ):
        np.testing.assert_allclose(new, reference, atol=2e-6)
        moved = max(moved, float(jnp.abs(new - old).max()))
    assert moved == pytest.approx(2.5e-4, rel=0.01)  # Adam's first step


@pytest.mark.slow
def test_one_outer_step_is_the_library_s(example, agent, library, h):
    learner, state = library
    driver = agent._driver
    starts = start_states(driver.spec, jax.random.key(0))
    expected = learned_outer(learner, state.networks, h, jnp.ones((), bool), starts, 1.0)
    env = agent.jax_env
    blank = example.first_state(env, agent.risk, 0)
    x0 = env.observe(env.initial_state(jax.random.key(0)))
    after = example.outer_step(
        blank._replace(network=as_example(example, state.networks)), agent.risk, x0
    )
    z = jnp.linspace(-5.0, 5.0, 101)
    reference = driver.algorithm.utility(expected)(z)
    np.testing.assert_allclose(after.h(z), reference, rtol=1e-5, atol=1e-5)
    assert float(jnp.abs(after.h(z) - driver.algorithm.utility(h)(z)).max()) > 0.01
