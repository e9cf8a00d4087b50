"""From the start of a run to its end: what is counted, what goes on, what an error leaves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.train.backends.jax import program as jax_program

from .tiny import (
    CHUNK,
    ENV,
    PAPER,
    SMALL,
    TWO,
    all_equal,
    experience_of,
    make,
    same,
    state_of,
    weights,
)
from .toys import Counter, Noisy


@pytest.fixture(scope="module")
def trained():
    return make().learn(TWO)


# --- the history ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_history_has_the_value_of_every_iterate(trained):
    assert [record["timesteps"] for record in trained.history] == [CHUNK, TWO]
    assert [record["updates"] for record in trained.history] == [8, 16]
    for record in trained.history:
        assert all(np.isfinite(value) for value in record.values())
        assert record["best"] >= record["value"]
        assert record["spread"] > 0.0
    best = [record["best"] for record in trained.history]
    assert best == sorted(best)
    assert best[-1] == float(state_of(trained).best.value)
    assert trained.num_timesteps == TWO


def test_a_callback_is_asked_after_each_outer_step_and_may_end_it():
    steps = []
    make().learn(TWO, callback=lambda agent: steps.append(agent.num_timesteps))
    assert steps == [CHUNK, TWO]
    agent = make().learn(TWO, callback=lambda agent: False)
    assert len(agent.history) == 1


def test_the_root_of_all_randomness_stays_what_the_seed_made_it(trained):
    assert jax.random.key_data(state_of(trained).key).tolist() == [0, 0]


# --- going on ---------------------------------------------------------------------------------


def test_learning_again_goes_on(trained):
    agent = make().learn(TWO, callback=lambda agent: False)
    # One chunk was done, so a chunk more is two in all: the run that was never interrupted.
    agent.learn(CHUNK, reset_num_timesteps=False)
    assert [record["timesteps"] for record in agent.history] == [CHUNK, TWO]
    assert same(agent, trained)
    assert agent.simulated_steps == trained.simulated_steps


def test_resuming_goes_on_to_the_end_that_was_planned(trained):
    agent = make().learn(TWO, callback=lambda agent: False)
    assert agent.num_timesteps == CHUNK
    assert not same(agent, trained)
    assert same(agent.resume(), trained)
    assert agent.num_timesteps == TWO


def test_a_loop_of_the_user_is_learning(trained):
    agent = make()
    done = list(agent.training(TWO))
    agent.fit_return_distribution()
    assert done == [(CHUNK, TWO), (TWO, TWO)]
    assert same(agent, trained)


@pytest.mark.slow
def test_learning_anew_counts_from_zero_and_keeps_what_was_learned():
    agent = make().learn(TWO)
    best, added = agent.history[-1]["best"], int(state_of(agent).replay.added)
    first = agent.history[0]
    agent.learn(CHUNK)
    assert [record["timesteps"] for record in agent.history] == [CHUNK]
    assert agent.history[-1]["best"] >= best
    assert int(state_of(agent).replay.added) == added + CHUNK
    assert agent.history[-1]["exploration"] == pytest.approx(0.1)  # the end of a run of one chunk
    # Random play at the start is not simulated again: 512 episodes of three steps.
    assert agent.simulated_steps == first["simulated_steps"] - 512 * 3


# --- simulated steps --------------------------------------------------------------------------

PER_UPDATE = 8 * (2 + 1) * 2
"""Of TINY: 8 sampled states, two top actions and a random one, two outcomes of each."""
OUTER_STEP = 3 * 16 * 3
"""Three candidates, each in 16 episodes of three periods."""
RANDOM_PLAY = 512 * 3


def test_all_steps_that_are_simulated_are_counted(trained):
    chunk = 8 * PER_UPDATE + OUTER_STEP
    assert [record["simulated_steps"] for record in trained.history] == [
        RANDOM_PLAY + chunk,
        RANDOM_PLAY + 2 * chunk,
    ]
    assert trained.simulated_steps == 1536 + 2 * (8 * 48 + 144) == 2592
    assert isinstance(trained.history[0]["simulated_steps"], int)


@pytest.mark.slow
def test_learning_the_return_distribution_is_counted():
    # A tenth of 8 updates is rounded up to one call of 250.
    agent = make(evaluation_fraction=0.1).learn(CHUNK)
    assert agent.simulated_steps == RANDOM_PLAY + 8 * PER_UPDATE + OUTER_STEP + 250 * PER_UPDATE


@pytest.mark.long
def test_quantiles_beside_a_critic_are_counted():
    # In each of 4 rounds a batch more than the 2 of the critic.
    agent = make(outer="learned").learn(CHUNK)
    assert agent.simulated_steps == RANDOM_PLAY + (8 + 4) * PER_UPDATE + OUTER_STEP


@pytest.mark.slow
def test_the_paper_simulates_for_the_log_alone():
    # One candidate in 16 episodes of three periods; neither branches nor random play.
    agent = ds.QRSRM(ENV, risk="cvar(0.5)", **PAPER).learn(400)
    assert [record["simulated_steps"] for record in agent.history] == [48 * i for i in range(1, 11)]


@pytest.mark.slow
def test_nothing_is_simulated_in_gymnasium():
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", **SMALL).learn(100)
    assert [record["simulated_steps"] for record in agent.history] == [0] * 4
    assert agent.simulated_steps == 0


def test_random_play_is_counted_also_if_the_first_chunk_fails(monkeypatch, trained):
    agent, chunk = make(), jax_program.chunk

    def fails(*arguments):
        monkeypatch.setattr(jax_program, "chunk", chunk)
        raise KeyboardInterrupt

    monkeypatch.setattr(jax_program, "chunk", fails)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(TWO)
    agent.resume()
    assert same(agent, trained)
    assert agent.simulated_steps == trained.simulated_steps


# --- divergence -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_training_at_the_last_good_state(tmp_path, monkeypatch):
    chunk = jax_program.chunk

    def broken(spec, algorithm, state):
        state, metrics = chunk(spec, algorithm, state)
        bad = float(metrics.timesteps) > CHUNK
        return state, metrics._replace(critic_loss=np.float32(np.nan)) if bad else metrics

    agent, before = make(), []
    monkeypatch.setattr(jax_program, "chunk", broken)
    remember = lambda agent: before.append(state_of(agent))  # noqa: E731
    saved = ds.Checkpoints(tmp_path, every_steps=1)
    with pytest.raises(ds.DivergenceError, match="Try a lower `learning_rate`"):
        agent.learn(4 * CHUNK, callback=[remember, saved])
    assert agent.num_timesteps == CHUNK
    assert state_of(agent) is before[0]
    monkeypatch.undo()
    assert same(ds.load(tmp_path).resume(), make().learn(4 * CHUNK))


@pytest.mark.slow
def test_in_gymnasium_networks_and_outer_variable_stay_those_of_the_step_before(monkeypatch):
    agent, before = ds.QRSRM(Noisy(), risk="cvar(0.5)", **SMALL), []
    backend = agent._driver.backend
    chunk = backend.chunk

    def broken(spec, algorithm, state):
        state, record = chunk(spec, algorithm, state)
        if len(before) == 4:  # the outer variable has moved
            bad = jax.tree.map(lambda leaf: leaf * jnp.nan, state.outer)
            state = type(state)(**{**vars(state), "outer": bad})
            record = {**record, "critic_loss": float("nan")}
        return state, record

    def remember(agent):
        state = state_of(agent)
        before.append(weights((state.learner, state.outer, state.best)))

    monkeypatch.setattr(backend, "chunk", broken)
    with pytest.raises(ds.DivergenceError, match="as they were one outer step earlier"):
        agent.learn(200, callback=remember)
    assert agent.num_timesteps == 100
    state = state_of(agent)
    assert all_equal(weights((state.learner, state.outer, state.best)), before[-1])
    assert not all_equal(before[-1], before[-2])
    assert int(state.rounds) == 100
    # What was lived through meanwhile is kept, and training can go on.
    assert int(experience_of(agent).replay.added) == 50 + 125
    monkeypatch.undo()
    agent.resume()
    assert agent.num_timesteps == 200
    assert all(np.isfinite(array).all() for array in weights(agent.networks))
