"""AC-SRM as an agent: actions of all kinds, counting, files, clock, explanation."""

from typing import Any

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import downside as ds
from downside.agents import LivedSRM
from downside.envs import MeanReversion
from downside.train.backends.on_policy.backend import OnPolicyBackend
from downside.train.backends.on_policy.program import increments

from ...tiny import state_of
from ...toys import Counter, Masked, Noisy

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "n_steps": 8,
    "epochs": 2,
    "hidden_sizes": (8,),
    "quantiles": 5,
    "evaluation_fraction": 0.0,
}
FITTED: dict[str, Any] = {**SMALL, "evaluation_fraction": 20.0}
ITERATION = 32
"""Steps of an iteration."""
gym.register("tests/Counter-v0", lambda **parameters: Counter(**parameters))
gym.register("tests/Noisy-v0", lambda **parameters: Noisy(**parameters))


class Two(Counter):
    """Two choices; the first action of the second one is illegal in even steps; pays their sum."""

    action_space = gym.spaces.MultiDiscrete([2, 3])

    def mask(self):
        return np.array([1, 1, self.time % 2, 1, 1], bool)

    def reset(self, *, seed=None, options=None) -> Any:
        observation, _ = super().reset(seed=seed)
        return observation, {"action_mask": self.mask()}

    def step(self, action) -> Any:
        assert self.action_space.contains(np.asarray(action))
        if not self.mask()[2 + action[1]]:
            raise AssertionError("an illegal action was taken")
        observation, _, terminated, truncated, _ = super().step(int(action[0]))
        return observation, float(sum(action)), terminated, truncated, {"action_mask": self.mask()}


class Aim(Counter):
    """Pays minus the squared distance from 0.5 in each of three coordinates."""

    action_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)

    def step(self, action) -> Any:
        assert self.action_space.contains(action)
        observation, _, *rest = super().step(0)
        return observation, -float(((np.asarray(action) - 0.5) ** 2).sum()), *rest


class Steady(Counter):
    """As the counter, but every observation is the same."""

    def step(self, action) -> Any:
        _, *rest = super().step(action)
        return np.array([0.0, -1.0], np.float32), *rest


def vector(make, count=4):
    return gym.vector.SyncVectorEnv([make] * count, autoreset_mode=AutoresetMode.SAME_STEP)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "best"),
    [
        (lambda: Counter(length=3), 1 + 0.99 + 0.99**2),
        (lambda: Aim(length=3), 0.0),
        (lambda: Two(length=2), 3.0 * (1 + 0.99)),
        (lambda: Masked(length=4), 0.99 + 0.99**3),
    ],
    ids=["Discrete", "Box", "MultiDiscrete", "masked"],
)
def test_it_finds_what_pays_whatever_the_actions_are(make, best):
    env = vector(make, 16)
    agent = ds.ACSRM(env, risk="cvar(0.5)", **{**SMALL, "num_envs": 16, "epochs": 8})
    agent.learn(40 * 16 * 8)
    returns = agent.simulate_returns(8, seed=0)
    np.testing.assert_allclose(returns, best, atol=0.12)


@pytest.mark.slow
def test_steps_are_counted_and_so_are_those_of_the_last_episodes():
    agent = ds.ACSRM(vector(Counter), risk="cvar(0.5)", **{**SMALL, "evaluation_fraction": 0.5})
    agent.learn(3 * ITERATION)
    assert agent.num_timesteps == 3 * ITERATION
    assert [entry["timesteps"] for entry in agent.history] == [32, 64, 96]
    # Eight episodes of four steps were played at random, to see how long they are.
    assert agent.simulated_steps == 3 * ITERATION // 2 + 8 * 4
    assert agent.history[-1]["episodes"] == 3 * ITERATION // 4


@pytest.mark.slow
def test_increments_of_h_add_up_to_the_utility_of_the_return():
    agent = ds.ACSRM(vector(Noisy, 1), risk="cvar(0.5)", **{**SMALL, "num_envs": 1})
    agent.learn(64)
    backend, spec = agent._driver.backend, agent._driver.spec
    state, algorithm = state_of(agent), agent._driver.algorithm
    assert isinstance(backend, OnPolicyBackend)
    assert isinstance(algorithm, LivedSRM)
    assert spec is not None
    backend.resume(spec, state, 0)
    steps, ended = backend._collect(spec, algorithm, state, 0)
    paid = increments(algorithm, state.outer, steps)[:4, 0]
    h, c = agent._driver.algorithm.utility(state.outer), 0.99 ** np.arange(4)
    assert ended.shape == (2, 3)
    np.testing.assert_allclose((c * paid).sum(), h(ended[0, 0]) - h(0.0), rtol=1e-5)


@pytest.mark.slow
def test_a_truncated_episode_goes_on_in_the_eyes_of_the_critic():
    agents = [
        ds.ACSRM(
            vector(lambda truncates=truncates: Steady(length=2, truncates=truncates), 8),
            risk="mean",
            gamma=0.9,
            **{**SMALL, "num_envs": 8, "epochs": 8, "learning_rate": 1e-2, "step_inputs": 0},
        ).learn(60 * 64)
        for truncates in (False, True)
    ]
    start = jnp.array([0.0, -1.0])
    ends, goes_on = (float(agent.networks.critic(start)[0]) for agent in agents)
    # The mean of 1.9 and 1 where it is over after two steps; up to 1 / (1 - 0.9) where it is cut.
    assert ends == pytest.approx(1.45, abs=0.2)
    assert goes_on > 4.0


@pytest.mark.slow
@pytest.mark.parametrize("env", ["tests/Noisy-v0", MeanReversion(periods=3, continuous=True)])
def test_an_agent_is_the_same_after_saving_and_loading_and_goes_on(tmp_path, env):
    agent = ds.ACSRM(env, risk="cvar(0.5)", **SMALL).learn(2 * ITERATION)
    loaded = ds.load(agent.save(tmp_path / "agent"), env if not isinstance(env, str) else None)
    assert loaded.history == agent.history
    np.testing.assert_array_equal(
        loaded.simulate_returns(20, seed=3), agent.simulate_returns(20, seed=3)
    )
    loaded.learn(ITERATION, reset_num_timesteps=False)
    assert loaded.num_timesteps == 3 * ITERATION
    agent.learn(ITERATION)
    assert agent.num_timesteps == ITERATION


@pytest.mark.slow
def test_the_same_seed_gives_the_same_agent_and_another_seed_another():
    returns = [
        ds.ACSRM("tests/Noisy-v0", risk="cvar(0.5)", seed=seed, **SMALL)
        .learn(64)
        .history[-1]["mean"]
        for seed in (0, 0, 1)
    ]
    assert returns[0] == returns[1] != returns[2]


@pytest.mark.slow
def test_without_a_discount_the_networks_see_the_time():
    agent = ds.ACSRM("tests/Counter-v0", risk="cvar(0.5)", gamma=1.0, **SMALL).learn(ITERATION)
    env = agent.wrap()
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(observation, [0, -1, 0, 0, 1])  # shown, clock, s, c
    observation, *_ = env.step(1)
    np.testing.assert_array_equal(observation, [1, 1, 1, 1, 1])
    assert agent.predict(observation)[0] in (0, 1)
    plain = ds.ACSRM("tests/Counter-v0", risk="cvar(0.5)", **SMALL)
    assert plain._driver.backend.observation_space.shape == (2,)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tests/Noisy-v0", "Pendulum-v1"])
def test_return_distributions_are_learned_and_explained(name):
    few = {"max_episode_steps": 4}
    agent = ds.ACSRM(name, risk="cvar(0.5)", env_kwargs=few, **FITTED)
    agent.learn(4 * ITERATION)
    env = agent.wrap()
    observation, _ = env.reset(seed=0)
    actions = 2 if name == "tests/Noisy-v0" else 1
    assert agent.return_distribution(observation).shape == (actions, 5)
    assert agent.scores(observation).shape == (actions,)
    explanation = ds.explain(agent, episodes=1, checks=4)
    assert explanation.kind == "learned"
    step = explanation.episodes[0].steps[0]
    assert step.action in step.actions
    assert len(step.action_values) == len(step.actions) > 1


@pytest.mark.slow
def test_the_learned_distribution_is_that_of_what_follows():
    class Coin(Counter):
        """One step: action 1 pays -1 or 1, action 0 nothing."""

        def step(self, action) -> Any:
            observation, _, *rest = super().step(action)
            return observation, float(action * self.np_random.choice([-1.0, 1.0])), *rest

    env = vector(lambda: Coin(length=1), 4)
    agent = ds.ACSRM(env, risk="cvar(0.5)", **FITTED)
    agent.learn(2 * ITERATION)
    safe, bold = agent.return_distribution(np.array([0.0, -1.0, 0.0, 1.0], np.float32))
    np.testing.assert_allclose(safe, 0.0, atol=0.15)
    np.testing.assert_allclose(bold[[0, -1]], [-1.0, 1.0], atol=0.15)


def test_settings_of_stable_baselines3_and_errors():
    agent = ds.ACSRM("tests/Counter-v0", risk="mean", n_epochs=3, clip_range=0.1, ent_coef=0.01)
    assert (agent.settings.epochs, agent.settings.clip_range) == (3, 0.1)
    with pytest.raises(TypeError, match=r"no setting `kappa` for AC-SRM. It is for the QR agents"):
        ds.ACSRM("tests/Counter-v0", risk="mean", kappa=1.0)
    with pytest.raises(ValueError, match="`agent` must be one that learns in a compiled program"):
        ds.train_many(MeanReversion(periods=3), risks=["mean"], agent=ds.ACSRM)


@pytest.mark.slow
def test_an_environment_in_jax_is_evaluated_compiled():
    agent = ds.ACSRM(MeanReversion(periods=3), risk="cvar(0.5)", **SMALL).learn(ITERATION)
    assert agent.jax_env is not None
    assert agent.aligned
    assert agent.simulate_returns(5000, seed=0).shape == (5000,)
