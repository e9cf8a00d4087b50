"""The policy that is kept can be the average of the networks over the last part of a run."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.agents import GymnasiumSettings
from downside.agents.networks import Network
from downside.agents.quantile_learner import Networks
from downside.train.backends.gymnasium.state import Average, GymState, averaged
from downside.train.checkpoints.checkpoint import to_arrays

from ...tiny import SMALL, all_equal, state_of, weights
from ...toys import Noisy

# --- without a run ----------------------------------------------------------------------------


class Counting(eqx.Module):
    """A trunk with a weight, a whole number, and something that is no array."""

    weight: jax.Array
    whole: jax.Array
    name: str = eqx.field(static=True)

    def __call__(self, observation):
        return self.weight * observation


def networks_with(weight):
    trunk = Counting(jnp.full(1, weight), jnp.arange(1), "ours")
    return Networks(None, Network(trunk, 1, (2, 3)))


def weight_of(networks):
    trunk = networks.quantiles.trunk
    assert trunk.name == "ours"
    assert trunk.whole.dtype == jnp.int32
    return float(trunk.weight[0])


class Learning(eqx.Module):
    networks: Networks


class State(eqx.Module):
    """As much of a `GymState` as an average needs."""

    learner: Learning
    average: Average | None


def next_average(average, weight, progress, settings):
    state: GymState = State(Learning(networks_with(weight)), average)  # pyright: ignore
    return averaged(state, progress, settings)


def fresh(weight=99.0, count=0):
    return Average(networks_with(weight), np.asarray(count))


@pytest.mark.slow
def test_it_is_the_mean_of_all_that_were_added():
    settings, average = GymnasiumSettings(averaging=1.0, risk_neutral_fraction=0.0), fresh()
    for weight, mean in ((2.0, 2.0), (5.0, 3.5), (-1.0, 2.0)):  # 7 / 2, 6 / 3
        average, networks = next_average(average, weight, 0.5, settings)
        assert weight_of(networks) == pytest.approx(mean)
        assert average is not None
        assert weight_of(average.networks) == pytest.approx(mean)
    assert average.count == 3


@pytest.mark.parametrize(
    ("averaging", "neutral", "first"),
    [
        (0.25, 0.5, 13),  # the last quarter of 16 outer steps
        (1.0, 0.0, 1),  # all of them
        (0.5, 0.75, 13),  # not those that maximised the mean because h was not known
        (0.5, 1.0, 9),  # to maximise the mean all along is what was asked for
    ],
)
def test_it_begins_in_the_last_part_of_the_run(averaging, neutral, first):
    settings = GymnasiumSettings(averaging=averaging, risk_neutral_fraction=neutral)
    average, kept = fresh(), []
    for step in range(1, 17):
        average, networks = next_average(average, float(step), step / 16, settings)
        kept.append(weight_of(networks))
    assert average is not None
    assert average.count == 17 - first
    before = list(range(1, first))
    assert kept == pytest.approx(before + [(first + step) / 2 for step in range(first, 17)])


def test_nothing_is_left_of_it_in_a_run_that_is_stretched():
    settings = GymnasiumSettings(averaging=0.25)
    average, networks = next_average(fresh(7.0, 4), 1.0, 0.5, settings)
    assert average is not None
    assert (average.count, weight_of(networks)) == (0, 1.0)


def test_without_it_the_networks_are_kept_as_they_are():
    average, kept = next_average(None, 1.0, 1.0, GymnasiumSettings())
    assert average is None
    assert weight_of(kept) == 1.0


# --- in a run ---------------------------------------------------------------------------------


def count_of(agent):
    average = state_of(agent).average
    return None if average is None else int(average.count)


def watched(agent, steps, callbacks=()):
    """After each outer step: the networks that learn, and those that are kept."""
    networks = []

    def watch(agent):
        networks.append((weights(state_of(agent).learner.networks), weights(agent.networks)))

    agent.learn(steps, callback=[watch, *callbacks])
    return networks


@pytest.mark.slow
def test_the_policy_of_a_run_is_the_average_of_its_last_networks(tmp_path):
    # Every policy is kept: which are is the business of another test.
    settings = {**SMALL, "keep_best": False}
    plain = ds.QRSRM(Noisy(), risk="cvar(0.5)", **settings)
    learned = watched(plain, 400)
    assert count_of(plain) is None
    assert not any("average" in name for name in to_arrays(state_of(plain)))
    agent = ds.QRSRM(Noisy(), risk="cvar(0.5)", averaging=0.25, **settings)
    saved = ds.Checkpoints(tmp_path, every_steps=350, keep=9)
    networks = watched(agent, 400, [saved])
    assert len(networks) == 16
    # What learns is not changed by it, and until the last quarter it is what is kept.
    for (learning, _), (without, _) in zip(networks, learned, strict=True):
        assert all_equal(learning, without)
    assert all(all_equal(*pair) for pair in networks[:12])
    for last in range(12, 16):
        for leaf, kept in enumerate(networks[last][1]):
            parts = [learning[leaf] for learning, _ in networks[12 : last + 1]]
            mean = np.mean(parts, axis=0, dtype=np.float64)
            np.testing.assert_allclose(kept, mean, rtol=1e-4, atol=1e-5)
    assert not all_equal(*networks[-1])
    # It is in the checkpoint, and goes on from there.
    middle = ds.load(tmp_path / "checkpoint-000000000350", Noisy())
    assert count_of(middle) == 2
    assert all_equal(weights(state_of(middle).average.networks), networks[13][1])
    middle.resume()
    assert count_of(middle) == count_of(agent) == 4
    # After a new end or a new start it is another one, and in another environment.
    agent.learn(200, reset_num_timesteps=False)  # of 600 steps in all the last quarter
    assert count_of(agent) == 6
    agent.learn(200)
    assert count_of(agent) == 2
    agent.set_env(Noisy())
    assert count_of(agent) == 0
