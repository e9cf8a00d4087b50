import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from downside.ops import huber, quantile_huber_loss

QUANTILES = jnp.array([0.0, 2.0])
TARGETS = jnp.array([-1.0, 0.25, 4.0])


def pinball(quantiles, targets):
    """The quantile regression loss as a plain double loop."""
    total = 0.0
    for i, theta in enumerate(quantiles):
        level = (2 * (i + 1) - 1) / (2 * len(quantiles))
        for y in targets:
            error = y - theta
            total += (level if error >= 0 else level - 1) * error / len(targets)
    return total


def test_huber_is_quadratic_up_to_kappa_and_then_has_slope_one():
    # kappa = 0.5: u^2 up to 0.5, then |u| - 0.25; the two meet at 0.25.
    error = jnp.array([-3.0, -0.5, -0.1, 0.0, 0.25, 0.5, 2.0])
    np.testing.assert_allclose(
        huber(error, 0.5), [2.75, 0.25, 0.01, 0.0, 0.0625, 0.25, 1.75], rtol=1e-6
    )
    slope = jax.vmap(jax.grad(huber), in_axes=(0, None))(error, 0.5)
    np.testing.assert_allclose(slope, [-1, -1, -0.2, 0, 0.5, 1, 1], rtol=1e-6)


def test_the_loss_weighs_each_side_by_its_level():
    # Levels 1/4 and 3/4; kappa = 0.5: u^2 up to 0.5, then |u| - 0.25.
    # theta = 0: errors -1, 0.25, 4 -> 3/4 * 0.75 + 1/4 * 0.0625 + 1/4 * 3.75 = 1.515625.
    # theta = 2: errors -3, -1.75, 2 -> 1/4 * 2.75 + 1/4 * 1.5 + 3/4 * 1.75 = 2.375.
    got = quantile_huber_loss(QUANTILES, TARGETS, kappa=0.5)
    np.testing.assert_allclose(got, (1.515625 + 2.375) / 3, rtol=1e-6)


def test_kappa_moves_quantiles_towards_the_middle():
    # Targets spread evenly over [0, 1], levels 1/4 and 3/4, kappa = 0.2. The slope is 0 where
    # tau (1 - theta - kappa/2) = (1 - tau) (theta - kappa/2): theta = tau + kappa (1 - 2 tau) / 2.
    targets = (jnp.arange(2000) + 0.5) / 2000
    slope = jax.grad(lambda theta: quantile_huber_loss(theta, targets, kappa=0.2))
    np.testing.assert_allclose(slope(jnp.array([0.3, 0.7])), [0.0, 0.0], atol=1e-5)
    at_the_quantiles = slope(jnp.array([0.25, 0.75]))
    np.testing.assert_allclose(at_the_quantiles, [-0.05, 0.05], atol=1e-5)


def test_the_targets_may_have_unequal_weights():
    # As above, with weights 1/2, 1/4, 1/4 instead of a third each:
    # theta = 0: 1/2 * 0.5625 + 1/4 * (0.015625 + 0.9375) = 0.51953125.
    # theta = 2: 1/2 * 0.6875 + 1/4 * (0.375 + 1.3125) = 0.765625.
    weights = jnp.array([0.5, 0.25, 0.25])
    got = quantile_huber_loss(QUANTILES, TARGETS, kappa=0.5, weights=weights)
    np.testing.assert_allclose(got, 0.51953125 + 0.765625, rtol=1e-6)


def test_equal_weights_change_nothing():
    targets = jax.random.normal(jax.random.key(0), (7,))
    plain = quantile_huber_loss(QUANTILES, targets, kappa=0.1)
    weighted = quantile_huber_loss(QUANTILES, targets, kappa=0.1, weights=jnp.full(7, 1 / 7))
    np.testing.assert_allclose(weighted, plain, rtol=1e-6)


def test_the_gradient_is_the_clipped_error_weighed_by_its_side():
    # d/dtheta = -mean_j side_j * clip(error_j / kappa, -1, 1), with kappa = 0.5:
    # theta = 0: -(-3/4 + 1/4 * 0.5 + 1/4) / 3 = 0.125.
    # theta = 2: -(-1/4 - 1/4 + 3/4) / 3 = -1/12.
    gradient = jax.grad(lambda theta: quantile_huber_loss(theta, TARGETS, kappa=0.5))(QUANTILES)
    np.testing.assert_allclose(gradient, [0.125, -1 / 12], rtol=1e-6)


@pytest.mark.slow
def test_the_gradient_agrees_with_finite_differences():
    quantiles = np.array([-0.3, 0.1, 0.15, 1.2])
    targets = jnp.array([-1.0, 0.2, 0.9])

    def loss(theta):
        return quantile_huber_loss(jnp.asarray(theta), targets, kappa=0.3)

    step = 1e-2  # in 32 bits; the loss is piecewise quadratic, so a large step loses little
    numeric = [
        (loss(quantiles + step * row) - loss(quantiles - step * row)) / (2 * step)
        for row in np.eye(4)
    ]
    np.testing.assert_allclose(jax.grad(loss)(jnp.asarray(quantiles)), numeric, atol=1e-3)


@pytest.mark.parametrize("kappa", [0.0, 1e-45, 1e-38, 1e-30, 1e-12, 1e-5])
@pytest.mark.parametrize("traced", [False, True])
def test_small_kappas_give_the_pinball_loss_and_its_gradient(kappa, traced):
    # One target sits exactly on a quantile, where the pinball loss bends and any kappa has slope 0:
    # theta = 0, level 1/4: errors 0, -1, 3 -> -(-3/4 + 1/4) / 3 = 1/6.
    # theta = 2, level 3/4: errors -2, -3, 1 -> -(-1/4 - 1/4 + 3/4) / 3 = -1/12.
    targets = jnp.array([0.0, -1.0, 3.0])

    def loss(theta, kappa):
        return quantile_huber_loss(theta, targets, kappa=kappa)

    if traced:
        value, gradient = jax.jit(jax.value_and_grad(loss))(QUANTILES, jnp.asarray(kappa))
    else:
        value, gradient = jax.value_and_grad(loss)(QUANTILES, kappa)
    np.testing.assert_allclose(value, pinball([0, 2], [0, -1, 3]), rtol=1e-4)
    np.testing.assert_allclose(gradient, [1 / 6, -1 / 12], rtol=1e-5)


@pytest.mark.slow
@given(st.sampled_from([(1, 4), (5, 3)]), st.integers(0, 2**32 - 1))
def test_the_loss_at_zero_is_the_pinball_loss(counts, seed):
    rng = np.random.default_rng(seed)
    theta, y = (rng.normal(size=count) for count in counts)
    got = quantile_huber_loss(jnp.asarray(theta), jnp.asarray(y), kappa=0.0)
    np.testing.assert_allclose(got, pinball(theta, y), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_quantiles_minimise_the_loss():
    # Levels 1/6, 3/6, 5/6 of seven equally likely values: the 2nd, the 4th and the 6th.
    targets = jnp.array([9.0, -4.0, 0.0, 2.5, -1.0, 1.0, 3.0])
    best = jnp.array([-1.0, 1.0, 3.0])
    least = quantile_huber_loss(best, targets, kappa=0.0)
    others = jnp.linspace(-5.0, 10.0, 61)
    for i in range(3):
        losses = jax.vmap(
            lambda theta, i=i: quantile_huber_loss(best.at[i].set(theta), targets, kappa=0.0)
        )(others)
        assert np.all(np.asarray(losses) >= float(least) - 1e-6)
        np.testing.assert_allclose(others[jnp.argmin(losses)], best[i], atol=1e-6)


def test_a_kappa_above_the_spread_fits_the_mean_and_a_small_one_the_median():
    # One quantile is the median, 0 here; with every error inside kappa the loss is a square, whose
    # minimiser is the mean 0.1.
    targets = jnp.array([0.0, 0.0, 0.3])

    def slope(theta, kappa):
        return jax.grad(lambda q: quantile_huber_loss(q, targets, kappa=kappa))(jnp.array([theta]))

    np.testing.assert_allclose(slope(0.1, 1.0), [0.0], atol=1e-7)
    assert slope(0.01, 1.0)[0] < 0 < slope(0.01, 1e-3)[0]  # 0.01: too low a mean, too high a median


@pytest.mark.slow
def test_a_batch_is_mapped_over():
    theta = jax.random.normal(jax.random.key(1), (4, 5))
    y = jax.random.normal(jax.random.key(2), (4, 3))
    loss = jax.jit(jax.vmap(lambda q, t: quantile_huber_loss(q, t, kappa=0.2)))
    singles = [quantile_huber_loss(theta[i], y[i], kappa=0.2) for i in range(4)]
    np.testing.assert_allclose(loss(theta, y), singles, rtol=1e-5)
