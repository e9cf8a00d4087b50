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
from downside.train import many as module
from downside.train.backends.jax import program as jax_program
from downside.train.many import _group_size, train_agents

from .sharded import trained
from .tiny import CHUNK, ENV, TINY, TWO, make, same
from .toys import Counter

ROOT = Path(__file__).parents[2]

RISKS = ["mean", "cvar(0.5)", "exponential(4)"]


@pytest.fixture(scope="module")
def many():
    """Six agents in two batches of three, so that each batch mixes measures and seeds."""
    return ds.train_many(
        ENV, risks=RISKS, seeds=[0, 1], total_timesteps=TWO, together=3, engine="vmap", **TINY
    )


@pytest.mark.slow
def test_agents_come_in_the_order_of_measures_and_seeds(many):
    assert [(str(agent.risk), agent.seed) for agent in many] == [
        (risk, seed) for risk in RISKS for seed in (0, 1)
    ]
    assert [agent.num_timesteps for agent in many] == [TWO] * 6


@pytest.mark.slow
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
    for record, expected in zip(together.history, alone.history, strict=True):
        assert record.keys() == expected.keys()
        assert record["simulated_steps"] == expected["simulated_steps"]
        for name in ("value", "best", "mean", "critic_loss", "predicted", "location"):
            np.testing.assert_allclose(record[name], expected[name], rtol=2e-3, atol=2e-4)
    pairs = zip(jax.tree.leaves(together.networks), jax.tree.leaves(alone.networks), strict=True)
    for leaf, expected in pairs:
        np.testing.assert_allclose(leaf, expected, rtol=2e-3, atol=2e-4)
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
    assert [agent.num_timesteps for agent in agents] == [TWO] * 3
    alone = make(seed=1).learn(TWO)
    assert same(agents[1], alone)
    assert agents[1].simulated_steps == alone.simulated_steps
    assert not eqx.tree_equal(agents[2].networks, alone.networks)


@pytest.mark.long
def test_an_agent_of_a_batch_is_trained_to_its_end(tmp_path):
    # A tenth of 16 updates after the last one: one call of 250 updates, and no second one.
    (agent,) = ds.train_many(
        ENV,
        risks=["cvar(0.5)"],
        total_timesteps=TWO,
        engine="vmap",
        **{**TINY, "evaluation_fraction": 0.1},
    )
    again = ds.load(agent.save(tmp_path / "agent"), ENV).resume()
    assert again._driver.fitted == agent._driver.fitted == 1
    assert same(again, agent)
    # As counted in test_driver.py: random play, two chunks, and 250 batches.
    assert again.simulated_steps == agent.simulated_steps == 2592 + 250 * 8 * 3 * 2


@pytest.mark.slow
def test_agents_of_measures_with_different_levels_are_saved(many, tmp_path):
    for i in (0, 2, 4):  # of 0, 1 and 64 levels, trained with 64
        again = ds.load(many[i].save(tmp_path / str(i)))
        np.testing.assert_array_equal(
            again.simulate_returns(20, seed=0), many[i].simulate_returns(20, seed=0)
        )


def watched(seed, arrive):
    """An agent that learns nothing in one chunk; `arrive` is called with what is being done."""
    agent = make(seed)

    def training(total_timesteps):
        arrive("training")
        agent.history.append({"best": 0.0, "timesteps": CHUNK})
        yield CHUNK, CHUNK

    def fit():
        arrive("fitting")
        yield 1

    agent.training, agent._driver.fit = training, fit  # pyright: ignore
    return agent


def test_the_first_agent_compiles_alone_and_the_others_do_not_wait_for_each_other():
    # Of four agents the first has the program to itself; the other three must be in their chunk at
    # the same time to get past the barrier.
    guard, arrived = threading.Lock(), {"training": 0, "fitting": 0}
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

    agents = [watched(seed, arrive) for seed in range(4)]
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
    output = subprocess.run(
        [sys.executable, "-m", "tests.train.sharded", engine],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, **forced},
    ).stdout
    shared, alone = json.loads(output), trained(engine)
    assert set(shared["devices"]) == set(range(devices))
    assert set(alone["devices"]) == {0}
    if engine == "threads":
        assert shared["weights"] == alone["weights"]
    np.testing.assert_allclose(shared["returns"], alone["returns"], rtol=2e-3, atol=2e-4)


def broken(chunk, seed):
    """`chunk`, but that the loss of this seed is not finite from the second chunk on."""

    def broken_chunk(spec, algorithm, state):
        state, metrics = chunk(spec, algorithm, state)
        root = jax.random.key_data(jax.random.key(seed))
        bad = (jax.random.key_data(state.key) == root).all(axis=-1) & (metrics.timesteps > CHUNK)
        return state, metrics._replace(critic_loss=jnp.where(bad, jnp.nan, metrics.critic_loss))

    return broken_chunk


def break_chunks(monkeypatch, engine, seed):
    if engine == "threads":
        monkeypatch.setattr(jax_program, "chunk", broken(jax_program.chunk, seed))
        return
    together = module._together

    def some_broken(function):
        made = together(function)
        return broken(made, seed) if function is jax_program.chunk else made

    monkeypatch.setattr(module, "_together", some_broken)


@pytest.mark.parametrize("engine", ["threads", pytest.param("vmap", marks=pytest.mark.long)])
def test_an_agent_that_diverges_is_named_and_takes_no_other_with_it(engine, monkeypatch):
    break_chunks(monkeypatch, engine, seed=1)
    agents = [ds.QRSRM(ENV, risk="cvar(0.5)", seed=seed, **TINY) for seed in range(3)]
    finished = []
    message = r"1 of 3 agents: the loss is not finite for cvar\(0\.5\), seed 1\."
    with pytest.raises(ds.DivergenceError, match=message) as caught:
        train_agents(
            agents, total_timesteps=TWO, engine=engine, together=3, finished=finished.append
        )
    assert caught.value.agents == (agents[0], agents[2])
    assert set(finished) == {agents[0], agents[2]}
    assert [agent.num_timesteps for agent in agents] == [TWO, CHUNK, TWO]
    monkeypatch.undo()
    alone = make(seed=1).learn(TWO)
    agents[1].resume()  # from where it was in order to the end
    for record, expected in zip(agents[1].history, alone.history, strict=True):
        np.testing.assert_allclose(record["value"], expected["value"], rtol=2e-3, atol=2e-4)
        assert record["simulated_steps"] == expected["simulated_steps"]


@pytest.mark.slow
def test_a_batch_in_which_all_diverge_ends_there(monkeypatch):
    break_chunks(monkeypatch, "vmap", seed=0)
    with pytest.raises(ds.DivergenceError, match="diverged for 1 of 1 agents") as caught:
        ds.train_many(ENV, risks=["cvar(0.5)"], total_timesteps=4 * CHUNK, engine="vmap", **TINY)
    assert caught.value.agents == ()


def test_as_many_as_fit_into_memory_are_batched(monkeypatch):
    agent = make()
    spec = agent._driver.new_spec(TWO)
    assert _group_size(agent, spec, 6) == 6
    monkeypatch.setattr(module, "_MAX_BYTES", 1000)
    assert _group_size(agent, spec, 6) == 1


@pytest.mark.slow
def test_they_are_agents_like_any_other(many):
    observation, _ = many[0].wrap().reset(seed=0)
    for agent in many:
        assert agent.predict(observation)[0] == agent.scores(observation).argmax()
        assert agent.simulate_returns(10, seed=0).std() >= 0.0
        assert np.all(np.diff(agent.return_distribution(observation)) >= 0.0)


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
    message = r"`env` must be written in JAX .*, got <Counter instance>\. Use `ds\.sweep`"
    with pytest.raises(ValueError, match=message):
        ds.train_many(Counter(), risks=["mean"], seeds=[0, 1])
    with pytest.raises(ValueError, match=r"got CartPole-v1\. Use `ds\.sweep`"):
        ds.train_many("CartPole-v1", risks=["mean"])
    with pytest.raises(ValueError, match=message):
        train_agents([ds.QRDQN(Counter())])
