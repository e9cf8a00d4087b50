import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside import solve
from downside.envs import BettingGame
from downside.envs.checking import check_env


def test_a_fair_coin_is_not_bet_on():
    plan = solve(BettingGame(win=0.5, rounds=2, limit=32), "cvar(0.3)", gamma=1.0, episodes=100)
    assert plan.value == pytest.approx(0.0, abs=1e-9)
    bold = solve(BettingGame(win=1.0, rounds=2, limit=40), "cvar(0.3)", gamma=1.0, episodes=100)
    assert bold.value == pytest.approx(24.0)  # 16, 32, then what is missing to 40


def test_the_first_capital_is_at_most_the_limit():
    with pytest.raises(ValueError, match=r"`start` must be at most 256, got 300"):
        BettingGame(start=300)


def test_returns_are_not_discounted_by_default():
    assert BettingGame().default_gamma == 1.0
    assert ds.QRSRM("downside/BettingGame-v0", risk="mean").settings.gamma == 1.0


@pytest.mark.parametrize("noise", [0.1, 0.79, 0.81])
def test_an_eighth_is_the_same_bet_as_its_number_and_a_number_between_is_rounded_down(noise):
    game, continuous = BettingGame(limit=40), BettingGame(limit=40, continuous=True)
    shares = jnp.arange(9)[:, None] / 8.0
    for capital in (0, 1, 13, 16, 39, 40):
        state = game.initial_state(jax.random.key(0))._replace(number=jnp.asarray(capital))
        for number, share in enumerate(np.asarray(shares)):
            discrete = game.step_with_noise(state, jnp.asarray(number), jnp.asarray(noise))
            any_share = continuous.step_with_noise(state, share, jnp.asarray(noise))
            np.testing.assert_allclose(any_share.reward, discrete.reward)
            np.testing.assert_allclose(any_share.observation, discrete.observation)
            assert any_share.state.time == discrete.state.time
    # 0.33 of 16 is 5.28, rounded down.
    state = continuous.initial_state(jax.random.key(0))
    result = continuous.transition(state, jnp.array([0.33]), jnp.asarray(noise))
    assert float(result.reward) == (5.0 if noise < 0.8 else -5.0)


def test_it_shows_the_capital_its_logarithm_and_the_time():
    game = BettingGame(limit=63, rounds=4)
    state = game.initial_state(jax.random.key(0))._replace(number=jnp.asarray(15), time=1)
    # log 16 / log 64 = 4 / 6.
    np.testing.assert_allclose(game.observe(state), [15 / 63, 4 / 6, 0.25], rtol=1e-6)


def test_derivatives_pass_through_the_rounding():
    game = BettingGame(continuous=True)
    state = game.initial_state(jax.random.key(0))

    def total(share):
        first = game.transition(state, share[None], jnp.asarray(0.5))
        second = game.transition(first.state, jnp.array([0.5]), jnp.asarray(0.9))
        return first.reward + second.reward

    # Win 16 x, then lose half of 16 + 16 x: 8 x - 8.
    np.testing.assert_allclose(jax.grad(total)(jnp.asarray(0.3)), 8.0, rtol=1e-6)


def test_the_continuous_game_is_a_sound_environment():
    check_env(BettingGame(continuous=True))
