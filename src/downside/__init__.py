"""Downside: reinforcement learning that optimises what happens when things go badly."""

import importlib
from typing import TYPE_CHECKING, Any

from downside._registration import register_environments

if TYPE_CHECKING:
    from downside.agents import MLP, Settings
    from downside.decompose import ConditionalRisk, conditional_risk
    from downside.envs import PastAware, ReturnAware, TargetAware
    from downside.evaluation import Difference, Evaluation, compare, evaluate, evaluate_policy
    from downside.exact import FiniteMDP, Plan, certified_bounds, solve
    from downside.explanation import Story, explain
    from downside.frontiers import Frontier, frontier
    from downside.reporting import report
    from downside.risk import (
        AbstractSpectralRisk,
        CustomSpectrum,
        CVaR,
        Distribution,
        DualPower,
        Exponential,
        Mean,
        RiskSyntaxError,
        Utility,
        WeightedCVaR,
        WeightedSum,
        parse,
        register,
    )
    from downside.sweeping import StudyError, Sweep, sweep
    from downside.train import (
        QRDQN,
        QRSRM,
        Agent,
        Callback,
        CheckpointError,
        Checkpoints,
        DivergenceError,
        EnvironmentFaultError,
        Evaluations,
        QRCVaR,
        QRiCVaR,
        StopAtValue,
        load,
        train_many,
    )

__version__ = "0.1.0"

__all__ = [
    "MLP",
    "QRDQN",
    "QRSRM",
    "AbstractSpectralRisk",
    "Agent",
    "CVaR",
    "Callback",
    "CheckpointError",
    "Checkpoints",
    "ConditionalRisk",
    "CustomSpectrum",
    "Difference",
    "Distribution",
    "DivergenceError",
    "DualPower",
    "EnvironmentFaultError",
    "Evaluation",
    "Evaluations",
    "Exponential",
    "FiniteMDP",
    "Frontier",
    "Mean",
    "PastAware",
    "Plan",
    "QRCVaR",
    "QRiCVaR",
    "ReturnAware",
    "RiskSyntaxError",
    "Settings",
    "StopAtValue",
    "Story",
    "StudyError",
    "Sweep",
    "TargetAware",
    "Utility",
    "WeightedCVaR",
    "WeightedSum",
    "certified_bounds",
    "compare",
    "conditional_risk",
    "evaluate",
    "evaluate_policy",
    "explain",
    "frontier",
    "load",
    "parse",
    "register",
    "report",
    "solve",
    "sweep",
    "train_many",
]

register_environments()

# Names are imported when they are first used, so that `downside --help` does not wait for JAX.
_HOMES = {
    "MLP": "downside.agents",
    "Settings": "downside.agents",
    "Agent": "downside.train",
    "load": "downside.train",
    "StopAtValue": "downside.train",
    "Evaluations": "downside.train",
    "EnvironmentFaultError": "downside.train",
    "DivergenceError": "downside.train",
    "Checkpoints": "downside.train",
    "CheckpointError": "downside.train",
    "Callback": "downside.train",
    "QRCVaR": "downside.train",
    "QRDQN": "downside.train",
    "QRSRM": "downside.train",
    "QRiCVaR": "downside.train",
    "train_many": "downside.train",
    "ConditionalRisk": "downside.decompose",
    "conditional_risk": "downside.decompose",
    "ReturnAware": "downside.envs",
    "PastAware": "downside.envs",
    "TargetAware": "downside.envs",
    "Difference": "downside.evaluation",
    "Evaluation": "downside.evaluation",
    "compare": "downside.evaluation",
    "evaluate": "downside.evaluation",
    "Story": "downside.explanation",
    "explain": "downside.explanation",
    "report": "downside.reporting",
    "Frontier": "downside.frontiers",
    "frontier": "downside.frontiers",
    "StudyError": "downside.sweeping",
    "Sweep": "downside.sweeping",
    "sweep": "downside.sweeping",
    "evaluate_policy": "downside.evaluation",
    "FiniteMDP": "downside.exact",
    "Plan": "downside.exact",
    "certified_bounds": "downside.exact",
    "solve": "downside.exact",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'downside' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "downside.risk")), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
