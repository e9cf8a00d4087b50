"""Planners that need no learning: the optimum of a static spectral risk measure."""
