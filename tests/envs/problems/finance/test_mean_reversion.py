import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.envs import MeanReversion, TradingState

# Example 3 of the paper (appendix): prices, trades and printed rewards at t = 0, ..., 8. The
# inventories before each trade follow from the trades.
PRICES = [1.000, 0.606, 0.768, 1.053, 0.796, 0.934, 0.569, 0.636, 0.238]
INVENTORIES = [0.000, -0.400, 1.600, 1.800, -0.200, 0.200, 0.600, 1.000, 0.400, 0.800]
TRADES = [-0.4, 2.0, 0.2, -2.0, 0.4, 0.4, 0.4, -0.6, 0.4]
REWARDS = [0.399, -1.232, -0.154, 2.086, -0.319, -0.374, -0.228, 0.380, -0.096]


def state(price, inventory, time):
    return TradingState(jnp.asarray(price), jnp.asarray(inventory), jnp.asarray(time, jnp.int32))


def action(core, trade):
    return int(np.argmin(np.abs(core.trades - trade)))


def test_the_trades_are_21_amounts_from_minus_2_to_2():
    np.testing.assert_allclose(MeanReversion().trades, np.arange(-10, 11) / 5, atol=1e-15)


@pytest.mark.parametrize("t", range(9))
def test_rewards_and_inventories_are_those_of_the_papers_example(t):
    core = MeanReversion()
    before = state(PRICES[t], INVENTORIES[t], t)
    after = core.transition(before, action(core, TRADES[t]), 0.3)
    # The printed prices have three digits, so a trade of 2 leaves an error of up to 0.001.
    np.testing.assert_allclose(after.reward, REWARDS[t], atol=0.0015)
    np.testing.assert_allclose(after.state.inventory, INVENTORIES[t + 1], atol=1e-6)
    assert not after.terminated


def test_the_first_reward_of_the_example_by_hand():
    # Selling 0.4 at 1: 0.4 - 0.005 · 0.16 = 0.3992.
    core = MeanReversion()
    after = core.transition(state(1.0, 0.0, 0), action(core, -0.4), 0.0)
    np.testing.assert_allclose(after.reward, 0.3992, rtol=1e-6)


def test_the_last_trade_is_valued_at_the_price_after_the_move():
    # κ = 0, σ = 1, Δt = 0.25: noise -1 moves the price from 2 to 1.5. Buying 1 on top of 0.5:
    # -2 - 0.1 · 1 + 1.5 · 1.5 - 0.2 · 1.5² = -0.3.
    core = MeanReversion(
        kappa=0.0, maturity=1.0, periods=4, cost=0.1, terminal_penalty=0.2, num_trades=5
    )
    after = core.transition(state(2.0, 0.5, 3), action(core, 1.0), -1.0)
    np.testing.assert_allclose(after.state.price, 1.5, rtol=1e-6)
    np.testing.assert_allclose(after.reward, -0.3, rtol=1e-5)
    assert after.terminated
    assert not after.truncated


def test_the_price_moves_by_the_exact_discretisation():
    # e^{-0.2} = 0.818731; √((1 - e^{-0.4}) / 4) = 0.287089: 1 + 0.5 · 0.818731 + 0.287089 · 2.
    after = MeanReversion().transition(state(1.5, 0.0, 0), 10, 2.0)
    np.testing.assert_allclose(after.state.price, 1.983543, rtol=1e-6)


def test_without_a_limit_every_trade_is_legal():
    assert MeanReversion().action_mask(state(1.0, 18.0, 9)).all()


def test_the_limit_masks_the_trades_that_would_break_it():
    # From 4.2 with |q| <= 5, buying more than 0.8 is illegal: actions 15 to 20 (1.0 to 2.0).
    mask = MeanReversion(inventory_limit=5.0).action_mask(state(1.0, 4.2, 3))
    np.testing.assert_array_equal(mask, np.arange(21) <= 14)


def test_the_limit_itself_can_be_reached_in_spite_of_rounding():
    core = MeanReversion(inventory_limit=2.0)
    now = core.initial_state(jax.random.key(0))
    for _ in range(10):
        # 0.2 is not a binary fraction: ten of them sum up to 2.0000002 in float32.
        assert core.action_mask(now)[11]
        now = core.transition(now, 11, 0.0).state._replace(time=jnp.zeros((), jnp.int32))
    np.testing.assert_allclose(now.inventory, 2.0, rtol=1e-6)
    assert now.inventory <= 2.0
    np.testing.assert_array_equal(core.action_mask(now), np.arange(21) <= 10)


@pytest.mark.parametrize(("asked", "expected"), [(2.0, 0.8), (-2.0, -2.0)])
def test_an_illegal_trade_is_replaced_by_the_nearest_legal_one(asked, expected):
    core = MeanReversion(inventory_limit=5.0)
    after = core.transition(state(1.0, 4.2, 3), action(core, asked), 0.0)
    np.testing.assert_allclose(after.state.inventory, 4.2 + expected, rtol=1e-6)
    np.testing.assert_allclose(after.reward, -expected - 0.005 * expected**2, rtol=1e-5)


@pytest.mark.parametrize("limit", [1.0, 2.3, 5.0])
@pytest.mark.parametrize("num_trades", [6, 7])
def test_no_sequence_of_trades_breaks_the_limit_or_runs_out_of_legal_ones(limit, num_trades):
    core = MeanReversion(inventory_limit=limit, num_trades=num_trades, max_trade=3.0)

    def body(now, chosen):
        some = core.action_mask(now).any()
        now = core.transition(now, chosen, 0.1).state
        return now, (some, now.inventory)

    actions = np.random.default_rng(0).integers(num_trades, size=(2000, 10))
    start = core.initial_state(jax.random.key(0))
    some, inventory = jax.vmap(lambda row: jax.lax.scan(body, start, row)[1])(jnp.asarray(actions))
    assert some.all()
    assert jnp.abs(inventory).max() <= limit * (1 + 1e-6)


@pytest.mark.parametrize(
    "parameters", [{"inventory_limit": 0.5, "num_trades": 2}, {"initial_inventory": -3.0}]
)
def test_a_limit_that_leaves_no_legal_trade_is_refused(parameters):
    with pytest.raises(ValueError, match=r"`inventory_limit` must be .* leave room"):
        MeanReversion(**{"inventory_limit": 2.0, **parameters})


def test_the_observation_is_price_inventory_and_share_of_time():
    observation = MeanReversion(periods=8).observe(state(0.75, -1.5, 2))
    np.testing.assert_array_equal(observation, np.array([0.75, -1.5, 0.25], np.float32))
