"""Training in environments that are not written in JAX."""

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import downside as ds
from downside.agents.networks import members
from downside.envs import Memory
from downside.train.backends.gymnasium.backend import GymBackend

from ...tiny import SMALL, experience_of, same, state_of
from ...toys import Assorted, Counter, Masked, Noisy

# --- learning ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        ds.QRSRM,
        pytest.param(ds.QRCVaR, marks=pytest.mark.long),
        pytest.param(ds.QRiCVaR, marks=pytest.mark.long),
        ds.QRDQN,
    ],
)
def test_every_agent_learns_to_take_the_action_that_pays(kind):
    risk = {} if kind is ds.QRDQN else {"risk": "cvar(0.5)"}
    agent = kind(Counter(), seed=1, **risk, **SMALL, learning_rate=3e-3).learn(2000)
    returns = agent.simulate_returns(4, seed=0)
    # Every step pays 1: 1 + γ + γ² + γ³.
    np.testing.assert_allclose(returns, (1 - 0.99**4) / 0.01, rtol=1e-6)


@pytest.mark.slow
def test_a_gamble_is_taken_for_the_mean_and_left_for_the_tail():
    settings = {**SMALL, "quantiles": 20, "learning_rate": 3e-3}
    neutral = ds.QRDQN(Noisy(1), **settings).learn(1500)
    careful = ds.QRSRM(Noisy(1), risk="cvar(0.2)", **settings).learn(1500)
    # One gamble N(0.3, 1): its mean is 0.3, and its worst fifth -1.1 on average; not playing, 0.
    assert neutral.simulate_returns(50, seed=0).std() > 0.1
    assert careful.simulate_returns(50, seed=0).tolist() == [0.0] * 50


@pytest.mark.slow
def test_the_same_seed_gives_the_same_agent_and_another_another():
    def make(seed):
        return ds.QRSRM(Noisy(), risk="cvar(0.5)", seed=seed, **SMALL).learn(200)

    first, again, other = make(0), make(0), make(1)
    assert same(first, again)
    assert not same(first, other)


@pytest.mark.slow
def test_illegal_actions_are_never_taken():
    agent = ds.QRSRM(Masked(), risk="cvar(0.5)", **SMALL).learn(1000)  # the environment would raise
    assert agent.simulate_returns(4, seed=0) == pytest.approx(0.99 + 0.99**3)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_vector_environments_of_every_mode_train(mode):
    env = SyncVectorEnv([Counter, Counter], autoreset_mode=mode)
    agent = ds.QRSRM(env, risk="cvar(0.5)", learning_rate=3e-3, **SMALL).learn(3000)
    assert agent.settings.num_envs == 2
    assert agent.simulate_returns(4, seed=0) == pytest.approx((1 - 0.99**4) / 0.01)


@pytest.mark.slow
def test_observations_of_several_kinds_train_and_are_predicted_for():
    agent = ds.QRDQN(Assorted(), learning_rate=3e-3, **SMALL).learn(2000)
    env = Assorted()
    observation, _ = env.reset(seed=0)
    assert agent.predict(observation) == (1, None)
    vector = SyncVectorEnv([Assorted, Assorted])
    batch, _ = vector.reset(seed=0)
    assert agent.predict(batch)[0].tolist() == [1, 1]
    with pytest.raises(ValueError, match="`observation` must be one of Dict"):
        agent.predict(3.0)


@pytest.mark.slow
def test_a_wrapped_environment_is_what_the_policy_acts_on():
    settings = {"learning_rate": 3e-3, "history_length": 0, **SMALL}
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", **settings).learn(2000)
    env = agent.wrap(Counter())
    observation, _ = env.reset(seed=0)
    assert observation.tolist() == [0.0, -1.0, 0.0, 1.0]
    total, discount, over = 0.0, 1.0, False
    while not over:
        action, _ = agent.predict(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, discount, over = total + discount * reward, 0.99 * discount, terminated or truncated
    assert observation[2] == pytest.approx(total)
    assert agent.return_distribution(observation).shape == (2, 5)
    with pytest.raises(ValueError, match=r"`observation` must have shape \(4,\)"):
        agent.predict(np.zeros(2))


@pytest.mark.slow
def test_episodes_are_valued_in_as_many_environments_as_there_are():
    env = SyncVectorEnv([lambda: Counter(2), lambda: Counter(6)])
    agent = ds.QRDQN(env, learning_rate=3e-3, **SMALL).learn(2000)
    returns = agent.simulate_returns(7, seed=0)
    # In turns, four of the first and three of the second: short episodes are not preferred.
    short, long = (1 - 0.99**2) / 0.01, (1 - 0.99**6) / 0.01
    np.testing.assert_allclose(returns, [short, long] * 3 + [short], rtol=1e-6)


LARGER = {
    **SMALL,
    "hidden_sizes": (32, 32),
    "batch_size": 32,
    "buffer_size": 10_000,
    "warmup_steps": 2000,
    "outer_interval": 100,
    "updates_per_step": 4,
    "learning_rate": 3e-3,
    "target_rate": 1.0,
    "target_interval": 50,
}


@pytest.mark.slow
def test_frozen_lake_is_crossed():
    lake = {"env_kwargs": {"is_slippery": False}, "num_envs": 8, "exploration_fraction": 0.5}
    agent = ds.QRDQN("FrozenLake-v1", **lake, **LARGER).learn(12_000)
    # Six steps to the goal at best, which pays 1; random play gets there once in seventy episodes.
    assert agent.simulate_returns(8, seed=0) == pytest.approx(0.99**5)


@pytest.mark.long
def test_a_vector_environment_made_by_gymnasium_trains():
    env = gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync")
    agent = ds.QRSRM(env, risk="cvar(0.5)", **LARGER).learn(10_000)
    # Random play stays up for 22 steps: a discounted return of 19; 70 steps are 50.
    assert ds.CVaR(0.5)(agent.simulate_returns(20, seed=0)) > 50


# --- what is learned from ---------------------------------------------------------------------


@pytest.mark.slow
def test_whoever_plays_in_the_environment_during_training_leaves_no_trace_in_it():
    # Chunks of 25 steps end in the middle of an episode of four, where the callback plays others.
    callback = ds.Evaluations(every_steps=1, episodes=3)
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", **SMALL).learn(200, callback=callback)
    assert len(callback.results) == 8
    experience = experience_of(agent)
    assert set(experience.episodes.filled()[:, 2]) == {4.0}
    stored = experience.replay.filled()
    assert len(stored.action) == 250
    time = stored.state.observation[:, 0]
    np.testing.assert_array_equal(stored.next_state.observation[:, 0], time + 1)
    np.testing.assert_allclose(stored.memory.discount_so_far, 0.99**time, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("explored", "linked"), [(1.0, 0.0), (0.0, 0.75)])
def test_several_steps_go_on_only_where_the_policy_acted(explored, linked):
    # Episodes of four steps: of what the policy does, three of four have a step that follows.
    share = {"exploration_final": explored, "exploration_fraction": 0.0}
    agent = ds.QRDQN(Counter(length=4), seed=0, **SMALL, **share).learn(100)
    replay = experience_of(agent).replay
    count = int(replay.added)
    # Twenty episodes, without the last steps, of which one may still be followed.
    follows = replay.successor[count - 84 : count - 4] >= 0
    assert follows.mean() == linked


@pytest.mark.slow
def test_policies_are_not_judged_while_no_episode_has_ended_in_an_environment():
    agent = ds.QRDQN(Counter(4), **SMALL).learn(200)
    spread = float(state_of(agent).spread)
    agent.set_env(gym.wrappers.TimeLimit(Counter(10**6), 10**6))
    agent.learn(50, reset_num_timesteps=False)
    assert float(state_of(agent).spread) == spread
    assert agent.history[-1]["best"] == -np.inf
    assert agent.history[-1]["episodes"] == 0
    assert agent.history[-1]["episode_length"] == 50  # of the one that goes on


def test_where_no_episode_ends_there_is_an_error_and_not_a_riddle():
    class Endless(Counter):
        def step(self, action):
            observation, reward, _, _, info = super().step(action)
            return np.minimum(observation, 100.0), reward, False, False, info

    with pytest.raises(ds.EnvironmentFaultError, match=r"No episode of .* ended in .*TimeLimit"):
        ds.QRDQN(Endless(), **SMALL).learn(100)


@pytest.mark.parametrize(("limit", "length"), [(7, 7), (-1, 12)])
def test_a_changed_time_limit_is_part_of_the_problem(limit, length):
    make: Any = Counter
    gym.register("DownsideTestCounter-v0", make, kwargs={"length": 12}, max_episode_steps=10)
    try:
        env = gym.make("DownsideTestCounter-v0", max_episode_steps=limit)
        agent = ds.QRDQN(env, **SMALL)
        assert dict(agent.env_spec.parameters) == {"length": 12, "max_episode_steps": limit}
        again = gym.make(agent.env_spec.description, **agent.env_spec.parameters)
        again.reset(seed=0)
        steps, over = 0, False
        while not over:
            *_, terminated, truncated, _ = again.step(1)
            steps, over = steps + 1, terminated or truncated
        assert steps == length
        plain = ds.QRDQN(gym.make("DownsideTestCounter-v0"), **SMALL)
        assert "max_episode_steps" not in plain.env_spec.parameters
    finally:
        del gym.registry["DownsideTestCounter-v0"]


# --- networks ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_memory_that_is_hidden_is_not_used_until_h_bends():
    settings = {
        **SMALL,
        "risk_neutral_fraction": 0.5,
        "memory_noise": 0.25,
        "num_critics": 2,
        "history_length": 0,
    }
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", hide_memory_until_risk=True, **settings)
    used = []

    def look(agent):
        state, learner = state_of(agent), agent.policy.learner
        networks = state.learner.networks
        quantiles = [
            learner.return_quantiles(
                networks, jnp.ones(2), Memory(jnp.asarray(s), jnp.array(0.9)), state.outer
            )
            for s in (0.0, 2.0)
        ]
        rows = [member.trunk.layers[0].weight[-2:] for member in members(networks.quantiles)]
        used.append((not np.allclose(*quantiles), bool(np.abs(rows).sum() > 0)))

    agent.learn(200, callback=look)  # the first outer step is made after half of eight chunks
    assert used[:3] == [(False, False)] * 3
    assert used[-1] == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize("given", ["module", "function"])
def test_a_network_of_ours_may_be_given(given):
    module = ds.MLP(jax.random.key(0), 4, (16, 16), "relu")  # of the observation and (s, c)
    network = module if given == "module" else lambda key, size: ds.MLP(key, size, (16,), "relu")
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", network=network, history_length=0, **SMALL)
    driver = agent._driver
    assert isinstance(driver.backend, GymBackend)
    state = driver.backend._first_state(
        driver.new_spec(100), driver.algorithm, jax.random.key(0), None
    )
    (fresh,) = members(state.learner.networks.quantiles)
    weight = fresh.trunk.layers[0].weight
    assert (np.abs(weight).sum(axis=1) > 0).tolist() == [True, True, False, False]
    (learned,) = members(agent.learn(100).networks.quantiles)
    assert learned.trunk.layers[0].weight.shape == weight.shape


@pytest.mark.long
def test_the_scale_of_an_input_does_not_depend_on_how_many_others_there_are():
    settings = {
        "hidden_sizes": (16,),
        "warmup_steps": 500,
        "history_length": 1,
        "outer_interval": 100,
    }
    scales = [
        members(agent.learn(100).networks.quantiles)[0].scale
        for agent in (
            ds.QRDQN("CartPole-v1", **settings),
            ds.QRSRM("CartPole-v1", risk="cvar(0.2)", **settings),
        )
    ]
    for name in ("input_mean", "input_spread"):
        without, with_memory = (np.asarray(getattr(scale, name)) for scale in scales)
        np.testing.assert_array_equal(without, with_memory[:-2])  # or the runs soon part


@pytest.mark.slow
def test_qr_srm_is_qr_dqn_until_h_bends():
    settings = {
        "hidden_sizes": (16, 16),
        "risk_neutral_fraction": 0.5,
        "warmup_steps": 500,
        "quantiles": 10,
    }
    settings["outer_interval"] = 150  # 600 steps
    neutral = ds.QRDQN("CartPole-v1", history_length=1, **settings).learn(2400).history
    mean = ds.QRSRM("CartPole-v1", risk="mean", **settings).learn(2400).history
    averse = ds.QRSRM("CartPole-v1", risk="cvar(0.2)", **settings).learn(2400).history
    losses = [[record["critic_loss"] for record in history] for history in (neutral, mean, averse)]
    # The same numbers here; another processor may round the last digit differently.
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0][:2] == pytest.approx(losses[2][:2], rel=1e-5)
    assert losses[0][2:] != pytest.approx(losses[2][2:], rel=1e-3)


def test_a_network_that_was_made_for_fewer_numbers_is_refused_with_their_number():
    module = ds.MLP(jax.random.key(0), 4, (16,), "relu")  # of the observation and (s, c)
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", network=module, **SMALL)
    with pytest.raises(ValueError, match=r"`network` must take a vector of 8 numbers"):
        agent.learn(100)


# --- episodes are truncated where rewards hardly count any more -------------------------------


BRIEF = {
    "hidden_sizes": (8,),
    "warmup_steps": 64,
    "outer_interval": 20,
    "buffer_size": 4_000,
    "gamma": 0.9,
}


def long(limit):
    return gym.wrappers.TimeLimit(Counter(10**6), limit)


def lengths(agent):
    return experience_of(agent).episodes.filled()[:, 2]


@pytest.mark.long
def test_long_episodes_are_cut_off_once_rewards_hardly_count():
    agent = ds.QRDQN(long(200), min_discount=0.1, **BRIEF).learn(4_000)
    # Learned from as if they went on.
    assert not experience_of(agent).replay.filled().terminated.any()
    cut = lengths(agent)[-80:]  # the first ones are those of random play
    # 0.9^22 is the first power below 0.1: there are 22 steps, and then the chance is a tenth.
    assert cut.min() > 22
    assert 22 + 7 < np.mean(cut) < 22 + 13


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"min_discount": 0.0}, {"min_discount": 1.0, "gamma": 1.0}])
def test_without_a_bound_or_a_discount_nothing_is_cut_off(changes):
    agent = ds.QRDQN(long(60), **{**BRIEF, **changes}).learn(1_000)
    assert set(lengths(agent)) == {60.0}


@pytest.mark.slow
def test_episodes_of_an_evaluation_are_never_cut_off():
    class Measured(Counter):
        time, lengths = 0, []

        def reset(self, **arguments):
            self.lengths.append(self.time)
            return super().reset(**arguments)

    # In the very environment that it is trained in: there is no second one.
    env = Measured(10**6)
    agent = ds.QRDQN(gym.wrappers.TimeLimit(env, 200), min_discount=0.5, **BRIEF).learn(1_000)
    assert max(env.lengths[-5:]) < 200
    env.lengths.clear()
    agent.simulate_returns(3, seed=0)
    assert env.lengths[1:] == [200, 200, 200]


# --- the last steps are shown beside the observation ------------------------------------------


class Wind(gym.Env):
    """A wind blows one way for a whole episode and moves what is observed; nobody sees the wind.

    The first of three steps pays nothing; after it, leaning against the wind (action 0 against -1,
    action 1 against +1) pays 1 a step, and leaning with it -1. The place itself says nothing: it
    starts anywhere.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None) -> Any:
        super().reset(seed=seed)
        self.time, self.wind = 0, int(self.np_random.integers(2))
        self.place = float(self.np_random.normal(0.0, 100.0))
        return self._observed(), {}

    def step(self, action) -> Any:
        reward = 0.0 if self.time == 0 else (1.0 if action == self.wind else -1.0)
        self.time, self.place = self.time + 1, self.place + (2 * self.wind - 1)
        return self._observed(), reward, self.time == 3, False, {}

    def _observed(self):
        return np.array([self.place], np.float32)


QUICK: dict[str, Any] = {
    "hidden_sizes": (16, 16),
    "quantiles": 5,
    "warmup_steps": 200,
    "outer_interval": 50,
    "learning_rate": 5e-3,
    "adapt": False,
}


@pytest.mark.slow
@pytest.mark.parametrize(("history_length", "value"), [(0, 0.0), (1, 2.0)])
def test_what_lasts_and_is_not_observed_shows_in_what_changes(history_length, value):
    agent = ds.QRDQN(
        Wind(), history_length=history_length, gamma=1.0, min_discount=0.0, **QUICK
    ).learn(4000)
    # Both steps are won by who knows the wind; who does not wins as often as he loses.
    assert agent.simulate_returns(400, seed=1).mean() == pytest.approx(value, abs=0.3)


@pytest.mark.slow
def test_the_memory_lies_between_the_observation_and_what_was_earned():
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", history_length=1, **QUICK).learn(100)
    env = agent.wrap(Counter())
    env.reset(seed=0)
    observation = env.step(1)[0]
    # The time and the last action; how both changed; action 1 of two; s and c.
    np.testing.assert_allclose(observation, [1, 1, 1, 2, 0, 1, 1, 0.99], rtol=1e-6)
    vector = agent.wrap(SyncVectorEnv([Counter]))
    vector.reset(seed=0)
    np.testing.assert_allclose(vector.step(np.array([1]))[0], [observation])
    assert agent.policy.observation_space.shape == (8,)


@pytest.mark.slow
def test_an_agent_without_rewards_in_mind_is_wrapped_as_well():
    agent = ds.QRDQN("CartPole-v1", history_length=1, **QUICK).learn(100)
    observation, _ = agent.wrap().reset(seed=0)
    assert observation.shape == (4 + 4 + 2,)
    assert agent.predict(observation)[0] in (0, 1)
    with pytest.raises(ValueError, match=r"shape \(10,\).*It is an observation of `agent.wrap"):
        agent.predict(observation[:4])


@pytest.mark.slow
def test_a_saved_agent_remembers_as_many_steps(tmp_path):
    agent = ds.QRDQN("CartPole-v1", history_length=2, **QUICK).learn(500)
    again = ds.load(agent.save(tmp_path / "agent"))
    assert again.settings == agent.settings
    seeds = {"episodes": 20, "seed": 3}
    np.testing.assert_array_equal(again.simulate_returns(**seeds), agent.simulate_returns(**seeds))


@pytest.mark.slow
@pytest.mark.parametrize("env", [Masked, Assorted])
def test_masks_and_observations_of_several_kinds_go_together_with_the_past(env):
    agent = ds.QRCVaR(env(), risk="cvar(0.5)", history_length=2, **QUICK).learn(100)
    wrapped = agent.wrap(env())
    observation, info = wrapped.reset(seed=0)
    assert observation.shape == agent.policy.observation_space.shape
    assert observation[-1] == pytest.approx(
        float(agent.outer_variable)
    )  # b stands behind the steps
    action, _ = agent.predict(observation, action_masks=info.get("action_mask"))
    assert wrapped.step(action)[0].shape == observation.shape


class Sevens(Counter):
    """As the counter, but the actions are 7 and 8."""

    action_space = gym.spaces.Discrete(2, start=7)

    def step(self, action) -> Any:
        return super().step(action - 7)


@pytest.mark.slow
def test_actions_that_do_not_start_at_zero_are_remembered_from_zero():
    agent = ds.QRDQN(Sevens(), history_length=1, **{**QUICK, "learning_rate": 3e-3}).learn(2000)
    env = agent.wrap(Sevens())
    action, _ = agent.predict(env.reset(seed=0)[0])
    assert action == 8
    assert env.step(action)[0].tolist() == [1, 1, 1, 2, 0, 1]
    assert agent.simulate_returns(4, seed=0) == pytest.approx((1 - 0.99**4) / 0.01)


@pytest.mark.slow
def test_the_last_observation_of_a_wrapped_vector_has_both_memories():
    agent = ds.QRSRM(Counter(2), risk="cvar(0.5)", **QUICK).learn(100)
    mode = AutoresetMode.SAME_STEP
    vector = agent.wrap(SyncVectorEnv([lambda: Counter(2)], autoreset_mode=mode))
    vector.reset(seed=0)
    vector.step(np.array([1]))
    observations, *_, infos = vector.step(np.array([0]))
    np.testing.assert_allclose(infos["final_obs"][0], [2, 0, 1, -1, 1, 0, 1, 0.99**2], rtol=1e-6)
    np.testing.assert_allclose(observations, [[0, -1, 0, 0, 0, 0, 0, 1]])


def test_the_outer_step_is_compiled_once_for_a_run():
    # Weak types become strong ones in a compiled function, which then is compiled for them again.
    agent = ds.QRDQN(Counter(), **SMALL)
    driver = agent._driver
    assert isinstance(driver.backend, GymBackend)
    state, _ = driver.backend.init(driver.new_spec(100), driver.algorithm, jax.random.key(0))
    leaves = jax.tree.leaves((state.outer, state.has_outer, state.spread, state.best))
    assert leaves
    assert not any(leaf.weak_type for leaf in leaves if isinstance(leaf, jax.Array))
