"""From what a user writes to settings: presets, changes, stable-baselines3's names."""

import dataclasses
import json
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import numpy as np
import pytest

import downside as ds
from downside.agents import DQN, SRM, GymnasiumSettings, ICVaR, SimulatorSettings, StaticCVaR
from downside.train.config import GYMNASIUM, PAPER, check_timesteps, resolve, translate

from .tiny import make
from .toys import Counter

# --- presets and changes ------------------------------------------------------------------------


def settings(algorithm, kind, _preset: Any = "default", **changes: Any) -> Any:
    return resolve(algorithm, kind, _preset, changes)


def test_the_defaults_of_the_fields_are_those_of_environments_in_jax():
    assert settings(SRM, SimulatorSettings) == SimulatorSettings()


def test_other_environments_have_other_defaults_and_so_have_algorithms():
    default = settings(SRM, GymnasiumSettings)
    expected = {**GYMNASIUM, **SRM.gymnasium_preset}
    assert {name: getattr(default, name) for name in expected} == expected
    assert settings(DQN, GymnasiumSettings).memory_noise == 0.0


def test_presets_name_settings_that_exist():
    both = {
        field.name
        for kind in (SimulatorSettings, GymnasiumSettings)
        for field in dataclasses.fields(kind)
    }
    assert set(PAPER) <= both
    assert set(GYMNASIUM) <= {field.name for field in dataclasses.fields(GymnasiumSettings)}


@pytest.mark.parametrize("kind", [SimulatorSettings, GymnasiumSettings])
def test_the_paper_is_what_its_preset_says(kind):
    made = dataclasses.asdict(settings(SRM, kind, "paper"))
    assert {name: made[name] for name in PAPER if name in made} == {
        name: value for name, value in PAPER.items() if name in made
    }
    assert not made["keep_best"]
    # What the paper states: appendix "Details of the Environments".
    assert (made["quantiles"], made["batch_size"], made["gamma"]) == (50, 256, 0.99)
    assert (made["hidden_sizes"], made["learning_rate"]) == ((128, 128, 128), 2.5e-4)
    if kind is SimulatorSettings:
        assert kind(**made).branches == 0  # nothing is simulated to learn from


def test_changes_win_over_defaults_and_fixed_settings_over_both():
    assert settings(SRM, SimulatorSettings, "paper", kappa=0.3).kappa == 0.3
    assert settings(DQN, SimulatorSettings).critic == "quantiles"
    assert settings(DQN, SimulatorSettings, critic="quantiles").critic == "quantiles"
    with pytest.raises(ValueError, match=r"`critic` must be 'quantiles' for this agent, got 'util"):
        settings(DQN, SimulatorSettings, critic="utility")
    with pytest.raises(ValueError, match=r"`num_envs` must be 3 for this agent, got 4\. Leave it"):
        resolve(DQN, GymnasiumSettings, "default", {"num_envs": 4}, 3)


@pytest.mark.parametrize(
    ("kind", "name", "remedy"),
    [
        (GymnasiumSettings, "top_actions", "It is for environments written in JAX"),
        (GymnasiumSettings, "outer", "It is for environments written in JAX"),
        (GymnasiumSettings, "shifts", "It is for environments written in JAX"),
        (SimulatorSettings, "history_length", "It is for environments that are not written in JAX"),
        (SimulatorSettings, "min_discount", "It is for environments that are not written in JAX"),
        (SimulatorSettings, "averaging", "It is for environments that are not written in JAX"),
    ],
)
def test_a_setting_of_the_other_world_does_not_exist(kind, name, remedy):
    with pytest.raises(TypeError, match=f"There is no setting `{name}` for this env.*{remedy}"):
        settings(SRM, kind, **{name: 0})


@pytest.mark.parametrize("name", ["trials", "double", "exploration_initial", "hidden"])
def test_a_setting_that_is_nowhere_is_refused_with_those_that_are(name):
    with pytest.raises(TypeError, match=f"There is no setting `{name}`.*The settings are: gamma"):
        settings(SRM, GymnasiumSettings, **{name: 0})


def test_a_preset_that_is_none_is_refused_with_the_closest():
    with pytest.raises(
        ValueError, match=r"`preset` must be one of default, paper, got 'papr'.*paper"
    ):
        settings(SRM, SimulatorSettings, "papr")


@pytest.mark.parametrize(
    ("name", "value"), [("averaging", 1.1), ("min_discount", -0.1), ("averaging", float("nan"))]
)
def test_a_share_that_is_none_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"`{name}` must be a number in \[0, 1\], got"):
        settings(DQN, GymnasiumSettings, **{name: value})


def test_agents_that_are_shown_what_they_earned_are_shown_the_last_step_by_default():
    kinds = {SRM: 1, StaticCVaR: 1, ICVaR: 0, DQN: 0}
    for algorithm, history_length in kinds.items():
        assert settings(algorithm, GymnasiumSettings).history_length == history_length


def test_the_update_ratio_does_not_depend_on_the_number_of_environments():
    def ratio(made):
        return made.updates_per_step, made.update_interval, made.num_envs

    assert ratio(ds.QRDQN(gym.make("CartPole-v1")).settings) == (1, 4, 1)
    assert ratio(ds.QRDQN("CartPole-v1").settings) == (2, 1, 8)
    more = ds.QRDQN("CartPole-v1", num_envs=32).settings
    handed = ds.QRDQN(gym.make_vec("CartPole-v1", num_envs=32, vectorization_mode="sync")).settings
    assert more == handed
    assert ratio(more) == (8, 1, 32)


def test_the_default_outer_interval_is_a_multiple_of_the_updates():
    # 7 updates a round: 500 / 7 is 71 rounds.
    assert settings(DQN, GymnasiumSettings, updates_per_step=7).outer_interval == 497
    with pytest.raises(
        ValueError, match=r"`outer_interval` must be a multiple of .*\(7\), got 500"
    ):
        settings(DQN, GymnasiumSettings, updates_per_step=7, outer_interval=500)


def test_a_module_as_network_is_one_and_a_function_makes_as_many_as_are_asked_for():
    module = eqx.nn.MLP(2, 8, 8, 1, key=jax.random.key(0))
    assert ds.QRDQN(Counter(), network=module).settings.num_critics == 1
    with pytest.raises(
        ValueError, match="`num_critics` must be 1 with a `network` that is a modul"
    ):
        ds.QRDQN(Counter(), network=module, num_critics=2)
    made = ds.QRDQN(Counter(), network=lambda key, size: eqx.nn.MLP(size, 8, 8, 1, key=key))
    assert made.settings.num_critics == 2


@pytest.mark.parametrize("wanted", [0, -5, np.nan, True, "many"])
def test_timesteps_must_be_a_positive_number(wanted):
    with pytest.raises(ValueError, match=r"`total_timesteps` must be a number >= 1, got"):
        check_timesteps(wanted, make().settings)


def test_without_a_number_of_steps_the_settings_say_it():
    assert check_timesteps(None, make(total_timesteps=64).settings) == 64
    assert check_timesteps(1e3, make().settings) == 1000


# --- stable-baselines3 --------------------------------------------------------------------------

BASE = {"num_envs": 1, "update_interval": 1, "updates_per_step": 1}


@pytest.mark.long  # docs/how-to/coming-from-sb3.md runs in every test run
def test_a_script_for_another_library_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # --- the script, as it stands in their documentation ---------------------------------------
    from downside import QRDQN, evaluate_policy

    env = gym.make("CartPole-v1")
    policy_kwargs = {"n_quantiles": 25, "net_arch": [64, 64]}
    model = QRDQN(
        "MlpPolicy",
        env,
        policy_kwargs=policy_kwargs,
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1000,
        gamma=0.99,
        target_update_interval=10,
        train_freq=4,
        gradient_steps=2,
        exploration_fraction=0.3,
        exploration_final_eps=0.04,
        tensorboard_log="./logs/",
        verbose=0,
        seed=1,
    )
    model.learn(total_timesteps=10_000, log_interval=4, tb_log_name="cartpole")
    mean_reward, std_reward = evaluate_policy(model, model.get_env(), n_eval_episodes=10)
    model.save("qrdqn_cartpole")

    del model
    model = QRDQN.load("qrdqn_cartpole", env=env)
    obs, _ = env.reset(seed=0)
    total = 0.0
    while True:
        action, _states = model.predict(obs, deterministic=True)
        obs, reward, terminated, truncated, _info = env.step(action)
        total += float(reward)
        if terminated or truncated:
            break
    # -----------------------------------------------------------------------------------------
    assert mean_reward > 50  # random play gets 22
    assert std_reward >= 0
    assert total > 40
    lines = (tmp_path / "logs" / "cartpole_1" / "progress.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["timesteps"] > 5_000
    assert list((tmp_path / "logs" / "cartpole_1").glob("events.out.tfevents.*"))


def test_their_names_become_ours():
    given = {
        "learning_starts": 500,
        "tau": 0.5,
        "exploration_final_eps": 0.1,
        "train_freq": 4,
        "gradient_steps": 1,
        "policy_kwargs": {"net_arch": [32], "n_quantiles": 10},
        "device": "cpu",
        "kappa": 0.3,
    }
    assert translate(given, BASE) == {
        "warmup_steps": 500,
        "target_rate": 0.5,
        "exploration_final": 0.1,
        "update_interval": 4,
        "updates_per_step": 1,
        "hidden_sizes": (32,),
        "quantiles": 10,
        "kappa": 0.3,
    }


def test_the_interval_of_targets_is_counted_in_updates():
    # 1000 steps are 250 rounds of 4 steps with 2 updates each.
    given = {"train_freq": 4, "gradient_steps": 2, "target_update_interval": 1000}
    assert translate(given, BASE)["target_interval"] == 500
    # With 8 environments a round is 32 steps, so that they are 32 rounds (1000 / 32, rounded up).
    assert translate(given, {**BASE, "num_envs": 8})["target_interval"] == 64
    # What is not said is as it is by default: here 10 rounds of 100 steps with 2 updates each.
    base = {"num_envs": 25, "update_interval": 4, "updates_per_step": 2}
    assert translate({"target_update_interval": 1000}, base)["target_interval"] == 20


def test_exploration_starts_with_random_actions():
    assert translate({"exploration_initial_eps": 1.0}, BASE) == {}
    with pytest.raises(ValueError, match=r"`exploration_initial_eps` must be 1, got 0\.5"):
        translate({"exploration_initial_eps": 0.5}, BASE)


def test_as_many_updates_as_steps():
    given = {"gradient_steps": -1, "train_freq": 4}
    assert translate(given, {**BASE, "num_envs": 2})["updates_per_step"] == 8


def test_steps_of_theirs_are_steps_whatever_our_defaults():
    # 8 environments with two updates after each step of all: 1,000 steps are 250 updates.
    eight = ds.QRDQN("MlpPolicy", "CartPole-v1", target_update_interval=1000).settings
    assert (eight.target_interval, eight.updates_per_step, eight.num_envs) == (250, 2, 8)
    single = ds.QRDQN("MlpPolicy", gym.make("CartPole-v1"), target_update_interval=1000).settings
    assert (single.target_interval, single.updates_per_step, single.update_interval) == (250, 1, 4)
    ten = ds.QRDQN("CartPole-v1", preset="paper", gradient_steps=-1).settings
    assert (ten.updates_per_step, ten.num_envs) == (10, 10)
    ours = ds.QRDQN("downside/CliffWalk-v0", target_update_interval=2560).settings
    assert ours.target_interval == 10 * ours.updates_per_step


def test_what_a_network_may_be_told():
    with pytest.raises(TypeError, match=r"`policy_kwargs` may have n_quantiles and net_arch, got"):
        ds.QRDQN("MlpPolicy", "CartPole-v1", policy_kwargs={"features_extractor_class": None})


def test_a_name_that_neither_knows_is_refused_with_the_closest():
    with pytest.raises(TypeError, match=r"There is no setting `learning_rat`\. Did you mean"):
        ds.QRDQN("MlpPolicy", "CartPole-v1", learning_rat=1e-3)
