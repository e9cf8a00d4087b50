from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec

from downside._registration import register_environments
from downside.envs import (
    AmericanPut,
    BettingGame,
    CliffWalk,
    DualCounterexample,
    GamblersRuin,
    GuardedMaze,
    GymnasiumEnv,
    GymnasiumVectorEnv,
    Hedging,
    Inventory,
    JaxMemoryAware,
    MachineReplacement,
    MeanReversion,
    MemoryAware,
    NoMemoryInput,
    Portfolio,
    ReturnAware,
    ReturnInput,
    RiverSwim,
    TargetAware,
    TargetInput,
    make_jax,
    registered,
)


def test_all_environments_are_registered_with_a_line_about_each():
    listed = {entry.id: entry.problem for entry in registered()}
    assert listed == {
        "downside/AmericanPut-v0": AmericanPut,
        "downside/MeanReversion-v0": MeanReversion,
        "downside/CliffWalk-v0": CliffWalk,
        "downside/GuardedMaze-v0": GuardedMaze,
        "downside/Hedging-v0": Hedging,
        "downside/Portfolio-v0": Portfolio,
        "downside/MachineReplacement-v0": MachineReplacement,
        "downside/GamblersRuin-v0": GamblersRuin,
        "downside/Inventory-v0": Inventory,
        "downside/RiverSwim-v0": RiverSwim,
        "downside/BettingGame-v0": BettingGame,
        "downside/DualCounterexample-v0": DualCounterexample,
        "downside/WindyLunarLander-v0": None,
        "downside/RiskyLunarLander-v0": None,
    }
    assert all(entry.description for entry in registered())
    assert all(entry.id in gym.registry for entry in registered())


def test_registering_twice_changes_nothing():
    before = dict(gym.registry)
    register_environments()
    assert gym.registry == before


def test_an_id_with_parameters_gives_the_core():
    assert make_jax("downside/MeanReversion-v0", sigma=0.5) == MeanReversion(sigma=0.5)
    assert make_jax("downside.envs:downside/CliffWalk-v0", rows=3) == CliffWalk(rows=3)


def test_a_core_is_its_own_core():
    core = AmericanPut(sigma=0.1)
    assert make_jax(core) is core


def test_the_core_is_found_under_gymnasiums_harmless_wrappers():
    env = gym.wrappers.RecordEpisodeStatistics(gym.make("downside/AmericanPut-v0", sigma=0.5))
    assert make_jax(env) == AmericanPut(sigma=0.5)
    envs = gym.make_vec("downside/AmericanPut-v0", num_envs=2, kind="call")
    assert isinstance(envs, GymnasiumVectorEnv)
    assert make_jax(envs) == AmericanPut(kind="call")


def test_a_wrapped_environment_gives_a_core_that_remembers_the_same():
    env = gym.make("downside/MeanReversion-v0")
    aware = make_jax(ReturnAware(env, 0.9, reward_scale=0.1))
    assert aware == JaxMemoryAware(MeanReversion(), ReturnInput(), 0.9, 0.1)
    envs = ReturnAware(gym.make_vec("downside/MeanReversion-v0", num_envs=2), 0.9)
    assert make_jax(envs) == JaxMemoryAware(MeanReversion(), ReturnInput(), 0.9)
    plain = make_jax(MemoryAware(env, NoMemoryInput(), 0.9))
    assert plain == JaxMemoryAware(MeanReversion(), NoMemoryInput(), 0.9)


@pytest.mark.parametrize("vector", [False, True])
def test_the_core_has_the_target_of_the_next_episode(vector):
    env_id = "downside/MeanReversion-v0"
    env: Any = gym.make_vec(env_id, num_envs=2) if vector else gym.make(env_id)
    aware: Any = TargetAware(env, 0.9, 2.0)
    aware.reset(seed=0)
    assert make_jax(aware) == JaxMemoryAware(MeanReversion(), TargetInput(2.0), 0.9)
    aware.set_target(3.0)
    assert make_jax(aware) == JaxMemoryAware(MeanReversion(), TargetInput(3.0), 0.9)


@pytest.mark.parametrize(("limit", "has_core"), [(10, True), (9, False)])
def test_a_time_limit_hides_the_core_only_if_it_bites(limit, has_core):
    env = gym.make("downside/MeanReversion-v0", max_episode_steps=limit)
    assert (make_jax(env) is not None) == has_core


def test_what_is_not_written_in_jax_has_no_core():
    assert make_jax("downside/WindyLunarLander-v0") is None
    assert make_jax("CartPole-v1") is None
    assert make_jax(gym.make("CartPole-v1")) is None
    assert make_jax(ReturnAware(gym.make("CartPole-v1"), 0.9)) is None


def test_a_wrapper_that_changes_the_problem_hides_the_core():
    env = gym.wrappers.TransformReward(
        GymnasiumEnv("MeanReversion"), lambda reward: 2 * float(reward)
    )
    assert make_jax(env) is None


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("downside/MeanReversoin-v0", "downside/MeanReversion-v0"),
        ("MeanReversion", "downside/MeanReversion-v0"),
        ("american_put", "downside/AmericanPut-v0"),
        ("CartPoel-v1", "CartPole-v1"),
    ],
)
def test_a_misspelt_id_is_met_with_the_closest_one(wrong, right):
    with pytest.raises(ValueError, match=rf"got '{wrong}'. Did you mean '{right}'\?"):
        make_jax(wrong)


def test_an_id_like_no_other_is_met_with_the_list():
    with pytest.raises(ValueError, match=r"got 'xyz'. Ours are: downside/AmericanPut-v0, "):
        make_jax("xyz")


@pytest.mark.parametrize("env", [AmericanPut(), GymnasiumEnv("AmericanPut")])
def test_parameters_for_an_environment_that_exists_are_refused(env):
    with pytest.raises(TypeError, match=r"\['sigma'\] cannot be set"):
        make_jax(env, sigma=1.0)


def test_what_is_no_environment_is_refused():
    with pytest.raises(TypeError, match=r"`env` must be an environment id, .* got 3"):
        make_jax(3)


def test_the_spec_of_an_environment_survives_json():
    spec = gym.make("downside/AmericanPut-v0", sigma=0.5).spec
    assert spec is not None
    again = gym.make(EnvSpec.from_json(spec.to_json()))
    assert make_jax(again) == AmericanPut(sigma=0.5)
