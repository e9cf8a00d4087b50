"""The wrapper that pays the increments of h."""

import types

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import downside as ds
from downside.envs import RiskReward, VectorRiskReward


class Dice(gym.Env):
    """Three rolls: pays what the action says, in turn."""

    observation_space = gym.spaces.Box(0.0, 3.0, (1,), np.float32)
    action_space = gym.spaces.Box(-10.0, 10.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        observation = np.array([self.time], np.float32)
        return observation, float(np.ravel(action)[0]), self.time == 3, False, {}


def play(env, rewards):
    env.reset(seed=0)
    return [env.step(np.array([reward], np.float32)) for reward in rewards]


def test_at_first_it_pays_the_discounted_rewards():
    paid = [step[1] for step in play(RiskReward(Dice(), "cvar(0.5)", gamma=0.5), (4.0, 2.0, 8.0))]
    np.testing.assert_allclose(paid, [4.0, 1.0, 2.0])  # 4, 0.5 * 2, 0.25 * 8


def test_it_pays_the_increments_of_h_and_keeps_the_original_return():
    # 0.5 mean + 0.5 cvar(0.5): h(z) = 0.5 z + 0.5 * min(z - b, 0)/0.5, so slope 1.5 below b and
    # 0.5 above. With b = 3 the rewards 2, 2, -1 lead over s = 2, 4, 3: paid are 3, 1.5 + 0.5, -0.5.
    env = RiskReward(Dice(), "0.5*mean + 0.5*cvar(0.5)")
    env.move([3.0], 2.0)
    steps = play(env, (2.0, 2.0, -1.0))
    np.testing.assert_allclose([step[1] for step in steps], [3.0, 2.0, -0.5])
    assert steps[-1][4]["original"] == {"r": 3.0, "g": 3.0, "l": 3}
    # Behind the observation: s and s - b in units of 2, and c.
    np.testing.assert_allclose(steps[0][0], [1.0, 1.0, -0.5, 1.0])
    assert env.observation_space.shape == (4,)


def test_an_update_moves_the_bends_to_the_quantiles_of_the_returns():
    env = RiskReward(Dice(), "cvar(0.25)", episodes=4)
    assert not env.update(least=4)
    for total in (9.0, 3.0, 1.0, 7.0, 5.0):  # the first one is forgotten
        play(env, (total, 0.0, 0.0))
    assert env.update(least=4)
    np.testing.assert_allclose(env.utility_bends, [3.0])  # of 1, 3, 5, 7 the one with index 1
    env.move([7.0], rate=0.5)
    np.testing.assert_allclose(env.utility_bends, [5.0])


def test_after_an_update_what_is_paid_has_a_spread_of_one():
    env = RiskReward(Dice(), "cvar(0.5)")
    for total in (1.0, 3.0, 5.0, 7.0):
        play(env, (total, 0.0, 0.0))
    env.update(least=4)
    # b = 5; h less a constant is 2 min(z - 5, 0): -8, -4, 0, 0, with a standard deviation of
    # sqrt(11), and increments from h(0) = -10.
    paid = [sum(step[1] for step in play(env, (total, 0, 0))) for total in (1.0, 3.0, 5.0, 7.0)]
    np.testing.assert_allclose(paid, np.array([2.0, 6.0, 10.0, 10.0]) / np.sqrt(11.0))


def test_an_episode_keeps_the_h_that_it_began_with():
    env = RiskReward(Dice(), "cvar(0.5)")
    env.reset(seed=0)
    env.step(np.array([1.0]))
    env.move([0.0], 1.0)
    paid = [env.step(np.array([1.0]))[1] for _ in range(2)]
    np.testing.assert_allclose(paid, [1.0, 1.0])
    np.testing.assert_allclose([step[1] for step in play(env, (1.0, -3.0, 1.0))], [0.0, -4.0, 2.0])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_pays_what_single_environments_pay(mode):
    single = RiskReward(Dice(), "cvar(0.5)")
    vector = RiskReward(SyncVectorEnv([Dice, Dice], autoreset_mode=mode), "cvar(0.5)")
    assert isinstance(vector, VectorRiskReward)
    for env in (single, vector):
        env.move([1.0], 1.0)
    vector.reset(seed=0)
    infos = {}
    for _ in range(2):
        expected = play(single, (1.0, -2.0, 3.0))
        for number, reward in enumerate((1.0, -2.0, 3.0)):
            result = vector.step(np.full((2, 1), reward, np.float32))
            observations, paid, terminated, _, infos = result
            np.testing.assert_allclose(paid, expected[number][1])
            final = number == 2
            assert terminated.all() == final
            if final and mode is AutoresetMode.SAME_STEP:
                np.testing.assert_allclose(infos["final_obs"][1], expected[2][0])
            else:
                np.testing.assert_allclose(observations[1], expected[number][0])
        np.testing.assert_allclose(infos["original"]["g"], 2.0)
        assert infos["_original"].all()
        if mode is AutoresetMode.NEXT_STEP:
            observations, paid, *_ = vector.step(np.full((2, 1), 9.0, np.float32))
            np.testing.assert_allclose(paid, 0.0)
            np.testing.assert_allclose(observations[0], [0.0, 0.0, -1.0, 1.0])
        elif mode is AutoresetMode.DISABLED:
            vector.reset(options={"reset_mask": np.ones(2, bool)})
    assert vector.take_returns() == [2.0] * 4
    assert vector.take_returns() == []


def test_every_measure_has_few_bends_in_the_observation():
    for risk, size in (("mean", 2), ("cvar(0.2)", 3), ("exponential(4)", 5)):
        env = RiskReward(Dice(), risk)
        assert env.observation_space.shape == (1 + size,)


class Model:
    """As much of an algorithm of stable-baselines3 as the callback uses."""

    _total_timesteps = 100

    def __init__(self, envs):
        self.num_timesteps, self.envs = 0, envs

    def get_env(self):
        return types.SimpleNamespace(
            env_method=lambda name, *arguments: [getattr(e, name)(*arguments) for e in self.envs],
            get_attr=lambda name: [getattr(e, name) for e in self.envs],
        )


@pytest.mark.parametrize("in_a_list", [True, False])
def test_the_callback_pools_returns_and_moves_every_h(in_a_list):
    envs = [RiskReward(Dice(), "cvar(0.5)") for _ in range(2)]
    model, callback = Model(envs), ds.RiskRewardCallback(episodes=4, risk_neutral_fraction=0.5)
    callback.init_callback(model)

    def call():
        assert callback.on_step() if in_a_list else callback({"self": model}, {})

    for total in (1.0, 2.0):
        play(envs[0], (total, 0.0, 0.0))
        play(envs[1], (total + 2.0, 0.0, 0.0))
        call()
    assert callback.moves == 0  # half of the training is for the mean
    model.num_timesteps = 50
    call()
    assert callback.moves == 1
    for env in envs:
        np.testing.assert_allclose(env.utility_bends, [3.0])  # of 1, 2, 3, 4 the one with index 2


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="`env` must be a Gymnasium environment"):
        RiskReward("CartPole-v1", "mean")
    with pytest.raises(ValueError, match="`episodes` must be"):
        RiskReward(Dice(), "mean", episodes=1)
    with pytest.raises(ValueError, match="`rate` must be in"):
        RiskReward(Dice(), "mean").move([], 1.0, rate=0.0)
    with pytest.raises(ValueError, match="`risk_neutral_fraction` must be in"):
        ds.RiskRewardCallback(risk_neutral_fraction=1.0)
