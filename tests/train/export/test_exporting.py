"""A policy as an ONNX file acts as the agent does, without JAX."""

import json
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.agents import Network, ShiftedUtility
from downside.agents.actor import Actor
from downside.envs import Hedging, Memory
from downside.train.backends.state import BestPolicy
from downside.train.export import exporting as export
from downside.train.export import graph as onnx_graph
from downside.train.policy import Policy

from ..backends.gymnasium.test_pictures import Side
from ..tiny import COMMON, ENV, SMALL, TINY

onnxruntime = pytest.importorskip("onnxruntime")

ACTOR = {"hidden_sizes": (8, 8), "batch_size": 8, "updates": 2, "outer_episodes": 16}
AGENTS = {
    "QR-SRM": lambda: ds.QRSRM(ENV, risk="cvar(0.5)", **TINY),
    "QR-SRM, quantiles, dense spectrum": lambda: ds.QRSRM(
        ENV, risk="exponential(4)", **{**TINY, "critic": "quantiles", "num_critics": 2}
    ),
    "QR-CVaR": lambda: ds.QRCVaR(ENV, risk="cvar(0.5)", **TINY),
    "QR-iCVaR": lambda: ds.QRiCVaR(ENV, risk="0.5*mean + 0.5*cvar(0.2)", **COMMON),
    "QR-DQN": lambda: ds.QRDQN(ENV, activation="gelu", **COMMON),
    "PG-SRM, rounded": lambda: ds.PGSRM(ENV, risk="cvar(0.5)", **ACTOR),
    "PG-SRM, box": lambda: ds.PGSRM(Hedging(periods=3), risk="cvar(0.5)", **ACTOR),
    "PG-SRM, one network": lambda: ds.PGSRM(
        ENV, risk="cvar(0.5)", step_networks=0, activation="tanh", **ACTOR
    ),
    "dial": lambda: ds.PGSRM(ENV, risk="dial", **ACTOR),
    "dial, unordered": lambda: ds.PGSRM("downside/BettingGame-v0", risk="dial", **ACTOR),
    "AC-SRM, box": lambda: ds.ACSRM("Pendulum-v1", risk="cvar(0.5)", num_envs=2),
    "AC-SRM, discrete": lambda: ds.ACSRM("CartPole-v1", risk="exponential(4)", num_envs=2),
    "AC-SRM, dial": lambda: ds.ACSRM("Pendulum-v1", risk="dial", num_envs=2),
    "QR-SRM, history": lambda: ds.QRSRM(
        "CartPole-v1", risk="cvar(0.5)", **{**SMALL, "history_length": 2, "layer_norm": True}
    ),
    "QR-SRM, pictures": lambda: ds.QRSRM(
        "CnnPolicy", Side(), risk="cvar(0.5)", **{**SMALL, "hidden_sizes": (16,)}
    ),
}


def policy_of(agent, seed=0):
    """The policy of an agent with random networks: nothing is trained, so nothing is compiled."""
    driver, key = agent._driver, jax.random.key(seed)
    algorithm, learner = driver.algorithm, driver.plan(1).learner(driver.algorithm)
    size = driver.backend.observation_space.shape[0]
    returns = jnp.sort(2.0 * jax.random.normal(key, (64,)))
    outer = algorithm.initial_outer(returns)
    if isinstance(outer, ShiftedUtility):
        knots = algorithm.objective.quantiles(returns)
        outer = ShiftedUtility(algorithm._utility(knots), jnp.asarray(0.3))
    example = (jnp.zeros(size), Memory(jnp.zeros(()), jnp.ones(())), outer)
    inputs = jax.eval_shape(algorithm.network_input, *example).shape[0]
    if hasattr(learner, "clock"):
        networks = Actor.make(key, learner.make_trunk, inputs, learner.head.outputs, learner.clock)
    else:
        networks = learner.init(key, inputs, None).networks
    return Policy(learner, BestPolicy(shaken(networks, seed), outer, jnp.zeros(())), driver.backend)


def shaken(networks, seed):
    """With random heads: fresh ones have zeros for weights."""
    generator = np.random.default_rng(seed)

    def shake(network):
        if not isinstance(network, Network):
            return network
        noise = jnp.asarray(0.3 * generator.normal(size=network.head.weight.shape), jnp.float32)
        return eqx.tree_at(lambda net: net.head.weight, network, noise)

    return jax.tree.map(shake, networks, is_leaf=lambda leaf: isinstance(leaf, Network))


ABOUT = {"downside": "0", "gamma": 0.99}


def outputs(path, inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", AGENTS)
def test_an_exported_policy_acts_as_the_agent(name, tmp_path):
    policy = policy_of(AGENTS[name]())
    path = export.export_policy(policy, ABOUT, tmp_path / "policy")
    assert path.suffix == ".onnx"
    inputs = export.random_inputs(policy, 500, seed=1)
    got, expected = outputs(path, inputs), export.expected_outputs(policy, inputs)
    assert export.differences(got, expected) <= 2  # of 500, between scores that are equal
    if policy.backend.num_actions:
        assert len(np.unique(got["action"])) > 1
    first_row = {key: value[:1] for key, value in inputs.items()}
    np.testing.assert_allclose(outputs(path, first_row)["action"], got["action"][:1], rtol=1e-5)


def test_illegal_actions_are_not_chosen(tmp_path):
    policy = policy_of(AGENTS["QR-SRM"]())
    path = export.export_policy(policy, ABOUT, tmp_path / "policy.onnx")
    inputs = export.random_inputs(policy, 50, seed=1)
    free = outputs(path, inputs)["action"]
    mask = np.arange(5) != free[:, None]
    barred = outputs(path, {**inputs, "mask": mask})
    assert (barred["action"] != free).all()
    assert (barred["scores"][~mask] == -np.inf).all()
    some = outputs(path, {**inputs, "mask": np.array([[False, True, False, False, False]])})
    assert (some["action"] == 1).all()


@pytest.fixture(scope="module")
def trained():
    return AGENTS["QR-SRM, history"]().learn(200)


@pytest.mark.slow
def test_the_file_says_what_a_program_must_know(trained, tmp_path):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(trained.export(tmp_path / "policy"))
    about = json.loads(model.metadata_props[0].value)
    assert about["gamma"] == 0.99
    assert about["risk"] == "cvar(0.5)"
    assert about["observation_size"] == 4
    assert about["history_length"] == 2
    assert [each.name for each in model.graph.input] == ["observation", "s", "c", "past", "mask"]


def test_a_wrong_file_is_never_written(tmp_path, monkeypatch):
    policy = policy_of(AGENTS["QR-DQN"]())
    right = export.decide

    def wrong(*arguments):
        decision = right(*arguments)
        return {**decision, "scores": -decision["scores"]}

    monkeypatch.setattr(export, "decide", wrong)
    with pytest.raises(onnx_graph.ExportError, match="scores are not those of the agent"):
        export.export_policy(policy, ABOUT, tmp_path / "policy")
    assert not list(tmp_path.iterdir())


def test_networks_that_onnx_has_no_words_for_are_named(tmp_path):
    class Strange(eqx.Module):
        layer: eqx.nn.Linear

        def __init__(self, key, size):
            self.layer = eqx.nn.Linear(size, 4, key=key)

        def __call__(self, observation):
            return jax.scipy.special.gammaln(self.layer(observation))

    policy = policy_of(ds.QRDQN(ENV, network=Strange, **COMMON))
    with pytest.raises(onnx_graph.ExportError, match="cannot be exported: it uses `lgamma`"):
        export.export_policy(policy, ABOUT, tmp_path / "policy")


def test_agents_that_have_learned_nothing_are_not_exported(tmp_path):
    with pytest.raises(RuntimeError, match="learn"):
        AGENTS["QR-DQN"]().export(tmp_path / "policy")


SCRIPT = Path(__file__).parents[3] / "examples" / "deployed_policy.py"


@pytest.mark.slow
def test_the_example_plays_an_episode_without_jax(trained, tmp_path):
    """The same actions as the agent, step by step, with s, c and the last steps kept by hand."""
    agent, path = trained, trained.export(tmp_path / "policy")
    wrapped, plain = agent.wrap(gym.make("CartPole-v1")), gym.make("CartPole-v1")
    observation, _ = wrapped.reset(seed=3)
    plain.reset(seed=3)
    actions, over = [], False
    while not over:
        action, _ = agent.predict(observation)
        actions.append(action)
        observation, _, terminated, truncated, _ = wrapped.step(action)
        over = terminated or truncated
    code = f"""
import sys
sys.modules["jax"] = sys.modules["downside"] = None
sys.path.insert(0, {str(SCRIPT.parent)!r})
from deployed_policy import DeployedPolicy
import gymnasium as gym
policy, env = DeployedPolicy({str(path)!r}), gym.make("CartPole-v1")
observation, _ = env.reset(seed=3)
policy.reset()
over, actions = False, []
while not over:
    action = policy.act(observation)
    actions.append(int(action))
    observation, reward, terminated, truncated, _ = env.step(action)
    policy.observe(reward)
    over = terminated or truncated
print(actions)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == actions
