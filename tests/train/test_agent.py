"""The agents as a user meets them, and an agent that a user writes."""

import importlib
import sys

import equinox as eqx
import numpy as np
import pytest

import downside as ds
from downside.agents import Network
from downside.agents.networks import Ensemble, members
from downside.envs import MeanReversion

from .tiny import CHUNK, COMMON, ENV, SMALL, TINY, TWO, make, same, state_of
from .toys import Assorted, Counter, Faulty

ID = "downside/MeanReversion-v0"


@pytest.fixture(scope="module")
def trained():
    return make().learn(TWO)


# --- which agents there are -------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_seed_gives_the_same_agent_bit_for_bit(trained):
    again = make().learn(TWO)
    assert same(again, trained)
    timed = ("seconds", "fps")
    for record, before in zip(again.history, trained.history, strict=True):
        assert {k: v for k, v in record.items() if k not in timed} == {
            k: v for k, v in before.items() if k not in timed
        }


def test_another_seed_gives_another_agent(trained):
    other = make(seed=1).learn(TWO)
    assert not eqx.tree_equal(other.networks.critic, trained.networks.critic)
    assert not eqx.tree_equal(state_of(other).replay.storage, state_of(trained).replay.storage)


@pytest.mark.slow
def test_the_preset_of_the_paper_runs_with_a_network_of_the_user():
    small = {name: TINY[name] for name in ("batch_size", "warmup_steps", "outer_episodes")}
    agent = ds.QRSRM(
        ENV,
        risk="0.5*mean + 0.5*cvar(0.5)",
        preset="paper",
        network=lambda key, size: eqx.nn.MLP(size, 8, 8, 1, key=key),
        quantiles=5,
        outer_interval=4,
        **small,
    )
    agent.learn(80)  # two chunks: 4 updates after 4 steps of 10 environments each
    assert [record["timesteps"] for record in agent.history] == [40, 80]
    assert agent.networks.critic is None
    assert isinstance(agent.networks.quantiles, Network)
    assert isinstance(agent.networks.quantiles.trunk, eqx.nn.MLP)
    # The learned outer step has been made: one bend, and half of the weight is the mean's.
    h = state_of(agent).outer.absolute()
    np.testing.assert_allclose(h.drops, [1.0])
    np.testing.assert_allclose(h.linear, 0.5)


@pytest.mark.slow
def test_qr_icvar_of_everything_is_qr_dqn_bit_for_bit():
    neutral = ds.QRDQN(ENV, **COMMON).learn(TWO)
    icvar = ds.QRiCVaR(ENV, risk="cvar(1.0)", **COMMON).learn(TWO)
    assert same(icvar, neutral)
    assert icvar.history[-1]["value"] == neutral.history[-1]["value"]
    assert icvar.wrap().observation_space == ENV.observation_space
    assert icvar.utility is None


@pytest.mark.long
def test_several_networks_see_the_same_and_differ(tmp_path):
    agent = ds.QRDQN(ENV, **COMMON, num_critics=2).learn(10 * CHUNK)
    assert isinstance(agent.networks.quantiles, Ensemble)
    first, second = members(agent.networks.quantiles)
    # The inputs were scaled anew on the way, for both of them alike.
    learner = state_of(agent).learner
    for networks in (learner.networks, learner.targets):
        members_of = members(networks.quantiles)
        np.testing.assert_array_equal(
            members_of[0].scale.input_spread, members_of[1].scale.input_spread
        )
    assert not np.array_equal(first.head.weight, second.head.weight)
    loaded = ds.load(agent.save(tmp_path / "two"), ENV)
    np.testing.assert_array_equal(loaded.simulate_returns(5, 0), agent.simulate_returns(5, 0))


def test_it_says_what_it_is(trained):
    assert repr(trained) == "QRSRM(downside/MeanReversion-v0, risk='cvar(0.5)', 64 steps)"
    assert repr(make()) == "QRSRM(downside/MeanReversion-v0, risk='cvar(0.5)', untrained)"
    assert trained.name == "QR-SRM"
    assert trained.full_name() == "QRSRM"
    assert trained.jax_env is trained.env is ENV
    assert ds.QRDQN(Counter()).jax_env is None


# --- what it refuses --------------------------------------------------------------------------


def test_an_agent_needs_an_environment():
    with pytest.raises(TypeError, match="An agent needs an environment, for example"):
        ds.QRSRM(risk="cvar(0.5)")
    with pytest.raises(TypeError, match="An agent needs an environment"):
        ds.QRSRM("MlpPolicy", risk="cvar(0.5)")
    with pytest.raises(TypeError, match=r"There is no setting `cnn` for this environment"):
        ds.QRSRM("CnnPolicy", ENV, risk="cvar(0.5)")


def test_a_risk_is_needed_except_for_the_mean():
    with pytest.raises(TypeError, match=r"QRSRM needs a `risk`, for example risk='cvar\(0\.2\)'"):
        ds.QRSRM(ID)
    assert str(ds.QRDQN(ID).risk) == "mean"


@pytest.mark.parametrize("seed", [True, -1])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(TypeError, match=f"`seed` must be a whole number >= 0, got {seed}"):
        ds.QRSRM(ID, risk="cvar(0.5)", seed=seed)


@pytest.mark.parametrize(
    "ask",
    [
        lambda agent: agent.predict(np.zeros(5)),
        lambda agent: agent.return_distribution(np.zeros(5)),
        lambda agent: agent.simulate_returns(10, seed=0),
        lambda agent: agent.utility,
        lambda agent: agent.wrap(),
        lambda agent: agent.resume(),
        lambda agent: agent.fit_return_distribution(),
    ],
)
def test_before_learning_there_is_nothing_to_ask(ask):
    with pytest.raises(RuntimeError, match="has not learned anything yet: call `learn` first"):
        ask(make())


# --- another environment ----------------------------------------------------------------------


def test_another_environment_must_have_the_same_spaces():
    agent = ds.QRDQN(Counter(), **SMALL)
    with pytest.raises(ValueError, match=r"`env` must have observations of shape \(2,\) and 2"):
        agent.set_env(Assorted())
    with pytest.raises(ValueError, match="`env` must be of the same kind as downside/Mean"):
        make().set_env(Counter())


@pytest.mark.slow
def test_training_goes_on_in_the_environment_that_was_set():
    agent = make().learn(TWO, callback=lambda agent: False)
    agent.set_env(MeanReversion(periods=2, num_trades=5, inventory_limit=2.0))
    agent.resume()
    latest = state_of(agent).replay.latest(CHUNK)
    # Episodes of two periods end at time 2; those that were under way end as soon as they can.
    over = np.asarray(latest.terminated)
    assert set(np.asarray(latest.next_state.time)[over]) <= {2, 3}
    assert (np.asarray(latest.next_state.time)[over] == 2).sum() >= 8
    assert agent.get_env().periods == 2


@pytest.mark.slow
def test_what_was_learned_survives_an_environment_that_breaks():
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", **SMALL).learn(100)
    agent.set_env(Faulty("raises"))
    with pytest.raises(ds.EnvironmentFaultError, match=r"agent\.resume\(\)"):
        agent.learn(500, reset_num_timesteps=False)
    assert agent.num_timesteps == 100
    agent.set_env(Counter())
    agent.resume()
    assert agent.num_timesteps == 600


# --- an agent that a user writes --------------------------------------------------------------

OURS = '''
"""Two agents in one file, outside the package."""

import jax.numpy as jnp

import downside as ds
from downside.agents import AbstractMemoryless, AbstractQuantileAlgorithm
from downside.envs import ReturnInput


class MeanMinusSpread(AbstractQuantileAlgorithm):
    """Maximises the mean of s + c G minus half of its spread, and what goes below a floor twice."""

    name = "mean minus spread"
    default_risk = "mean"
    fixed = {"critic": "quantiles", "shifts": 1}

    def memory_input(self, outer):
        return ReturnInput()

    def initial_outer(self, returns):
        return returns.min()

    def quantile_scores(self, quantiles, memory, outer):
        total = memory.accumulated + memory.discount_so_far * quantiles
        below = jnp.minimum(total - outer, 0.0).mean(axis=-1)
        return total.mean(axis=-1) - 0.5 * total.std(axis=-1) + below

    def logged(self, outer):
        return {"floor": outer}


class Median(AbstractMemoryless):
    """Maximises the median of what is still to come."""

    name = "median"
    default_risk = "mean"

    def quantile_scores(self, quantiles, memory, outer):
        return jnp.median(quantiles, axis=-1)


class SpreadAgent(ds.Agent):
    algorithm_class = MeanMinusSpread


class MedianAgent(ds.Agent):
    algorithm_class = Median
'''


@pytest.fixture
def ours(tmp_path, monkeypatch):
    """The module of a user; forgotten afterwards."""
    (tmp_path / "downside_test_ours.py").write_text(OURS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(ds.Agent, "classes", dict(ds.Agent.classes))
    yield importlib.import_module("downside_test_ours")
    del sys.modules["downside_test_ours"]


IN_JAX = {name: value for name, value in COMMON.items() if name != "evaluation_fraction"}
IN_CARTPOLE = {**SMALL, "num_envs": 2, "outer_interval": 50}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["SpreadAgent", "MedianAgent"])
@pytest.mark.parametrize("env", ["jax", "CartPole-v1"])
def test_an_agent_that_a_user_writes_is_an_agent_like_ours(ours, kind, env, tmp_path):
    in_jax, remembers = env == "jax", kind == "SpreadAgent"
    agent = getattr(ours, kind)(ENV if in_jax else env, **(IN_JAX if in_jax else IN_CARTPOLE))
    agent.learn(TWO if in_jax else 200)
    assert agent.full_name() == f"downside_test_ours:{kind}"
    assert len(agent.history) == 2
    assert ("floor" in agent.history[-1]) == remembers

    # In the wrapped environment it sees (s, c), and acts as it scores.
    wrapped = agent.wrap()
    observation, info = wrapped.reset(seed=0)
    size = 3 if in_jax else 4
    assert observation.shape == (size + 2 * remembers,)
    total, discount, over = 0.0, 1.0, False
    while not over:
        mask = np.asarray(info.get("action_mask", np.ones(2)), bool)
        action, _ = agent.predict(observation, action_masks=mask)
        assert action == np.where(mask, agent.scores(observation), -np.inf).argmax()
        observation, reward, terminated, truncated, info = wrapped.step(action)
        total, discount, over = total + discount * reward, 0.99 * discount, terminated or truncated
    if remembers:
        np.testing.assert_allclose(observation[-2:], [total, discount], rtol=1e-5, atol=1e-6)

    loaded = ds.load(agent.save(tmp_path / "agent"))
    assert type(loaded) is getattr(ours, kind)
    assert same(loaded, agent)
    values = [ds.evaluate(each, episodes=20, seed=3) for each in (agent, loaded)]
    np.testing.assert_array_equal(values[0].returns, values[1].returns)
    assert values[0].returns.std() > 0.0
    loaded.learn(TWO if in_jax else 200)
    assert len(loaded.history) == 2


@pytest.mark.slow
def test_scores_of_a_user_are_what_decides(ours):
    agent = ours.SpreadAgent(ENV, **IN_JAX).learn(CHUNK)
    observation = np.array([1.0, 0.0, 0.0, 0.7, 0.9], np.float32)
    total = 0.7 + 0.9 * agent.return_distribution(observation)
    below = np.minimum(total - float(agent.outer_variable), 0.0).mean(axis=-1)
    expected = total.mean(axis=-1) - 0.5 * total.std(axis=-1) + below
    np.testing.assert_allclose(agent.scores(observation), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_an_algorithm_without_a_recursion_asks_for_quantiles(ours, monkeypatch):
    monkeypatch.setattr(ours.MeanMinusSpread, "fixed", {})
    with pytest.raises(TypeError, match=r"mean minus spread obeys no .* use critic='quantiles'"):
        ours.SpreadAgent(ENV, **IN_JAX).learn(CHUNK)


@pytest.mark.slow
def test_an_agent_whose_module_was_not_imported_is_asked_for(ours, tmp_path):
    path = ours.MedianAgent(ENV, **IN_JAX).learn(CHUNK).save(tmp_path / "agent")
    del ds.Agent.classes["downside_test_ours:MedianAgent"]
    message = r"class 'downside_test_ours:MedianAgent', which is none of QRSRM.*"
    with pytest.raises(
        ds.CheckpointError, match=message + "import downside_test_ours before loading"
    ):
        ds.load(path)


@pytest.mark.slow
def test_a_class_of_the_same_name_is_not_taken_for_ours(tmp_path, ours):
    class QRSRM(ds.QRSRM):
        """Not the one that is called the same."""

        @classmethod
        def full_name(cls):
            return "elsewhere:QRSRM"

    path = QRSRM(ENV, risk="cvar(0.5)", **TINY).learn(CHUNK).save(tmp_path / "agent")
    assert type(ds.load(path)) is QRSRM
    del ds.Agent.classes["elsewhere:QRSRM"]
    with pytest.raises(ds.CheckpointError, match="import elsewhere before loading"):
        ds.load(path)


@pytest.mark.slow
def test_a_file_that_was_run_as_a_program_is_loaded_by_its_module(tmp_path, ours):
    agent = ours.MedianAgent(ENV, **IN_JAX).learn(CHUNK)
    ours.MedianAgent.full_name = classmethod(lambda cls: "__main__:MedianAgent")
    assert type(ds.load(agent.save(tmp_path / "agent"))) is ours.MedianAgent
