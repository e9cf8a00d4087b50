"""Spectral risk measures: spectrum, mixture form, algebra, parsing, and the utility h."""

from downside.risk.base import AbstractSpectralRisk, Mixture
from downside.risk.combination import WeightedSum
from downside.risk.custom import CustomSpectrum
from downside.risk.dial import Dial, Member, as_dial
from downside.risk.distribution import Distribution, as_distribution, point_masses
from downside.risk.measures import CVaR, DualPower, Exponential, Mean, WeightedCVaR
from downside.risk.mixture import CVaRMixture
from downside.risk.parsing import RiskSyntaxError, as_risk, parse
from downside.risk.registry import RiskEntry, entries, register
from downside.risk.utility import Utility

__all__ = [
    "AbstractSpectralRisk",
    "CVaR",
    "CVaRMixture",
    "CustomSpectrum",
    "Dial",
    "Distribution",
    "DualPower",
    "Exponential",
    "Mean",
    "Member",
    "Mixture",
    "RiskEntry",
    "RiskSyntaxError",
    "Utility",
    "WeightedCVaR",
    "WeightedSum",
    "as_dial",
    "as_distribution",
    "as_risk",
    "entries",
    "parse",
    "point_masses",
    "register",
]
