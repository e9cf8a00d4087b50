"""The paper's figures, colours and densities, and the cost of an update."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.experiments import _cost
from downside.experiments._figures import COLOURS, colour, density
from downside.experiments._paper import agent_label, agent_of, paper_table

MEASURES = paper_table("mean_reversion").measures


def test_the_paper_s_table_is_as_printed():
    table = paper_table("mean_reversion")
    assert len(table.rows) == 13
    assert len(table.measures) == 7
    assert str(table.figures["QR-iCVaR 0.5", "cvar(1.0)"]) == "0.82 ± 0.17"
    assert [table.best(measure) for measure in MEASURES] == [
        1.48,
        0.28,
        -0.17,
        0.05,
        0.48,
        0.4,
        0.24,
    ]


@pytest.mark.parametrize("name", ["mean_reversion", "windy_lunar_lander"])
def test_an_agent_is_called_as_in_the_paper(name):
    for row in paper_table(name).rows:
        assert agent_label(*agent_of(row)) == row
        ds.parse(agent_of(row)[1])


def test_every_agent_has_a_colour_of_its_own():
    assert len(set(COLOURS.values())) == len(COLOURS)
    for row in paper_table("mean_reversion").rows:
        assert row == "QR-DQN" or agent_of(row)[1] in COLOURS
        assert colour(row).startswith("#")


def test_a_density_integrates_to_one():
    grid = np.linspace(-8, 8, 2001)
    made = density(np.random.default_rng(0).normal(size=500), grid)
    assert np.trapezoid(made, grid) == pytest.approx(1.0, abs=1e-3)
    assert made.max() == pytest.approx(0.4, abs=0.05)


@pytest.mark.slow
def test_the_double_sum_is_the_same_function():
    start = jnp.sort(jax.random.normal(jax.random.key(0), (20,)))
    h = ds.Exponential(4.0).utility(start)
    values = jax.random.normal(jax.random.key(1), (3, 4, 20))
    np.testing.assert_allclose(
        _cost.DoubleSum(h).expectation(values), h.expectation(values), atol=1e-5
    )


@pytest.mark.slow
def test_the_cost_is_that_of_updates_which_change_the_network(tmp_path):
    rows = _cost.measured(tmp_path / "cost.csv", (4,), quick=True)
    assert [row["scoring"] for row in rows] == list(_cost.SCORINGS)
    assert all(row["milliseconds"] > 0 for row in rows)
    before, after = (_cost.update("lookup, N knots", 4, n)()[0] for n in (1, 2))
    moved = [np.abs(x - y).max() for x, y in zip(*map(jax.tree.leaves, (before, after)))]  # noqa: B905
    assert max(moved) > 0
