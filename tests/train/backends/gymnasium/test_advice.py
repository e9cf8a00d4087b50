"""Advice on the door through which a problem came."""

import warnings

import jax
import numpy as np
import pytest

import downside as ds
from downside.train.backends.gymnasium import advice

from ...tiny import SMALL
from ...toys import Noisy

SHORT = np.array([3.0, 4.0])


@pytest.fixture(autouse=True)
def _nothing_given(monkeypatch):
    monkeypatch.setattr(advice, "_GIVEN", set())


def test_cheap_short_episodes_get_one_line_once():
    with pytest.warns(ds.AdviceWarning, match=r"Game is cheap.*about 4 steps of 20 µs.*Simulator"):
        assert advice.advise("Game", SHORT, 20e-6, 100_000)
    assert not advice.advise("Game", SHORT, 20e-6, 100_000)


@pytest.mark.parametrize(
    ("lengths", "seconds", "timesteps"),
    [
        (100 * SHORT, 20e-6, 100_000),
        (SHORT, 1e-3, 100_000),
        (SHORT, 20e-6, 1000),
        ([], 1e-6, 10**6),
    ],
    ids=["long episodes", "slow steps", "a short run", "no episodes"],
)
def test_other_problems_get_none(lengths, seconds, timesteps):
    assert not advice.advise("Game", np.asarray(lengths, float), seconds, timesteps)


@pytest.mark.slow
def test_learn_advises_where_an_environment_is_lived_through(monkeypatch):
    monkeypatch.setattr(advice, "_CHEAP", 1.0)  # however slow this machine is today
    agent = ds.QRSRM(Noisy(), risk="cvar(0.5)", **SMALL)
    driver = agent._driver
    key = jax.random.key(0)
    with pytest.warns(ds.AdviceWarning, match="episodes are short"):
        driver.backend.init(driver.new_spec(50_000), driver.algorithm, key)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        driver.backend.init(driver.new_spec(50_000), driver.algorithm, key)
