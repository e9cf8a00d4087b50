from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest, norm

from downside.envs import AmericanPut, CliffWalk, MeanReversion, ReturnAware, TargetAware
from downside.envs.noise import mirrored_normals, mirrored_uniforms

from .scripted import Scripted

KEYS = jax.random.split(jax.random.key(0), 40_000)
COUNT = 8
NORMAL = pytest.mark.parametrize("core", [MeanReversion(), AmericanPut()], ids=["trade", "put"])


class Coin(Scripted):
    """Its noise is a pair of a number and a vector; there is no rule for several."""

    def sample_noise(self, key) -> Any:
        return jax.random.uniform(key), jax.random.normal(key, (2,))


def noises(core, keys=KEYS, count=COUNT):
    return np.asarray(jax.vmap(lambda key: core.sample_noises(key, count))(keys), np.float64)


def independent(core, keys=KEYS, count=COUNT):
    draw = jax.vmap(lambda key: jax.vmap(core.sample_noise)(jax.random.split(key, count)))
    return np.asarray(draw(keys), np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 5, 8])
def test_every_uniform_alone_is_uniform_and_together_they_come_in_pairs(count):
    uniforms = jax.vmap(lambda key: mirrored_uniforms(key, count))(KEYS)
    uniforms = np.asarray(uniforms, np.float64)
    for k in range(count):
        assert kstest(uniforms[:, k], "uniform").pvalue > 1e-4
    half = (count + 1) // 2
    pairs = uniforms[:, : count - half] + uniforms[:, half:]
    np.testing.assert_allclose(pairs, 1.0, atol=1e-6)
    folded = np.minimum(uniforms[:, :half], 1 - uniforms[:, :half])
    cells = np.sort(np.floor(2 * half * folded), axis=1)
    assert (cells == np.arange(half)).mean() > 0.9999  # one in each cell, but for rounding


@pytest.mark.slow
@NORMAL
def test_every_normal_alone_is_standard_normal_and_so_are_all_of_them(core):
    drawn = noises(core)
    for k in range(COUNT):
        assert kstest(drawn[:, k], norm.cdf).pvalue > 1e-4
    # Evenly spread as they are, all of them pooled fit as well as half as many independent ones
    # would, whose largest distance is mostly below 1.63 / sqrt(160,000) = 0.0041.
    pooled = np.sort(drawn.ravel())
    assert np.abs(norm.cdf(pooled) - (np.arange(pooled.size) + 0.5) / pooled.size).max() < 0.0041
    np.testing.assert_allclose([pooled.mean(), pooled.std()], [0.0, 1.0], atol=4e-3)


@pytest.mark.parametrize("slip", [0.0, 0.3, 1.0])
def test_every_slip_alone_has_its_probability_and_together_they_have_it_to_one(slip):
    core = CliffWalk(slip=slip)
    drawn = noises(core).astype(int)
    shares = [[np.mean(drawn[:, k] == noise) for noise in range(3)] for k in range(COUNT)]
    # The standard error of a share of 0.7 is 0.0023.
    expected = core.noise_probabilities
    np.testing.assert_allclose(shares, np.tile(expected, (COUNT, 1)), atol=0.012)
    np.testing.assert_allclose(np.mean(shares, axis=0), expected, atol=0.004)
    often = np.stack([(drawn == noise).sum(axis=1) for noise in range(3)], axis=1)
    # Each half has its share of every interval up to one at each of its two ends.
    assert (np.abs(often - COUNT * expected) <= 4.0).all()


@NORMAL
@pytest.mark.parametrize(
    ("smooth", "share"),
    # An odd function cancels in pairs; to an even one the four pairs are four stratified draws.
    [(np.tanh, 1e-6), (np.cos, 0.4), (lambda z: np.exp(0.3 * z), 0.1)],
    ids=["tanh", "cos", "exp"],
)
def test_an_average_over_them_varies_far_less_than_over_independent_ones(core, smooth, share):
    even = smooth(noises(core)).mean(axis=1)
    apart = smooth(independent(core)).mean(axis=1)
    assert even.var() < share * apart.var()
    assert abs(even.mean() - apart.mean()) < 5 * apart.std() / np.sqrt(len(KEYS))


def test_the_share_of_slips_varies_far_less_than_over_independent_ones():
    core = CliffWalk(slip=0.3)
    assert (noises(core) > 0).mean(axis=1).var() < 0.3 * (independent(core) > 0).mean(axis=1).var()


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 7, 8, 64, 1000])
@pytest.mark.parametrize("shift", [0.0, 1e-7, 0.5, np.float32(1.0) - np.float32(2**-24)])
def test_no_normal_is_infinite_whatever_the_uniform_is(monkeypatch, count, shift):
    monkeypatch.setattr(
        jax.random, "uniform", lambda key, shape: jnp.full(shape, shift, jnp.float32)
    )
    uniforms = mirrored_uniforms(jax.random.key(0), count)
    assert (uniforms > 0.0).all()
    assert (uniforms < 1.0).all()
    # What a single normal number of 32 bits can be at most is as large.
    assert (np.abs(mirrored_normals(jax.random.key(0), count)) < 5.5).all()


@pytest.mark.slow
def test_they_have_the_precision_of_the_caller():
    assert mirrored_normals(jax.random.key(0), 3).dtype == jnp.float32
    with jax.enable_x64(True):
        assert mirrored_normals(jax.random.key(0), 3).dtype == jnp.float64


def test_without_a_rule_of_its_own_a_problem_draws_independent_ones():
    number, vector = jax.jit(Coin().sample_noises, static_argnums=1)(jax.random.key(3), 1000)
    assert number.shape == (1000,)
    assert vector.shape == (1000, 2)
    assert kstest(np.asarray(number), "uniform").pvalue > 1e-4
    # Independent ones leave about a share 1/e of a thousand cells empty.
    filled = len(np.unique(np.floor(1000 * np.asarray(number, np.float64))))
    assert 580 < filled < 685


@pytest.mark.parametrize(
    "wrap", [lambda c: ReturnAware(c, 0.9), lambda c: TargetAware(c, 1.0, 0.0)]
)
def test_memory_does_not_change_the_noises(wrap):
    core, key = MeanReversion(), jax.random.key(5)
    np.testing.assert_array_equal(wrap(core).sample_noises(key, 4), core.sample_noises(key, 4))


@pytest.mark.slow
def test_single_noises_are_drawn_as_they_always_were():
    key = jax.random.key(11)
    assert MeanReversion().sample_noise(key) == jax.random.normal(key)
    assert AmericanPut().sample_noise(key) == jax.random.normal(key)
    uniform = jax.vmap(jax.random.uniform)(KEYS[:1000])
    core = CliffWalk(slip=0.4)
    expected = (uniform >= 0.6).astype(int) + (uniform >= 0.8)
    np.testing.assert_array_equal(jax.vmap(core.sample_noise)(KEYS[:1000]), expected)
