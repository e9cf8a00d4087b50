import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.agents.chosen import MANY_ACTIONS, chosen_outputs
from downside.agents.networks import MLP, Network


def by_hand(weight, bias, features, actions):
    return jnp.stack(
        [row @ weight[:, a] + bias[a] for row, a in zip(features, actions, strict=True)]
    )


def problem(rows, actions=9, size=3, quantiles=2, seed=0):
    draws = np.random.default_rng(seed)
    weight = draws.normal(size=(size, actions, quantiles)).astype(np.float32)
    bias = draws.normal(size=(actions, quantiles)).astype(np.float32)
    features = draws.normal(size=(rows, size)).astype(np.float32)
    return jnp.asarray(weight), jnp.asarray(bias), jnp.asarray(features)


def test_a_row_gets_the_outputs_of_its_own_action():
    # Two features, two actions, one quantile: 1*3 + 2*5 + 100 = 113 and 10*4 + 20*6 + 200 = 360.
    weight = jnp.array([[[3.0], [4.0]], [[5.0], [6.0]]])
    bias = jnp.array([[100.0], [200.0]])
    features = jnp.array([[1.0, 2.0], [10.0, 20.0]])
    got = chosen_outputs(weight, bias, features, jnp.array([0, 1]))
    np.testing.assert_allclose(got, [[113.0], [360.0]])


@pytest.mark.parametrize(
    "actions",
    [
        [4] * 20,  # all of one action: three blocks
        list(range(9)),  # none alike: a block each
        [8, 0, 8, 8, 0, 8, 8, 8, 8, 8, 8, 3],  # nine and two and one
        [8] * 8 + [0] * 8,  # blocks that are just full
        [5],
        np.random.default_rng(1).integers(0, 9, 100).tolist(),
    ],
)
def test_outputs_and_gradients_are_those_of_an_index(actions):
    weight, bias, features = problem(len(actions))
    actions = jnp.array(actions)
    np.testing.assert_allclose(
        chosen_outputs(weight, bias, features, actions),
        by_hand(weight, bias, features, actions),
        rtol=1e-5,
        atol=1e-6,
    )

    def gradients(outputs):
        def loss(*given):
            return jnp.sin(outputs(*given, actions)).sum()

        return jax.grad(loss, argnums=(0, 1, 2))(weight, bias, features)

    for got, expected in zip(gradients(chosen_outputs), gradients(by_hand), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_it_can_be_mapped_over():
    parts = [problem(12, seed=seed) for seed in (0, 1)]
    stacked = [jnp.stack(part) for part in zip(*parts, strict=True)]
    actions = jnp.array(np.random.default_rng(0).integers(0, 9, (2, 12)))
    got = jax.vmap(chosen_outputs)(*stacked, actions)
    for i, part in enumerate(parts):
        np.testing.assert_allclose(got[i], by_hand(*part, actions[i]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [2, MANY_ACTIONS, MANY_ACTIONS + 5])
@pytest.mark.parametrize("some", [1, 2])
def test_a_batch_is_what_its_observations_give_one_by_one(count, some):
    network = Network(MLP(jax.random.key(0), 3, (4,), "silu"), 3, (count, 2))
    weight = jax.random.normal(jax.random.key(1), network.head.weight.shape)  # it starts at 0
    network = eqx.tree_at(lambda one: one.head.weight, network, weight)
    seen = jax.random.normal(jax.random.key(2), (10, 3))
    actions = jax.random.randint(jax.random.key(3), (10, some), 0, count)
    one_by_one = jnp.stack([network(x, a) for x, a in zip(seen, actions, strict=True)])
    np.testing.assert_allclose(network.batch(seen, actions), one_by_one, rtol=1e-5, atol=1e-6)
