"""An evaluation as a figure."""

import numpy as np

import downside as ds


def test_the_figure_marks_the_value_and_shows_the_spectrum_beside_it():
    evaluation = ds.Evaluation(np.random.default_rng(0).normal(size=500), label="costs $1")
    figure = evaluation.plot("0.5*mean + 0.5*cvar(0.2)")
    returns, spectrum = figure.axes
    value = evaluation.value("0.5*mean + 0.5*cvar(0.2)")
    assert any(np.allclose(np.asarray(line.get_xdata(), float), value) for line in returns.lines)
    # 0.5 + 0.5 / 0.2 below rank 0.2, and 0.5 above it.
    heights = np.asarray(spectrum.lines[0].get_ydata(), float)
    np.testing.assert_allclose([heights[0], heights[-1]], [3.0, 0.5])
    figure.canvas.draw()
