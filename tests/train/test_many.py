import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.train import fused
from downside.train import many as module
from downside.train.many import _group_size, train_agents
from downside.train.program import make_program

from .sharded import trained
from .tiny import CHUNK, ENV, TINY, TWO
from .toys import Counter

ROOT = Path(__file__).parents[2]

RISKS = ["mean", "cvar(0.5)", "exponential(4)"]


@pytest.fixture(scope="module")
def many():
    """Six agents in two batches of three, so that each batch mixes measures and seeds."""
    return ds.train_many(
        ENV, risks=RISKS, seeds=[0, 1], total_timesteps=TWO, together=3, engine="vmap", **TINY
    )


def test_agents_come_in_the_order_of_measures_and_seeds(many):
    said = [(str(one.risk), one.seed) for one in many]
    assert said == [(risk, seed) for risk in RISKS for seed in (0, 1)]
    assert [one.num_timesteps for one in many] == [TWO] * 6


@pytest.mark.parametrize(
    ("index", "risk", "seed"),
    [
        pytest.param(0, 0, 0, marks=pytest.mark.long),
        pytest.param(2, 1, 0, marks=pytest.mark.long),
        (3, 1, 1),
        (5, 2, 1),
    ],
)
def test_each_is_what_it_would_be_alone(many, index, risk, seed):
    # The measures have 0, 1 and 64 levels: together they are padded to the longest.
    alone = ds.QRSRM(ENV, risk=RISKS[risk], seed=seed, **TINY).learn(TWO)
    together = many[index]
    for one, other in zip(alone.history, together.history, strict=True):
        for name in ("value", "best", "mean", "critic_loss", "predicted"):
            np.testing.assert_allclose(other[name], one[name], rtol=2e-3, atol=2e-4)
    pairs = zip(jax.tree.leaves(alone.networks), jax.tree.leaves(together.networks), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(other, one, rtol=2e-3, atol=2e-4)
    z = np.linspace(-2.0, 2.0, 9)
    assert together.utility is not None
    assert alone.utility is not None
    np.testing.assert_allclose(together.utility(z), alone.utility(z), rtol=2e-3, atol=2e-4)


def test_in_threads_each_is_what_it_would_be_alone_bit_for_bit():
    agents = ds.train_many(
        ENV,
        risks=["cvar(0.5)"],
        seeds=[0, 1, 2],
        total_timesteps=TWO,
        together=2,
        engine="threads",
        **TINY,
    )
    assert [one.num_timesteps for one in agents] == [TWO] * 3
    alone = ds.QRSRM(ENV, risk="cvar(0.5)", seed=1, **TINY).learn(TWO)
    assert eqx.tree_equal(agents[1]._run, alone._run)
    assert not eqx.tree_equal(agents[2].networks, alone.networks)


def test_an_agent_of_a_batch_is_trained_to_its_end(tmp_path):
    # A tenth of 16 updates after the last one: one call of `settle`, and no second one.
    (agent,) = ds.train_many(
        ENV,
        risks=["cvar(0.5)"],
        total_timesteps=TWO,
        engine="vmap",
        **{**TINY, "distribution_fraction": 0.1},
    )
    again = ds.load(agent.save(tmp_path / "agent"), ENV).resume()
    assert again._settled == agent._settled == 1
    assert eqx.tree_equal(again._run, agent._run)


def test_the_records_of_a_batch_are_those_of_a_single_run(many):
    alone = ds.QRSRM(ENV, risk="cvar(0.5)", seed=1, **TINY).learn(TWO)
    assert many[3].history[-1].keys() == alone.history[-1].keys()
    np.testing.assert_allclose(
        many[3].history[-1]["location"], alone.history[-1]["location"], rtol=2e-3, atol=2e-4
    )


class Watched(ds.QRSRM):
    """Learns nothing in one chunk; `arrive` is called within it with what is being done."""

    arrive = staticmethod(lambda what: None)

    def _steps(self):
        self.arrive("training")
        self.history.append({"best": 0.0, "timesteps": CHUNK})
        yield CHUNK, CHUNK

    def _settling(self):
        self.arrive("settling")
        yield 1


def test_the_first_agent_compiles_alone_and_the_others_do_not_wait_for_each_other(monkeypatch):
    # Of four agents the first has the program to itself; the other three must be in their chunk at
    # the same time to get past the barrier.
    guard, arrived = threading.Lock(), {"training": 0, "settling": 0}
    together = {what: threading.Barrier(3) for what in arrived}

    def arrive(what):
        with guard:
            arrived[what] += 1
            number = arrived[what]
        if number == 1:
            time.sleep(0.05)
            assert arrived[what] == 1, "another one compiled at the same time"
        else:
            together[what].wait(timeout=20)

    monkeypatch.setattr(Watched, "arrive", staticmethod(arrive))
    agents = [Watched(ENV, risk="cvar(0.5)", seed=seed, **TINY) for seed in range(4)]
    finished = []
    train_agents(
        agents, total_timesteps=CHUNK, engine="threads", together=4, finished=finished.append
    )
    assert set(finished) == set(agents)


@pytest.mark.parametrize(
    ("engine", "devices"),
    [
        pytest.param("threads", 2, marks=pytest.mark.long),
        pytest.param("threads", 4, marks=pytest.mark.long),
        pytest.param("vmap", 4, marks=pytest.mark.long),
    ],
)
def test_several_devices_share_the_agents_and_change_nothing(engine, devices):
    forced = {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # as here, so that bits can be compared
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    }
    said = subprocess.run(
        [sys.executable, "-m", "tests.train.sharded", engine],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, **forced},
    ).stdout
    many, one = json.loads(said), trained(engine)
    assert set(many["devices"]) == set(range(devices))
    assert set(one["devices"]) == {0}
    if engine == "threads":
        assert many["weights"] == one["weights"]
    np.testing.assert_allclose(many["returns"], one["returns"], rtol=2e-3, atol=2e-4)


def broken(advance, seed):
    """`advance`, but that the loss of this seed is not finite from the second chunk on."""

    def broken_advance(program, algorithm, run):
        run, metrics = advance(program, algorithm, run)
        own = jax.random.key_data(jax.random.key(seed))
        bad = (jax.random.key_data(run.key) == own).all(axis=-1) & (metrics.timesteps > CHUNK)
        return run, metrics._replace(critic_loss=jnp.where(bad, jnp.nan, metrics.critic_loss))

    return broken_advance


@pytest.mark.parametrize("engine", ["threads", pytest.param("vmap", marks=pytest.mark.long)])
def test_an_agent_that_diverges_is_named_and_takes_no_other_with_it(engine, monkeypatch):
    owner, name = (fused, "advance") if engine == "threads" else (module, "_advance")
    monkeypatch.setattr(owner, name, broken(getattr(owner, name), seed=1))
    agents = [ds.QRSRM(ENV, risk="cvar(0.5)", seed=seed, **TINY) for seed in range(3)]
    finished = []
    said = r"1 of 3 agents: the loss is not finite for cvar\(0\.5\), seed 1\."
    with pytest.raises(ds.DivergenceError, match=said) as caught:
        train_agents(
            agents, total_timesteps=TWO, engine=engine, together=3, finished=finished.append
        )
    assert caught.value.agents == (agents[0], agents[2])
    assert set(finished) == {agents[0], agents[2]}
    assert [one.num_timesteps for one in agents] == [TWO, CHUNK, TWO]
    monkeypatch.undo()
    alone = ds.QRSRM(ENV, risk="cvar(0.5)", seed=1, **TINY).learn(TWO)
    agents[1].resume()  # from where it was in order to the end
    for one, other in zip(alone.history, agents[1].history, strict=True):
        np.testing.assert_allclose(other["value"], one["value"], rtol=2e-3, atol=2e-4)


def test_a_batch_in_which_all_diverge_ends_there(monkeypatch):
    monkeypatch.setattr(module, "_advance", broken(module._advance, seed=0))
    with pytest.raises(ds.DivergenceError, match="diverged for 1 of 1 agents") as caught:
        ds.train_many(ENV, risks=["cvar(0.5)"], total_timesteps=4 * CHUNK, engine="vmap", **TINY)
    assert caught.value.agents == ()


def test_as_many_as_fit_into_memory_are_batched(many, monkeypatch):
    program = make_program(ENV, many[0].settings, many[0]._make_trunk, TWO)
    assert _group_size(many, program) == 6
    monkeypatch.setattr("downside.train.many._MOST_BYTES", 1000)
    assert _group_size(many, program) == 1


def test_they_are_agents_like_any_other(many):
    observation, _ = many[0].wrap().reset(seed=0)
    for one in many:
        assert one.predict(observation)[0] in range(5)
        assert one.simulate_returns(10, seed=0).shape == (10,)
        assert np.all(np.diff(one.return_distribution(observation)) >= 0.0)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="`risks` and `seeds` must each have at least one entry"):
        ds.train_many(ENV, risks=[], **TINY)
    with pytest.raises(TypeError, match=r"`risks` must be a list of measures, .* Pass \['mean'\]"):
        ds.train_many(ENV, risks="mean", **TINY)
    with pytest.raises(ValueError, match="`engine` must be 'threads' or 'vmap', got 'gpu'"):
        ds.train_many(ENV, risks=["mean"], engine="gpu", **TINY)
    with pytest.raises(ValueError, match="`together` must be a whole number >= 1, got 0"):
        ds.train_many(ENV, risks=["mean"], total_timesteps=CHUNK, together=0, **TINY)


def test_an_environment_that_agents_would_share_is_refused():
    said = r"`env` must be written in JAX .*, got <Counter instance>\. Use `ds\.sweep`"
    with pytest.raises(ValueError, match=said):
        ds.train_many(Counter(), risks=["mean"], seeds=[0, 1])
    with pytest.raises(ValueError, match=r"got CartPole-v1\. Use `ds\.sweep`"):
        ds.train_many("CartPole-v1", risks=["mean"])
    with pytest.raises(ValueError, match=said):
        train_agents([ds.QRDQN(Counter())])
