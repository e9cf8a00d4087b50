"""Where the runs of a study are done: on this machine, or on a Ray cluster."""

from downside.sweeping.engines.base import AbstractEngine, Report, make_engine

__all__ = ["AbstractEngine", "Report", "make_engine"]
