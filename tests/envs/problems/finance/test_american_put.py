import jax.numpy as jnp
import numpy as np
import pytest

from downside.envs import AmericanPut, OptionState, make_jax

HOLD, EXERCISE = 0, 1


def state(price, time):
    return OptionState(jnp.asarray(price), jnp.asarray(time, jnp.int32))


def test_exercising_pays_the_payoff_now_and_ends_the_episode():
    after = AmericanPut(strike=1.1).transition(state(0.8, 3), EXERCISE, 1.0)
    np.testing.assert_allclose(after.reward, 0.3, rtol=1e-6)
    assert after.terminated
    assert not after.truncated


def test_holding_before_the_last_decision_pays_nothing():
    after = AmericanPut().transition(state(0.5, 8), HOLD, -1.0)
    assert after.reward == 0.0
    assert not after.terminated
    assert after.state.time == 9


def test_holding_at_the_last_decision_pays_the_payoff_on_the_price_at_maturity():
    # Δt = 0.1: P' = exp((-0.3 - 0.045) 0.1 + 0.3 √0.1 · (-2)) = exp(-0.0345 - 0.189737) = 0.799125.
    after = AmericanPut().transition(state(1.0, 9), HOLD, -2.0)
    np.testing.assert_allclose(after.state.price, 0.799125, rtol=1e-5)
    np.testing.assert_allclose(after.reward, 1 - 0.799125, rtol=1e-5)
    assert after.terminated


def test_exercising_at_the_last_decision_does_not_see_the_price_at_maturity():
    after = AmericanPut().transition(state(0.9, 9), EXERCISE, -2.0)
    np.testing.assert_allclose(after.reward, 0.1, rtol=1e-6)


def test_an_option_out_of_the_money_pays_nothing():
    assert AmericanPut().transition(state(1.2, 0), EXERCISE, 0.0).reward == 0.0


def test_a_call_pays_when_the_price_is_high():
    after = AmericanPut(kind="call", strike=0.9).transition(state(1.2, 0), EXERCISE, 0.0)
    np.testing.assert_allclose(after.reward, 0.3, rtol=1e-6)


def test_reverting_prices_move_towards_the_mean():
    # Δt = 0.5, κ = ln 2: e^{-κ Δt} = 1/√2; without noise 3 becomes 2 + 1/√2.
    core = AmericanPut(process="ou", kappa=np.log(2.0), mean=2.0, maturity=1.0, periods=2)
    after = core.transition(state(3.0, 0), HOLD, 0.0)
    np.testing.assert_allclose(after.state.price, 2.0 + 0.5**0.5, rtol=1e-6)


def test_the_observation_is_the_price_and_the_share_of_time():
    observation = AmericanPut(periods=4).observe(state(0.75, 3))
    np.testing.assert_array_equal(observation, np.array([0.75, 0.75], np.float32))


@pytest.mark.parametrize(("process", "name"), [("gbm", "kappa"), ("gbm", "mean"), ("ou", "drift")])
def test_a_parameter_of_the_other_process_is_refused(process, name):
    with pytest.raises(ValueError, match=f"`{name}` must be left at .* does not use it, got 0.7"):
        make_jax("downside/AmericanPut-v0", process=process, **{name: 0.7})
