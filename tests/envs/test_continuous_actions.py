"""Actions in boxes of one and of two dimensions, through all that steps an environment."""

import dataclasses
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import downside as ds
from downside.envs import (
    AbstractJaxEnv,
    AmericanPut,
    GymnasiumEnv,
    GymnasiumVectorEnv,
    MeanReversion,
    ReturnAware,
    TradingState,
)
from downside.envs.actions import clip
from downside.envs.gymnasium.rollout import VectorRollout, play_episodes
from downside.envs.gymnasium.vector_adapter import VectorEnvAdapter
from downside.envs.rollout import play, simulate
from downside.evaluation import evaluate_policy

from .scripted import Scripted
from .steered import Steered

KEY = jax.random.key(0)
TRADING = MeanReversion(continuous=True)
LIMITED = MeanReversion(continuous=True, inventory_limit=3.0)
MODES = list(AutoresetMode)
PUSH = np.array([0.5, 2.0], np.float32)
# Pays t + 1 + 5 - 4 at t = 0, 1, 2: with gamma = 0.5 it is 2 + 3/2 + 4/4. At time 2 the bound of a
# is 0.5, which is not exceeded.
PUSHED = 4.5


def trading(price=1.0, inventory=0.0, time=0):
    return TradingState(jnp.asarray(price), jnp.asarray(inventory), jnp.asarray(time, jnp.int32))


# --- the protocol -----------------------------------------------------------------------------


class Aimless(Steered):
    """Says nothing about its actions."""

    @property
    def action_space(self):
        return AbstractJaxEnv.action_space.fget(self)  # pyright: ignore


def test_an_environment_without_any_actions_is_told_what_to_define():
    with pytest.raises(TypeError, match=r"Aimless must define its actions: `num_actions` if they"):
        _ = Aimless().action_space


def test_discrete_actions_have_no_bounds():
    with pytest.raises(TypeError, match=r"Scripted has discrete actions \(Discrete\(3\)\), which"):
        Scripted().action_bounds(jnp.zeros((), jnp.int32))


@pytest.mark.parametrize("env", [TRADING, Steered(), ReturnAware(TRADING, 0.9)])
def test_continuous_actions_are_not_counted_and_have_an_empty_mask(env):
    assert env.num_actions == 0
    assert env.action_mask(env.initial_state(KEY)).shape == (0,)
    low, high = env.action_bounds(env.initial_state(KEY))
    np.testing.assert_array_equal(low, env.action_space.low)
    np.testing.assert_array_equal(high, env.action_space.high)


def test_the_memory_passes_on_what_is_inside():
    env = ReturnAware(MeanReversion(inventory_limit=3.0), 0.9)
    assert env.relaxed is not None
    continuous, points = env.relaxed
    assert continuous == ReturnAware(LIMITED, 0.9)
    np.testing.assert_array_equal(points[:, 0], np.linspace(-2, 2, 21, dtype=np.float32))
    assert continuous.relaxed is None
    state = continuous.initial_state(KEY)
    state = state._replace(inner=trading(inventory=2.5))
    np.testing.assert_allclose(continuous.action_bounds(state), [[-2.0], [0.5]])
    np.testing.assert_array_equal(env.mirrored(jnp.asarray(0.25)), -0.25)
    assert ReturnAware(Scripted(), 0.9).mirrored(jnp.zeros(())) is None
    assert ReturnAware(Scripted(), 0.9).relaxed is None


@pytest.mark.parametrize("env", [MeanReversion(), TRADING, AmericanPut()])
def test_mirrored_noise_moves_the_price_the_other_way(env):
    assert env.mirrored(jnp.asarray(0.7)) == pytest.approx(-0.7)


def test_a_value_at_its_bound_can_leave_it():
    slope = jax.vmap(jax.grad(lambda x: clip(x, -1.0, 2.0)))
    got = slope(jnp.array([-1.5, -1.0, 0.0, 2.0, 2.5]))
    np.testing.assert_array_equal(got, [0.0, 1.0, 1.0, 1.0, 0.0])
    np.testing.assert_array_equal(clip(jnp.array([-3.0, 1.0, 3.0]), -1.0, 2.0), [-1.0, 1.0, 2.0])


# --- mean reversion ---------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 3.0])
def test_a_trade_on_the_grid_does_what_its_number_does(limit):
    env = MeanReversion(inventory_limit=limit)
    assert env.relaxed is not None
    continuous, points = env.relaxed
    assert continuous == dataclasses.replace(env, continuous=True)
    for state in (trading(0.7, -1.4, 3), trading(1.8, 2.6, 9)):
        for action in np.flatnonzero(env.action_mask(state)):
            number = env.transition(state, int(action), 0.3)
            amount = continuous.transition(state, points[action], 0.3)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), amount, number)


def test_a_trade_between_the_points_of_the_grid():
    # -0.3 * 0.7 - 0.005 * 0.3² = -0.21045
    result = TRADING.transition(trading(0.7, -1.0, 3), np.array([0.3]), 0.0)
    assert result.reward == pytest.approx(-0.21045)
    assert result.state.inventory == pytest.approx(-0.7)


def test_a_trade_beyond_the_limit_of_the_inventory_is_cut_to_it():
    state = trading(2.0, 2.5)
    np.testing.assert_allclose(LIMITED.action_bounds(state), [[-2.0], [0.5]])
    np.testing.assert_allclose(LIMITED.action_bounds(trading(2.0, -3.0)), [[0.0], [2.0]])
    result = LIMITED.transition(state, np.array([1.5]), 0.0)
    assert result.state.inventory == pytest.approx(3.0)
    assert result.reward == pytest.approx(-0.5 * 2.0 - 0.005 * 0.25)
    result = LIMITED.transition(state, np.array([-9.0]), 0.0)
    assert result.state.inventory == pytest.approx(0.5)


@pytest.mark.slow
def test_derivatives_by_the_trade_are_finite_differences():
    with jax.enable_x64(True):

        def total(actions, noises):
            state, earned = LIMITED.initial_state(KEY), 0.0
            for action, noise in zip(actions, noises, strict=True):
                result = LIMITED.transition(state, action, noise)
                state, earned = result.state, earned + result.reward
            return earned

        rng = np.random.default_rng(0)
        # The first trades reach the limit of 3: beyond it nothing changes.
        actions = np.concatenate([[1.5, 1.9], rng.uniform(-2, 2, 8)])[:, None]
        noises = rng.normal(size=10)
        slopes = np.asarray(jax.grad(total)(jnp.asarray(actions), noises))
        assert slopes.dtype == np.float64
        for i in range(10):
            step = np.zeros_like(actions)
            step[i] = 1e-6
            by_hand = (total(actions + step, noises) - total(actions - step, noises)) / 2e-6
            np.testing.assert_allclose(slopes[i, 0], by_hand, rtol=1e-6, atol=1e-8)
        assert slopes[1, 0] == 0.0


def test_the_planner_refuses_what_it_does_not_solve():
    with pytest.raises(ValueError, match=r"`continuous` must be False for the planner, got True"):
        ds.solve(TRADING, "cvar(0.5)")


def test_agents_for_discrete_actions_refuse_boxes_in_jax():
    with pytest.raises(ValueError, match=r"`env` must have discrete actions, got Box"):
        ds.QRSRM("downside/MeanReversion-v0", risk="cvar(0.5)", env_kwargs={"continuous": True})


# --- Gymnasium --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized space")  # amounts keep their unit
@pytest.mark.parametrize("core", [TRADING, Steered(), ReturnAware(Steered(), 0.5)])
def test_gymnasiums_checker_has_no_complaint(core):
    check_env(GymnasiumEnv(core), skip_render_check=True)


def test_a_gymnasium_environment_steps_the_core_without_masks():
    env = GymnasiumEnv(Steered(), render_mode="ansi")
    observation, info = env.reset(seed=0)
    assert info == {}
    observation, reward, *_, info = env.step(PUSH.tolist())
    np.testing.assert_array_equal(observation, [1.0, 0.5])
    assert (reward, info) == (2.0, {})
    env.step_with_noise(np.array([-1, 0]), 7.0)
    lines = env.render().splitlines()
    assert lines[2].split() == ["[0.5", "2.", "]", "2.000", "[1.", "0.5]"]
    assert len(lines) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        np.array([0.5]),
        0.5,
        np.array([[0.5, 1.0]]),
        np.array([1.01, 1.0]),
        np.array([0.0, -0.01]),
        np.array([np.nan, 1.0]),
        np.array([True, False]),
        np.array(["a", "b"]),
        None,
    ],
    ids=repr,
)
def test_wrong_actions_are_refused_and_change_nothing(wrong):
    sentence = r"`action` must be an array of shape \(2,\) with numbers between \[-1.0, 0.0\] and "
    env = GymnasiumEnv(Steered())
    env.reset(seed=0)
    with pytest.raises(ValueError, match=sentence):
        env.step(wrong)
    envs = GymnasiumVectorEnv(Steered(), 1)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"`actions` must be an array of shape \(1, 2\) with"):
        envs.step(None if wrong is None else np.asarray(wrong)[None])
    np.testing.assert_array_equal(env.state, (0.0, 0.0))
    np.testing.assert_array_equal(envs.state, ([0.0], [0.0]))


def test_a_bound_that_float32_rounds_is_inside():
    env = GymnasiumEnv(MeanReversion(continuous=True, max_trade=0.1))
    env.reset(seed=0)
    env.step(np.array([0.1]))
    env.step(np.array([0.1], np.float32))
    assert env.state.inventory == pytest.approx(0.2)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_the_vector_environment_is_gymnasiums_over_single_ones(mode):
    ours = GymnasiumVectorEnv(Steered(), 3, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: GymnasiumEnv(Steered())] * 3, autoreset_mode=mode)
    assert ours.action_space == theirs.action_space
    rng = np.random.default_rng(0)
    first, second = ours.reset(seed=0), theirs.reset(seed=0)
    np.testing.assert_array_equal(first[0], second[0])
    assert first[1] == second[1] == {}
    for _ in range(3):
        actions = rng.uniform(0.0, 0.5, (3, 2)).astype(np.float32)
        got, expected = ours.step(actions), theirs.step(actions)
        for mine, other in zip(got[:4], expected[:4], strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-6)
        assert set(got[4]) == set(expected[4])
        last, others = got[4].get("final_obs", ()), expected[4].get("final_obs", ())
        assert len(last) == (3 if mode is AutoresetMode.SAME_STEP and got[2].all() else 0)
        for mine, other in zip(last, others, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-6)


# --- rollouts and policies --------------------------------------------------------------------


def test_episodes_in_jax_take_actions_of_any_shape():
    env = Steered()
    act = lambda states, memory, time: jnp.broadcast_to(PUSH, (4, 2))  # noqa: E731
    got = play(env, act, gamma=0.5, horizon=3, episodes=4, key=KEY)
    np.testing.assert_allclose(got.memory.accumulated, [PUSHED] * 4)
    returns, _ = simulate(env, lambda *_: jnp.asarray(PUSH), gamma=0.5, episodes=2, key=KEY)
    np.testing.assert_allclose(returns, [PUSHED] * 2)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_vectors_of_environments_play_actions_of_any_shape(mode):
    env = SyncVectorEnv([lambda: GymnasiumEnv(Steered())] * 2, autoreset_mode=mode)
    adapter = VectorEnvAdapter(env, 2, history_length=1)
    assert (adapter.num_actions, adapter.first_action) == (0, 0)
    assert adapter.observation_size == 2 + 2 + 2
    rollout = VectorRollout(adapter, 0.5, seed=0)
    assert rollout.masks.shape == (2, 0)
    rows = rollout.play(lambda _: np.stack([PUSH, PUSH]), 4)
    np.testing.assert_allclose(rows, np.tile([PUSHED, 9.0, 3.0], (2, 2, 1)))


def test_given_seeds_play_actions_of_any_shape():
    envs = [GymnasiumEnv(Steered()), GymnasiumEnv(Steered())]
    shown = []
    end = play_episodes(
        envs,
        [0, 1],
        lambda now: np.stack([PUSH, 0.0 * PUSH]),
        lambda now, actions: shown.append(actions),
        gamma=0.5,
        max_steps=10,
    )
    # The second one pays t + 1: 1 + 2/2 + 3/4.
    np.testing.assert_allclose(end.memory.accumulated, [PUSHED, 2.75])
    assert end.masks is None
    assert [np.shape(actions) for actions in shown] == [(2, 2)] * 3 + [()]


class Pushes:
    """Always the same action, without masks."""

    def predict(self, observation, deterministic=True):
        return np.broadcast_to(PUSH, (len(observation), 2)), None


@pytest.mark.parametrize("env", [GymnasiumEnv(Steered()), GymnasiumVectorEnv(Steered(), 2)])
def test_policies_with_continuous_actions_are_evaluated(env):
    rewards, lengths = evaluate_policy(Pushes(), env, 4, return_episode_rewards=True, seed=0)
    assert rewards == [9.0] * 4
    assert lengths == [3] * 4


class Levers(gym.Env):
    """Pays the sum of its levers, twice; says which could be pulled, as nobody here can use."""

    observation_space = gym.spaces.Box(0.0, 2.0, (1,), np.float32)
    action_space = gym.spaces.MultiDiscrete([3, 5], start=[1, 0])
    time = 0

    def reset(self, *, seed=None, options=None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {"action_mask": np.ones(8, np.int8)}

    def step(self, action) -> Any:
        assert action in self.action_space
        self.time += 1
        info = {"action_mask": np.ones(8, np.int8)}
        return np.full(1, self.time, np.float32), float(sum(action)), self.time == 2, False, info


def test_the_adapter_passes_on_actions_of_several_discrete_parts():
    adapter = VectorEnvAdapter(Levers(), 1, history_length=1)
    observations, masks = adapter.reset(seed=0)
    assert observations.shape == (1, 1 + 1 + 8)
    assert masks.shape == (1, 8)
    step = adapter.step(np.array([[3, 4]]))
    assert step.rewards == [7.0]
    np.testing.assert_array_equal(step.observations[0, 2:], [0, 0, 1, 0, 0, 0, 0, 1])
    assert adapter.step(np.array([[3, 4]])).over


@pytest.mark.parametrize("space", ["Pendulum-v1", Levers()])
def test_agents_for_discrete_actions_say_what_to_do_about_others(space):
    with pytest.raises(ValueError, match=r"`env` must have discrete actions, got .*TransformAct"):
        ds.QRDQN(space)
