"""Between two risk measures: what more of one costs in the other.

The package is called `frontiers` because `downside.frontier` is the function.
"""

from downside.frontiers.curve import Frontier, Optimum, Point, Trained
from downside.frontiers.intervals import Valued
from downside.frontiers.make import frontier
from downside.frontiers.mixtures import mixtures

__all__ = ["Frontier", "Optimum", "Point", "Trained", "Valued", "frontier", "mixtures"]
