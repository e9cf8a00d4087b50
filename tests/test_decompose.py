import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from downside import CVaR, Distribution, Exponential, Mean, conditional_risk, parse
from downside.experiments import example1, example2

from .risk import strategies


class TestExample1:
    """Section 5 of the paper, table 1 and the text below it."""

    risk = parse(example1.RISK)
    start = example1.start_return()
    later = example1.later_returns()

    def test_values_at_the_start(self):
        np.testing.assert_allclose(self.start.tail_mean([0.4, 0.8]), [5.25, 6.375], rtol=1e-12)
        assert self.risk(self.start.values, self.start.probabilities) == pytest.approx(5.5875)

    @pytest.mark.parametrize(
        ("state", "per_level", "xi", "levels", "weights", "value"),
        [
            # 0.7 * 1.25 / 1.2 = 0.729166..; 0.729.. * 6 + 0.2708.. * 8.6923.. = 6.72916..
            ("x1¹", [1.25, 13 / 12], 1.2, [0.5, 13 / 15], [0.875 / 1.2, 0.325 / 1.2], 6.73),
            ("x1²", [0.625, 0.875], 0.7, [0.25, 0.7], [0.625, 0.375], 8.32),
        ],
    )
    def test_the_measure_at_each_state(self, state, per_level, xi, levels, weights, value):
        got = conditional_risk(self.risk, self.start, self.later[state], s=2.0, c=0.5)
        np.testing.assert_allclose(got.xi_per_level, per_level, rtol=1e-12)
        np.testing.assert_allclose(got.xi, xi, rtol=1e-12)
        np.testing.assert_allclose(got.levels, levels, rtol=1e-12)
        np.testing.assert_allclose(got.weights, weights, rtol=1e-12)
        assert round(float(got.value), 2) == value
        later = self.later[state]
        assert got.risk is not None
        np.testing.assert_allclose(got.risk(later.values, later.probabilities), got.value)

    def test_the_value_is_recovered_from_the_later_states(self):
        both = Distribution(
            [[6.0, 12.0, 14.0], [8.0, 10.0, 16.0]], [[0.5, 0.3, 0.2], [0.4, 0.3, 0.3]]
        )
        got = conditional_risk(self.risk, self.start, both, s=2.0, c=0.5)
        chance = np.array([0.6, 0.4])
        assert np.sum(chance * got.xi * (2 + 0.5 * got.value)) == pytest.approx(5.5875, abs=1e-12)
        np.testing.assert_allclose(chance @ got.xi_per_level, [1.0, 1.0])


class TestExample2:
    """Appendix H of the paper: quantile representations, a level on a grid point."""

    got = conditional_risk(example2.RISK, example2.THETA, example2.THETA_LATER, s=5.0, c=0.8)

    def test_thresholds_take_the_upper_quantile(self):
        np.testing.assert_array_equal(self.got.thresholds, [12.0, 39.0])

    def test_levels_and_weights(self):
        np.testing.assert_allclose(self.got.levels, [0.3, 1.0], rtol=1e-12)
        np.testing.assert_allclose(self.got.xi_per_level, [1.2, 1.25], rtol=1e-12)
        assert self.got.xi == pytest.approx(1.22)
        np.testing.assert_allclose(self.got.weights, [0.72 / 1.22, 0.5 / 1.22], rtol=1e-12)

    def test_as_a_plain_distribution_the_lower_quantile_gives_another_level(self):
        # F_G^-1(0.8) = 32 and not 39; (32 - 5) / 0.8 = 33.75 has 9 of 10 below it.
        plain = conditional_risk(
            example2.RISK,
            Distribution(example2.THETA),
            Distribution(example2.THETA_LATER),
            s=5.0,
            c=0.8,
        )
        np.testing.assert_array_equal(plain.thresholds, [12.0, 32.0])
        np.testing.assert_allclose(plain.levels, [0.3, 0.9], rtol=1e-12)


@st.composite
def processes(draw):
    """Paths stopped at random times: (chance, s, c, distribution of what is still to come)."""
    gamma = draw(st.sampled_from([1.0, 0.5, 0.9, 0.99]))
    count = draw(st.integers(1, 5))
    chances = draw(strategies.shares(count))
    states = []
    for chance in chances:
        steps = draw(st.integers(0, 5))
        rewards = draw(st.lists(st.integers(-3, 3), min_size=steps, max_size=steps))
        s = sum(reward * gamma**i for i, reward in enumerate(rewards))
        states.append((chance, s, gamma**steps, Distribution(*draw(strategies.discrete(most=5)))))
    return states


def start_of(states):
    parts = [later.affine(s, c) for _, s, c, later in states]
    return Distribution.mixture(parts, [chance for chance, _, _, _ in states])


@pytest.mark.slow
@given(strategies.risks, processes())
def test_the_value_is_the_mean_of_the_conditional_values(risk, states):
    # The tower identity at random stopping times: ρ(G) = E[ξ (s + c ρ_ξ(G_t))], E[ξ per level] = 1.
    start = start_of(states)
    risks = [conditional_risk(risk, start, later, s=s, c=c) for _, s, c, later in states]
    chances = np.array([chance for chance, _, _, _ in states])
    per_level = np.stack([here.xi_per_level for here in risks])
    np.testing.assert_allclose(chances @ per_level, 1.0, atol=1e-8)
    total = sum(
        chance * here.xi * (s + c * here.value)
        for (chance, s, c, _), here in zip(states, risks, strict=True)
    )
    scale = 1 + np.abs(start.values).max()
    np.testing.assert_allclose(
        total, risk(start.values, start.probabilities), atol=1e-8 * scale, rtol=1e-9
    )


@pytest.mark.slow
@given(strategies.risks, processes())
def test_xi_is_the_conditional_mean_of_the_dual_variable(risk, states):
    # E[ξ^α | F_t] over the outcomes of each state, from the definition in appendix G.
    start = start_of(states)
    for _, s, c, later in states:
        got = conditional_risk(risk, start, later, s=s, c=c)
        for i, alpha in enumerate(got.start_levels):
            bound = got.thresholds[i]
            inside = (alpha - start.cdf(bound) + start.pmf(bound)) / start.pmf(bound)
            whole = later.affine(s, c)
            close = np.abs(whole.values - bound) <= 1e-9 * (1 + abs(bound))
            dual = np.where(close, inside, whole.values < bound) / alpha
            np.testing.assert_allclose(
                got.xi_per_level[i], (dual * whole.probabilities).sum(), atol=1e-8
            )


@given(strategies.risks, strategies.discrete())
def test_at_the_start_nothing_has_changed(risk, drawn):
    start = Distribution(*drawn)
    got = conditional_risk(risk, start, start)
    np.testing.assert_allclose(got.xi_per_level, 1.0, atol=1e-9)
    np.testing.assert_allclose(got.value, risk(start.values, start.probabilities), atol=1e-8)


def test_a_batch_is_every_state_by_itself():
    rng = np.random.default_rng(0)
    start, later = rng.normal(size=50), rng.normal(size=(4, 3, 50))
    s, c = rng.normal(size=(4, 3)), np.full((4, 3), 0.9)
    batch = conditional_risk(Exponential(4.0), start, later, s, c)
    assert batch.value.shape == (4, 3)
    alone = conditional_risk(Exponential(4.0), start, later[2, 1], s[2, 1], 0.9)
    np.testing.assert_allclose(batch[2, 1].levels, alone.levels)
    np.testing.assert_allclose(batch[2][1].value, alone.value)
    assert batch[2, 1].risk == alone.risk


def test_it_is_traceable_and_agrees_with_numpy():
    rng = np.random.default_rng(1)
    start, later = rng.normal(size=20), rng.normal(size=(6, 20))
    plain = conditional_risk("0.5*mean + 0.5*cvar(0.3)", start, later, 0.2, 0.9)
    traced = jax.jit(lambda *args: conditional_risk("0.5*mean + 0.5*cvar(0.3)", *args))(
        jnp.asarray(start), jnp.asarray(later), 0.2, 0.9
    )
    np.testing.assert_allclose(traced.levels, plain.levels, atol=1e-6)
    np.testing.assert_allclose(traced.value, plain.value, atol=1e-5)


def test_the_share_of_the_mean_keeps_its_level_even_if_learned_distributions_disagree():
    got = conditional_risk(Mean(), [1.0, 2.0], [5.0, 6.0])
    np.testing.assert_array_equal(got.levels, [1.0])
    assert got.value == 5.5
    assert got.risk == Mean()


def test_where_no_outcome_is_in_the_tail_there_is_nothing_left_to_optimise():
    got = conditional_risk(CVaR(0.5), Distribution([0.0, 10.0]), Distribution([1.0, 3.0]), s=10.0)
    assert got.xi == 0.0
    assert got.risk is None
    assert got.value == 1.0  # CVaR at level 0: the worst outcome
    np.testing.assert_array_equal(got.weights, [1.0])


def test_after_a_gain_only_the_far_tail_matters_and_after_a_loss_nearly_everything():
    theta = np.linspace(-1, 1, 101)
    gain = conditional_risk(CVaR(0.5), theta, theta, s=0.5)
    loss = conditional_risk(CVaR(0.5), theta, theta, s=-0.5)
    assert gain.levels[0] == pytest.approx(0.25, abs=0.02)
    assert loss.levels[0] == pytest.approx(0.75, abs=0.02)


class TestRounding:
    """Values that are the same but for rounding count as one, and no others do."""

    def test_thresholds_are_met_by_values_that_were_computed_another_way(self):
        # The start has 0.3; the later state 0.1 + 1 * 0.2, which is 0.30000000000000004.
        start = Distribution([0.0, 0.3, 1.0], [0.25, 0.5, 0.25])
        got = conditional_risk(CVaR(0.5), start, Distribution([0.2], [1.0]), s=0.1)
        # Half of the atom of 0.5 at the threshold is in the tail: 0 + 1 * (0.5 - 0.25) / 0.5.
        np.testing.assert_allclose(got.levels, [0.5], rtol=1e-12)

    @pytest.mark.slow
    def test_an_outlier_does_not_blur_the_rest_in_single_precision(self):
        theta = np.append(-1e5, np.linspace(0, 1, 49))
        single = conditional_risk(CVaR(0.5), jnp.asarray(theta), jnp.asarray(theta), s=0.3)
        double = conditional_risk(CVaR(0.5), theta, theta, s=0.3)
        np.testing.assert_allclose(single.levels, double.levels, atol=1e-6)

    @pytest.mark.parametrize("s", [1e6, 1e9])
    def test_large_accumulated_rewards_cancel(self, s):
        start, later = Distribution([0.1, 1.1]), Distribution([0.1 - s, 1.1 - s])
        assert conditional_risk(CVaR(0.25), start, later, s=s).xi == pytest.approx(1.0)

    def test_tiny_levels_survive_single_precision(self):
        theta = jnp.arange(10.0)
        for alpha in (1e-5, 1e-3):
            assert conditional_risk(CVaR(alpha), theta, theta).xi == pytest.approx(1.0, rel=1e-4)

    def test_an_outcome_without_probability_changes_nothing(self):
        later = Distribution([1.0, 2.0])
        plain = conditional_risk(
            Exponential(4.0), Distribution([1.0, 2.0, 5.0], [0.25, 0.25, 0.5]), later, s=0.5
        )
        padded = conditional_risk(
            Exponential(4.0), Distribution([0, 1, 2.0, 5], [0, 0.25, 0.25, 0.5]), later, s=0.5
        )
        np.testing.assert_allclose(padded.xi, plain.xi)
        np.testing.assert_allclose(padded.value, plain.value)


@pytest.mark.parametrize("risk", [Exponential(4.0), parse("0.5*exp(2) + 0.5*cvar(0.3)")], ids=str)
def test_dense_spectra_are_traceable_too(risk):
    rng = np.random.default_rng(2)
    start, later = rng.normal(size=30), rng.normal(size=(3, 30))
    plain = conditional_risk(risk, start, later, 0.1, 0.9)
    traced = jax.jit(lambda *args: conditional_risk(risk, *args))(
        jnp.asarray(start), jnp.asarray(later), 0.1, 0.9
    )
    np.testing.assert_allclose(traced.value, plain.value, atol=1e-4)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="`c` must be finite"):
        conditional_risk(CVaR(0.5), [1.0], [1.0], c=np.inf)
    with pytest.raises(ValueError, match=r"`c` must be positive, got 0\.0.*gamma \*\* t"):
        conditional_risk(CVaR(0.5), [1.0], [1.0], s=0.0, c=0.0)
    with pytest.raises(ValueError, match="`s` must be finite"):
        conditional_risk(CVaR(0.5), [1.0], [1.0], s=np.inf)
    with pytest.raises(ValueError, match="`start` must be one distribution"):
        conditional_risk(CVaR(0.5), np.zeros((2, 3)), [1.0])
    batch = conditional_risk(CVaR(0.5), [1.0], np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"`risk` is for one state, got a batch of shape \(2,\)"):
        _ = batch.risk
    with pytest.raises(IndexError, match="nothing to index"):
        batch[0][0]
