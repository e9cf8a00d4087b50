"""The portfolio problem, by hand and against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.envs import Portfolio, PortfolioState
from downside.envs.env_spec import EnvSpec
from downside.envs.registry import make_jax
from downside.envs.rollout import simulate

KEY = jax.random.key(0)
TWO = Portfolio(drifts=(0.1, 0.0), volatilities=(0.2, 0.1), correlation=0.5, cost=0.01, periods=4)


def state(wealth=1.0, weights=(0.0, 0.0), time=0):
    return PortfolioState(jnp.asarray(wealth), jnp.asarray(weights), jnp.asarray(time, jnp.int32))


def test_wanted_weights_that_are_too_much_are_scaled_down():
    np.testing.assert_allclose(TWO.weights(np.array([0.3, 0.2])), [0.3, 0.2])
    np.testing.assert_allclose(TWO.weights(np.array([1.0, 0.25])), [0.8, 0.2])
    np.testing.assert_allclose(TWO.weights(np.array([0.0, 1.0])), [0.0, 1.0])
    np.testing.assert_allclose(TWO.weights(np.array([-1.0, 7.0])), [0.0, 1.0])


def test_a_step_pays_the_change_of_wealth():
    noise = jnp.array([0.7, -0.2])
    growth = np.asarray(TWO.growth(noise))
    result = TWO.transition(state(2.0, [0.5, 0.3], time=1), np.array([0.2, 0.6]), noise)
    # 0.3 is sold and 0.3 bought, for 1%; 0.2 stays in cash.
    factor = 0.2 * growth[0] + 0.6 * growth[1] + 0.2
    assert result.reward == pytest.approx(2.0 * (1 - 0.006) * factor - 2.0, rel=1e-4)
    np.testing.assert_allclose(
        result.state.weights, [0.2 * growth[0] / factor, 0.6 * growth[1] / factor], rtol=1e-6
    )
    assert not result.terminated
    assert TWO.transition(state(time=3), np.array([0.2, 0.6]), noise).terminated


def test_prices_have_their_drifts_volatilities_and_correlation():
    noises = jax.random.normal(KEY, (200_000, 2))
    logs = np.log(np.asarray(jax.vmap(TWO.growth)(noises), float))
    error = 1 / np.sqrt(200_000)
    deviation = np.array([0.2, 0.1]) * 0.5  # a quarter of a year
    expected = np.array([0.1, 0.0]) * 0.25 - deviation**2 / 2
    np.testing.assert_array_less(abs(logs.mean(0) - expected), 4 * deviation * error)
    np.testing.assert_allclose(logs.std(0), deviation, rtol=4 * error)
    assert np.corrcoef(logs.T)[0, 1] == pytest.approx(0.5, abs=4 * error)


def test_wealth_that_stays_in_an_asset_grows_as_it_does():
    # E W = (1 - c) e^{mu T}: bought once, never sold.
    env = Portfolio(drifts=(0.1,), volatilities=(0.2,), correlation=0.0, cost=0.01)
    policy = lambda state, s, c: jnp.ones(1)  # noqa: E731
    returns, _ = simulate(env, policy, gamma=1.0, episodes=20_000, key=KEY)
    expected = 0.99 * np.exp(0.1) - 1.0
    assert abs(returns.mean() - expected) < 4 * returns.std() / np.sqrt(20_000)
    assert np.log(1.0 + returns).std() == pytest.approx(0.2, rel=0.03)


@pytest.mark.slow
def test_cash_is_safe():
    policy = lambda state, s, c: jnp.zeros(3)  # noqa: E731
    returns, _ = simulate(Portfolio(), policy, gamma=1.0, episodes=10, key=KEY)
    np.testing.assert_array_equal(returns, 0.0)


def test_a_perfect_correlation_is_one_source_of_noise():
    env = Portfolio(drifts=(0.0,) * 3, volatilities=(0.1, 0.1, 0.2), correlation=1.0)
    growth = env.growth(jnp.array([0.3, -1.0, 2.0]))
    np.testing.assert_allclose(growth[0], growth[1], rtol=1e-5)


@pytest.mark.slow
def test_derivatives_by_the_weights_are_finite_differences():
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        # The first two wanted sums are above 1, and the last is below.
        actions = np.array([[0.9, 0.6], [0.2, 0.95], [0.3, 0.4], [0.1, 0.6]])
        noises = rng.normal(size=(4, 2))

        @jax.jit
        def total(actions):
            now, earned = TWO.initial_state(KEY), 0.0
            for action, noise in zip(actions, noises, strict=True):
                result = TWO.transition(now, action, noise)
                now, earned = result.state, earned + result.reward
            return earned

        slopes = np.asarray(jax.grad(total)(jnp.asarray(actions)))
        for i, k in np.ndindex(4, 2):
            step = np.zeros((4, 2))
            step[i, k] = 1e-6
            by_hand = (total(actions + step) - total(actions - step)) / 2e-6
            np.testing.assert_allclose(slopes[i, k], by_hand, rtol=1e-5, atol=1e-9)


def test_several_numbers_as_a_parameter_survive_being_written_down():
    spec = EnvSpec.of(TWO)
    assert spec.id == "downside/Portfolio-v0"
    written = spec.as_json()["parameters"]
    assert written["drifts"] == [0.1, 0.0]
    assert make_jax(spec.id, **written) == TWO


def test_what_is_not_several_numbers_is_refused():
    with pytest.raises(TypeError, match=r"`drifts` must be several numbers, got 0.1"):
        Portfolio(drifts=0.1)  # pyright: ignore
    with pytest.raises(TypeError, match=r"`drifts` must be a finite number in .* got 'a'"):
        Portfolio(drifts=("a",), volatilities=(0.1,))  # pyright: ignore
