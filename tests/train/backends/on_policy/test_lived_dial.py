"""A dial of AC-SRM as an agent: learned, turned, saved, resumed, explained, exported, compared."""

from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import downside as ds

from ...tiny import same
from ...toys import Counter, Noisy

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "n_steps": 8,
    "epochs": 2,
    "hidden_sizes": (8,),
    "quantiles": 5,
    "evaluation_fraction": 0.0,
    "adapt": False,
}
gym.register("tests/NoisyDial-v0", lambda **parameters: Noisy(**parameters))


class Gamble(Counter):
    """One step: action 1 pays 1, or -1 with probability 0.3; action 0 nothing."""

    def __init__(self):
        super().__init__(length=1)

    def step(self, action) -> Any:
        observation, _, *rest = super().step(action)
        paid = 1.0 if self.np_random.random() > 0.3 else -1.0
        return observation, float(action * paid), *rest


def copies(kind, count=6):
    return SyncVectorEnv([kind] * count, autoreset_mode=AutoresetMode.SAME_STEP)


@pytest.fixture(scope="module", autouse=True)
def few_episodes():
    """The search for a target in few episodes."""
    from downside.train import dial

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dial, "_LIVED_EPISODES", (8, 8))
        yield


@pytest.fixture(scope="module")
def dial(few_episodes):
    return ds.ACSRM("tests/NoisyDial-v0", risk="dial", seed=1, **SMALL).learn(96)


@pytest.mark.slow
def test_one_dial_gambles_for_the_mean_and_does_not_for_the_tail():
    agent = ds.ACSRM(
        copies(Gamble, 64),
        risk="dial",
        **{**SMALL, "num_envs": 64, "epochs": 6, "learning_rate": 5e-3, "gamma": 1.0},
    ).learn(60 * 64 * 8)
    bold, middle, cautious = (
        agent.at(measure).simulate_returns(200, seed=0)
        for measure in ("mean", "0.7*mean + 0.3*cvar(0.2)", "cvar(0.2)")
    )
    assert bold.mean() > 0.2
    assert bold.min() == -1.0
    # 0.7 * 0.4 - 0.3 = -0.02 of the gamble is as good as nothing: either is right.
    assert set(np.unique(middle)) in ({0.0}, {-1.0, 1.0})
    np.testing.assert_array_equal(cautious, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["mean", "cvar(0.05)", "0.5*mean + 0.5*cvar(0.2)"])
def test_an_agent_of_a_dial_is_an_agent_for_its_measure(dial, measure):
    agent = dial.at(measure)
    assert agent.risk == ds.parse(measure)
    assert np.isfinite(ds.evaluate(agent, episodes=20).value(measure))
    observation, _ = agent.wrap().reset(seed=0)
    assert agent.predict(observation)[0] in (0, 1)
    assert dial.at(measure).targets[measure] is agent.targets[measure]
    assert float(agent.outer_variable.position.target) == pytest.approx(
        agent.targets[measure].target, rel=1e-6
    )


@pytest.mark.slow
def test_the_steps_of_the_search_are_counted(dial):
    before = dial.simulated_steps
    agent = dial.at("cvar(0.37)")
    # 5 targets, 8 episodes of 4 steps for each; more where the last one is the best.
    assert agent.simulated_steps - before >= 5 * 8 * 4
    assert dial.at("cvar(0.37)").simulated_steps == before  # it is known now


@pytest.mark.slow
def test_a_saved_dial_stands_where_it_stood_and_can_be_turned(tmp_path, dial):
    agent = dial.at("cvar(0.05)")
    loaded = ds.load(agent.save(tmp_path / "dial"))
    assert (loaded.risk, loaded.family, loaded.targets) == (agent.risk, dial.family, agent.targets)
    for first, second in ((loaded, agent), (loaded.at("mean"), dial.at("mean"))):
        np.testing.assert_array_equal(
            first.simulate_returns(20, seed=3), second.simulate_returns(20, seed=3)
        )


@pytest.mark.slow
def test_training_goes_on_bit_for_bit_where_every_iteration_begins_anew(tmp_path):
    settings = {**SMALL, "n_steps": 16, "episodes_per_seed": 2}
    settings.pop("num_envs")
    whole = ds.ACSRM(copies(Noisy), risk="dial(0.05, 1)", **settings).learn(16 * 6 * 4)
    stopped = ds.ACSRM(copies(Noisy), risk="dial(0.05, 1)", **settings)
    stopped.learn(16 * 6 * 4, callback=lambda agent: len(agent.history) < 2)
    assert len(stopped.history) == 2
    again = ds.load(stopped.save(tmp_path / "half"), copies(Noisy)).resume()
    assert same(again, whole)


def test_episodes_of_the_same_seed_have_the_same_position():
    settings = {**SMALL, "n_steps": 16, "episodes_per_seed": 2}
    settings.pop("num_envs")
    agent = ds.ACSRM(copies(Noisy), risk="dial", **settings)
    driver: Any = agent._driver
    driver.plan(200)
    state = driver.backend.init(driver.planned(), driver.algorithm, jax.random.key(0))[0]
    steps, ended = driver.backend._collect(driver.planned(), driver.algorithm, state, 0)
    places = steps["positions"].measures.place.reshape(2, 2, 4, 6)  # part, episode, step, copy
    np.testing.assert_array_equal(places[0], places[1])
    np.testing.assert_array_equal(places[..., 0, :], places[..., -1, :])  # it is held
    assert (places[0, 0] != places[0, 1]).all()
    assert np.unique(places[0, 0, 0]).size == 6
    np.testing.assert_allclose(ended[:, 3], places[..., -1, :].ravel())


@pytest.mark.slow
def test_the_memory_of_an_episode_goes_on_when_the_dial_is_turned(dial):
    bold, cautious = dial.at("mean"), dial.at("cvar(0.05)")
    env = bold.wrap()
    observation, _ = env.reset(seed=0)
    observation, reward, *_ = env.step(bold.predict(observation)[0])
    np.testing.assert_allclose(observation[-2:], [reward, 0.99], rtol=1e-5)  # (s, c)
    assert cautious.predict(observation)[0] in (0, 1)


@pytest.mark.slow
def test_return_distributions_are_learned_for_the_whole_family():
    agent = ds.ACSRM(copies(Gamble, 4), risk="dial", **{**SMALL, "evaluation_fraction": 20.0})
    agent.learn(64)
    for measure in ("mean", "cvar(0.1)"):
        at = agent.at(measure)
        safe, bold = at.return_distribution(np.array([0.0, -1.0, 0.0, 1.0], np.float32))
        np.testing.assert_allclose(safe, 0.0, atol=0.2)
        np.testing.assert_allclose(bold[[0, -1]], [-1.0, 1.0], atol=0.2)
        assert ds.explain(at, Gamble(), episodes=1, checks=2).kind == "learned"


@pytest.mark.slow
def test_the_exported_policy_has_the_dial_as_an_input(tmp_path, dial):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    path = dial.at("cvar(0.2)").export(tmp_path / "policy")  # which compares it with the agent
    # Inputs with a default, where the dial stands, are listed as initialisers that can be replaced.
    session = runtime.InferenceSession(str(path))
    assert {entry.name for entry in session.get_inputs()} == {"observation", "s", "c"}
    assert {"b", "kappa"} <= {entry.name for entry in session.get_overridable_initializers()}


@pytest.mark.slow
def test_a_frontier_of_one_training_for_each_seed_in_any_environment(tmp_path):
    options = {**SMALL, "dial": True, "agent": ds.ACSRM, "total_timesteps": 64, "points": 3}
    curve = ds.frontier("tests/NoisyDial-v0", seeds=[0, 1], episodes=20, folder=tmp_path, **options)
    assert [str(point.risk) for point in curve.points][::2] == ["mean", "cvar(0.1)"]
    assert curve.agent == "AC-SRM dial"
    kept = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert len(kept) == 2
    again = ds.frontier("tests/NoisyDial-v0", seeds=[0, 1], episodes=20, folder=tmp_path, **options)
    assert again.rows() == curve.rows()
    with pytest.raises(ValueError, match=r"written in JAX for PG-SRM.*or use ds.ACSRM"):
        ds.frontier("tests/NoisyDial-v0", dial=True)
    with pytest.raises(ValueError, match=r"`engine` must be left out for AC-SRM"):
        ds.frontier("tests/NoisyDial-v0", engine="vmap", **options)
