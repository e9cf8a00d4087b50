"""`Did you mean ...?` names what may have been meant, and nothing else."""

import pytest

from downside._names import closest, did_you_mean, distance

SETTINGS = (
    *("gamma", "hidden_sizes", "layer_norm", "learning_rate", "batch_size", "n_steps", "quantiles"),
    *("num_envs", "total_timesteps", "keep_best", "outer_interval"),
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gama", "gamma"),
        ("learningrate", "learning_rate"),
        ("n_envs", "num_envs"),
        ("Quantile", "quantiles"),
        ("timesteps", "total_timesteps"),  # part of it
        ("hidden", "hidden_sizes"),
        ("bacth_size", "batch_size"),  # two letters swapped
        ("max_grad_norm", None),  # not layer_norm
        ("n_epochs", None),  # not n_steps
        ("clip_range", None),
        ("x", None),
        ("", None),
    ],
)
def test_only_what_is_close_is_suggested(name, meant):
    assert closest(name, SETTINGS) == meant


def test_a_measure_that_is_another_word_is_not_suggested():
    assert did_you_mean("cvra", ("mean", "cvar")) == " Did you mean 'cvar'?"
    assert did_you_mean("median", ("mean", "cvar")) == ""


@pytest.mark.parametrize(
    ("first", "second", "steps"),
    [("", "abc", 3), ("abc", "abc", 0), ("cvra", "cvar", 1), ("kitten", "sitting", 3)],
)
def test_the_distance_counts_letters(first, second, steps):
    assert distance(first, second) == distance(second, first) == steps
