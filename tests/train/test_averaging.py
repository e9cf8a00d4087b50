"""The policy that is kept can be the average of the networks over the last part of a run."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.agents.learner import Networks
from downside.agents.networks import Network
from downside.agents.settings import Settings, identity
from downside.train.averaging import Average, averaged
from downside.train.checkpoint import to_arrays
from downside.train.hosted import HostedLoop
from downside.train.hosted_run import HostedRun, without_values

from .test_hosted import SMALL
from .toys import Noisy

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
    assert isinstance(networks.quantiles.trunk, Counting)
    assert networks.quantiles.trunk.name == "ours"
    assert networks.quantiles.trunk.whole.dtype == jnp.int32
    return float(networks.quantiles.trunk.weight[0])


def test_it_is_the_mean_of_all_that_were_added():
    average = Average.begin(networks_with(99.0), Settings(averaging=0.5))
    assert average is not None
    for weight, mean in ((2.0, 2.0), (5.0, 3.5), (-1.0, 2.0)):  # 7 / 2, 6 / 3
        average = average.with_next(networks_with(weight))
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
    settings = Settings(averaging=averaging, neutral_fraction=neutral)
    average, kept = Average.begin(networks_with(0.0), settings), []
    for step in range(1, 17):
        average, networks = averaged(average, networks_with(float(step)), step / 16, settings)
        kept.append(weight_of(networks))
    assert average is not None
    assert average.count == 17 - first
    before = list(range(1, first))
    assert kept == pytest.approx(before + [(first + step) / 2 for step in range(first, 17)])


def test_nothing_is_left_of_it_in_a_run_that_is_stretched():
    settings = Settings(averaging=0.25)
    average = Average(networks_with(7.0), np.asarray(4))
    average, networks = averaged(average, networks_with(1.0), 0.5, settings)
    assert average is not None
    assert (average.count, weight_of(networks)) == (0, 1.0)


def test_without_it_the_networks_are_kept_as_they_are():
    networks = networks_with(1.0)
    average, kept = averaged(Average.begin(networks, Settings()), networks, 1.0, Settings())
    assert average is None
    assert kept is networks


def test_a_hash_of_settings_leaves_it_out_where_it_is_off():
    settings = dataclasses.asdict(Settings())
    assert "averaging" not in identity(settings)
    assert identity({**settings, "averaging": 0.4})["averaging"] == 0.4


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"`averaging` must be .* \[0, 1\], got"):
        ds.QRDQN("CartPole-v1", averaging=value)


def test_what_is_simulated_is_not_averaged():
    with pytest.raises(ValueError, match=r"`averaging` must be 0.0 .*written in JAX"):
        ds.QRDQN("downside/AmericanPut-v0", averaging=0.1)


# --- in a run ---------------------------------------------------------------------------------


def run_of(agent):
    assert isinstance(agent._run, HostedRun)
    return agent._run


def weights(tree):
    return [np.array(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def count_of(run):
    return None if run.average is None else int(run.average.count)


def all_equal(ours, theirs):
    return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def watched(agent, steps, callbacks=()):
    """After each outer step: the networks that learn, and those that are kept."""
    seen = []

    def watch(one):
        seen.append((weights(run_of(one).learner.networks), weights(one.networks)))

    agent.learn(steps, callback=[watch, *callbacks])
    return seen


def test_the_policy_of_a_run_is_the_average_of_its_last_networks(monkeypatch, tmp_path):
    tried, try_out = [], HostedLoop._try_out

    def watch(self, program, algorithm, run, policy, before, length):
        tried.append(weights(policy.networks))
        return try_out(self, program, algorithm, run, policy, before, length)

    plain = ds.QRSRM(Noisy(), risk="cvar(0.5)", **SMALL)
    learned = watched(plain, 400)
    assert count_of(run_of(plain)) is None
    assert not any(name.startswith(".average") for name in to_arrays(plain._run))
    monkeypatch.setattr(HostedLoop, "_try_out", watch)
    agent = ds.QRSRM(Noisy(), risk="cvar(0.5)", averaging=0.25, **SMALL)
    saved = ds.Checkpoints(tmp_path, every_steps=350, keep=9)
    seen = watched(agent, 400, [saved])
    assert len(seen) == 16
    # What learns is not changed by it, and until the last quarter it is what is kept.
    assert all(
        all_equal(ours, theirs) for (ours, _), (theirs, _) in zip(seen, learned, strict=True)
    )
    assert all(all_equal(*one) for one in seen[:12])
    for last in range(12, 16):
        kept = seen[last][1]
        for leaf, ours in enumerate(kept):
            mean = np.mean([one[leaf] for one, _ in seen[12 : last + 1]], axis=0, dtype=np.float64)
            np.testing.assert_allclose(ours, mean, rtol=1e-4, atol=1e-5)
        assert all_equal(kept, tried[last])  # trials are of what would be kept
    assert not all_equal(*seen[-1])
    # It is in the checkpoint, and goes on from there.
    middle = ds.load(tmp_path / "checkpoint-000000000350", Noisy())
    average = run_of(middle).average
    assert average is not None
    assert average.count == 2
    assert all_equal(weights(average.networks), seen[13][1])
    middle.resume()
    assert count_of(run_of(middle)) == count_of(run_of(agent)) == 4
    # In another environment, after a new start or a new end it is another one.
    assert count_of(without_values(run_of(agent))) == 0
    agent.learn(200, reset_num_timesteps=False)  # of 600 steps in all the last quarter
    assert count_of(run_of(agent)) == 6
    agent.learn(200)
    assert count_of(run_of(agent)) == 2
