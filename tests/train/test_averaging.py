"""The policy that is kept is the average of the networks over the last part of a run."""

import equinox as eqx
import jax
import numpy as np
import pytest

import downside as ds
from downside.agents.settings import identity
from downside.train.hosted import HostedLoop

from .test_hosted import SMALL, run_of, same
from .toys import Counter, Noisy

AVERAGED = {**SMALL, "averaging": 0.25}


def weights(networks):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(networks, eqx.is_array))]


def count_of(agent):
    average = run_of(agent).average
    return None if average is None else int(average.count)


def watched(agent, steps):
    """After each outer step: the networks that learn, and those that are kept."""
    seen = []
    agent.learn(
        steps,
        callback=lambda one: seen.append(
            (weights(run_of(one).learner.networks), weights(one.networks))
        ),
    )
    return seen


@pytest.mark.parametrize(
    ("make", "changes", "first"),
    [
        # 16 outer steps; the last quarter of the run are four of them.
        (lambda **kw: ds.QRDQN(Counter(), **kw), {}, 12),
        (lambda **kw: ds.QRSRM(Noisy(), risk="cvar(0.5)", **kw), {}, 12),
        # Half of the run would reach back to where the mean was maximised, up to 0.75 of it.
        (
            lambda **kw: ds.QRSRM(Noisy(), risk="cvar(0.5)", **kw),
            {"averaging": 0.5, "neutral_fraction": 0.75},
            12,
        ),
        # The mean all along: there is nothing that does not belong in it.
        (lambda **kw: ds.QRDQN(Counter(), **kw), {"averaging": 0.5, "neutral_fraction": 1.0}, 8),
    ],
    ids=["QR-DQN", "QR-SRM", "after the bend", "the mean"],
)
def test_the_kept_networks_are_the_mean_of_the_last_ones(make, changes, first):
    seen = watched(make(**{**AVERAGED, **changes}), 400)
    assert len(seen) == 16
    for learned, kept in seen[:first]:
        assert all(map(np.array_equal, learned, kept))
    for last in range(first, 16):
        learned = [one for one, _ in seen[first : last + 1]]
        for leaf, kept in enumerate(seen[last][1]):
            mean = np.mean([one[leaf] for one in learned], axis=0, dtype=np.float64)
            np.testing.assert_allclose(kept, mean, rtol=1e-4, atol=1e-5)
    assert not all(map(np.array_equal, *seen[-1]))  # it is another than the last one


def test_what_learns_is_not_changed_by_it():
    plain = watched(ds.QRSRM(Noisy(), risk="cvar(0.5)", **SMALL), 400)
    averaged = watched(ds.QRSRM(Noisy(), risk="cvar(0.5)", **AVERAGED), 400)
    for (ours, _), (theirs, _) in zip(plain, averaged, strict=True):
        assert all(map(np.array_equal, ours, theirs))


def test_an_average_goes_on_after_a_checkpoint(tmp_path):
    whole = ds.QRSRM(Noisy(), risk="cvar(0.5)", seed=5, **AVERAGED)
    whole.learn(400, callback=ds.Checkpoints(tmp_path, every_steps=350, keep=9))
    middle = ds.load(tmp_path / "checkpoint-000000000350", Noisy())
    assert count_of(middle) == 2
    # A run that goes on in the same place begins the same new episodes there.
    other = ds.load(tmp_path / "checkpoint-000000000350", Noisy())
    assert same(middle.resume(), other.resume())
    assert count_of(middle) == 4


def test_learning_again_begins_a_new_average():
    agent = ds.QRDQN(Counter(), **AVERAGED).learn(400)
    assert count_of(agent) == 4
    agent.learn(200)
    assert count_of(agent) == 2


def test_trials_are_of_the_average(monkeypatch):
    tried = []
    agent = ds.QRDQN(Counter(), **{**AVERAGED, "trials": 4, "trial_share": 40.0})
    real = HostedLoop._try_out

    def watch(self, program, algorithm, run, policy, before, length):
        tried.append((weights(run.learner.networks), weights(policy.networks)))
        return real(self, program, algorithm, run, policy, before, length)

    monkeypatch.setattr(HostedLoop, "_try_out", watch)
    agent.learn(400)
    assert all(map(np.array_equal, *tried[11]))
    assert not all(map(np.array_equal, *tried[15]))


def test_without_it_there_is_nothing_more_in_a_checkpoint():
    agent = ds.QRDQN(Counter(), **SMALL, averaging=0.0).learn(50)
    assert count_of(agent) is None
    settings = {"averaging": 0.0, "kappa": 0.1}
    assert identity(settings) == {"kappa": 0.1}
    assert identity({**settings, "averaging": 0.4}) == {"averaging": 0.4, "kappa": 0.1}


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"`averaging` must be .* \[0, 1\], got"):
        ds.QRDQN("CartPole-v1", averaging=value)


def test_what_is_simulated_is_not_averaged():
    with pytest.raises(ValueError, match=r"`averaging` must be 0.0 .*written in JAX"):
        ds.QRDQN("downside/AmericanPut-v0", averaging=0.1)
