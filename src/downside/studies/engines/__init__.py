"""Engines run the tasks of a study: on this machine, or on a Ray cluster."""

from downside.studies.engines.base import AbstractEngine, Report, make_engine

__all__ = ["AbstractEngine", "Report", "make_engine"]
