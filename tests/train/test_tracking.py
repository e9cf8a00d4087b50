"""Habits of other libraries: schedules as functions, clipped gradients, vector environments of
stable-baselines3, the best model, and callbacks for tuning and tracking."""

import re
import sys
import types
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import downside as ds
from downside.agents import GymnasiumSettings
from downside.agents.optimisers import make_optimiser
from downside.envs.gymnasium.sb3_vector_env import Sb3VectorEnv, from_sb3
from downside.train.config import sampled_schedule

from .tiny import SMALL, TWO, make

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "tuning-and-tracking.md"


def rates(optimiser, updates):
    """The sizes of Adam's steps for a constant gradient: the learning rates."""
    state, weights, sizes = optimiser.init(jnp.zeros(1)), jnp.zeros(1), []
    for _ in range(updates):
        change, state = optimiser.update(jnp.ones(1), state, weights)
        sizes.append(-float(change[0]))
    return np.array(sizes)


def test_a_learning_rate_may_be_a_function_of_what_is_left_of_the_run():
    agent = ds.QRDQN("CartPole-v1", learning_rate=lambda left: 1e-3 * left, **SMALL)
    assert agent.settings.learning_rate == 1e-3
    # From 1e-3 down a line to 0: after 3 of 10 updates, 7e-4.
    sizes = rates(make_optimiser(agent.settings, 10), 10)
    np.testing.assert_allclose(sizes[[0, 3, 9]], [1e-3, 7e-4, 1e-4], rtol=1e-3)


@pytest.mark.slow
def test_a_schedule_is_saved_with_the_agent(tmp_path):
    agent = make(learning_rate=lambda left: 0.01 if left > 0.5 else 0.001).learn(TWO)
    again = ds.load(agent.save(tmp_path / "agent"))
    assert again.settings == agent.settings
    assert set(np.round(again.settings.learning_rate_schedule, 6)) == {1.0, 0.1}


@pytest.mark.parametrize("function", [lambda left: -left, lambda left: 0.0, lambda left: "small"])
def test_functions_that_are_no_schedules_are_refused(function):
    with pytest.raises(ValueError, match="`learning_rate` as a function must return a number >= 0"):
        sampled_schedule({"learning_rate": function})
    with pytest.raises(ValueError, match=r"`learning_rate_schedule` must be empty or at least two"):
        GymnasiumSettings(learning_rate_schedule=(0.5,))


def test_gradients_are_clipped_for_every_agent():
    settings = GymnasiumSettings(optimiser="adam", final_learning_rate=1.0, max_grad_norm=0.5)
    optimiser = make_optimiser(settings, 10)
    state = optimiser.init(jnp.zeros(2))
    _, state = optimiser.update(jnp.array([3.0, 4.0]), state, jnp.zeros(2))
    # A gradient of norm 5 becomes one of norm 0.5; Adam's mean is a tenth of it.
    mean = optax.tree.get(state, "mu")
    np.testing.assert_allclose(mean, [0.03, 0.04], rtol=1e-5)
    unclipped = make_optimiser(GymnasiumSettings(optimiser="adam"), 10)
    assert jax.tree.structure(unclipped.init(jnp.zeros(2))) != jax.tree.structure(state)


class Vec:
    """What stable-baselines3's `DummyVecEnv` does, for CartPole; with their names."""

    def __init__(self, count=2, limit=20):
        self.envs = [gym.make("CartPole-v1", max_episode_steps=limit) for _ in range(count)]
        self.num_envs, self.reset_infos = count, [{} for _ in range(count)]
        self.observation_space, self.action_space = (
            self.envs[0].observation_space,
            self.envs[0].action_space,
        )
        self._seeds = [None] * count

    def seed(self, seed=None):
        self._seeds = [None if seed is None else seed + i for i in range(self.num_envs)]

    def reset(self):
        pairs = [env.reset(seed=seed) for env, seed in zip(self.envs, self._seeds, strict=True)]
        self._seeds = [None] * self.num_envs
        return np.stack([observation for observation, _ in pairs])

    def step_async(self, actions):
        self._actions = actions

    def step_wait(self):
        observations, rewards, dones, infos = [], [], [], []
        for env, action in zip(self.envs, self._actions, strict=True):
            observation, reward, terminated, truncated, info = env.step(int(action))
            info["TimeLimit.truncated"] = truncated and not terminated
            if terminated or truncated:
                info["terminal_observation"] = observation
                observation, _ = env.reset()
            observations.append(observation)
            rewards.append(reward)
            dones.append(terminated or truncated)
            infos.append(info)
        return np.stack(observations), np.array(rewards), np.array(dones), infos

    def step(self, actions):
        self.step_async(actions)
        return self.step_wait()

    def close(self):
        pass


def test_a_vector_environment_of_stable_baselines_is_one_of_gymnasium():
    theirs, ours = from_sb3(Vec()), gym.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    assert isinstance(theirs, Sb3VectorEnv)
    np.testing.assert_array_equal(theirs.reset(seed=3)[0], ours.reset(seed=3)[0])
    kinds = set()
    for step in range(60):
        # One always pushes left and falls; the other one lives until its time is up.
        actions = np.array([0, step % 2])
        observations, _, ended, truncated, infos = theirs.step(actions)
        for i in np.flatnonzero(ended | truncated):
            kinds.add((int(i), bool(ended[i])))
            assert not np.array_equal(infos["final_obs"][i], observations[i])
            assert infos["_final_obs"][i]
    assert kinds == {(0, True), (1, False)}
    env = gym.make("CartPole-v1")
    assert from_sb3(env) is env


@pytest.mark.slow
def test_agents_learn_and_are_evaluated_in_them(tmp_path):
    best = ds.Evaluations(50, episodes=4, best_model_save_path=tmp_path)
    agent = ds.QRDQN("MlpPolicy", Vec(), **SMALL).learn(200, best)
    assert agent.settings.num_envs == 2
    mean, _ = ds.evaluate_policy(agent, Vec(), n_eval_episodes=4, seed=0)
    assert 5 < mean <= 20
    assert ds.load(tmp_path / "best_model", env=Vec()).num_timesteps > 0
    assert best.best == max(result["eval/mean"] for result in best.results)


@pytest.mark.long
def test_the_callbacks_on_the_page_do_what_it_says(monkeypatch, tmp_path):
    """With stand-ins for Optuna, Weights & Biases and MLflow, which are no dependencies."""
    log = []
    modules: list[Any] = [types.ModuleType(name) for name in ("optuna", "wandb", "mlflow")]
    optuna, wandb, mlflow = modules

    class TrialPruned(Exception):  # noqa: N818
        pass

    class Trial:
        def __init__(self, number):
            self.number, self.reports = number, []

        def suggest_float(self, name, low, high, log=False):
            return low if self.number else high

        def suggest_categorical(self, name, options):
            return options[0]

        def report(self, value, step):
            assert np.isfinite(value)
            self.reports.append(step)

        def should_prune(self):
            return self.number == 1 and len(self.reports) == 2

    class Study:
        best_params, best_value = {}, 0.0

        def optimize(self, objective, n_trials):
            for number in range(2):
                trial = Trial(number)
                try:
                    log.append(("value", objective(trial)))
                except TrialPruned:
                    log.append(("pruned", len(trial.reports)))

    optuna.TrialPruned = TrialPruned
    optuna.create_study = lambda **_: Study()
    optuna.pruners = types.SimpleNamespace(MedianPruner=lambda **_: None)

    class Run:
        def log(self, values, step):
            log.append(("wandb", step, values["value"]))

        def finish(self):
            log.append(("wandb", "end"))

    wandb.init = lambda **_: Run()
    mlflow.log_params = lambda values: log.append(("params", len(values)))
    mlflow.log_metrics = lambda values, step: log.append(("mlflow", step))
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), {})  # noqa: S102
    kinds = [entry[0] for entry in log]
    assert kinds.count("value") == 1
    assert ("pruned", 2) in log
    assert kinds.count("wandb") >= 2
    assert kinds.count("mlflow") >= 1
    assert ("wandb", "end") in log
