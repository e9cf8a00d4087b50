"""Between two risk measures: what more of one costs in the other.

The package is called `frontiers` because `downside.frontier` is the function.
"""

from downside.studies.engines.in_process import Trained
from downside.studies.frontiers.curve import Frontier, Optimum, Point
from downside.studies.frontiers.mixtures import mixtures
from downside.studies.frontiers.train import frontier

__all__ = ["Frontier", "Optimum", "Point", "Trained", "frontier", "mixtures"]
