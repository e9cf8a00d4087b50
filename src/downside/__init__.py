"""Downside: reinforcement learning that optimises what happens when things go badly."""

import importlib
from typing import TYPE_CHECKING, Any

from downside._registration import register_environments

if TYPE_CHECKING:
    from downside import baselines
    from downside.agents import (
        CNN,
        MLP,
        GymnasiumSettings,
        OnPolicySettings,
        PathwiseSettings,
        QuantileSettings,
        Settings,
        SimulatorSettings,
        cnn,
    )
    from downside.decompose import ConditionalRisk, conditional_risk
    from downside.envs import (
        PastAware,
        ReturnAware,
        RiskReward,
        RiskRewardCallback,
        Simulator,
        SimulatorError,
        TargetAware,
        check_env,
    )
    from downside.evaluation import Difference, Evaluation, compare, evaluate, evaluate_policy
    from downside.exact import FiniteMDP, Plan, certified_bounds, cvar_curve, solve
    from downside.explanation import Explanation, explain
    from downside.reporting import report
    from downside.risk import (
        AbstractSpectralRisk,
        CustomSpectrum,
        CVaR,
        Dial,
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
    from downside.studies import StudyError, Sweep, sweep
    from downside.studies.frontiers import Frontier, frontier
    from downside.train import (
        ACSRM,
        PGSRM,
        QRDQN,
        QRSRM,
        AdviceWarning,
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

__version__ = "0.2.0"

__all__ = [
    "ACSRM",
    "CNN",
    "MLP",
    "PGSRM",
    "QRDQN",
    "QRSRM",
    "AbstractSpectralRisk",
    "AdviceWarning",
    "Agent",
    "CVaR",
    "Callback",
    "CheckpointError",
    "Checkpoints",
    "ConditionalRisk",
    "CustomSpectrum",
    "Dial",
    "Difference",
    "Distribution",
    "DivergenceError",
    "DualPower",
    "EnvironmentFaultError",
    "Evaluation",
    "Evaluations",
    "Explanation",
    "Exponential",
    "FiniteMDP",
    "Frontier",
    "GymnasiumSettings",
    "Mean",
    "OnPolicySettings",
    "PastAware",
    "PathwiseSettings",
    "Plan",
    "QRCVaR",
    "QRiCVaR",
    "QuantileSettings",
    "ReturnAware",
    "RiskReward",
    "RiskRewardCallback",
    "RiskSyntaxError",
    "Settings",
    "Simulator",
    "SimulatorError",
    "SimulatorSettings",
    "StopAtValue",
    "StudyError",
    "Sweep",
    "TargetAware",
    "Utility",
    "WeightedCVaR",
    "WeightedSum",
    "baselines",
    "certified_bounds",
    "check_env",
    "cnn",
    "compare",
    "conditional_risk",
    "cvar_curve",
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
    "CNN": "downside.agents",
    "cnn": "downside.agents",
    "MLP": "downside.agents",
    "GymnasiumSettings": "downside.agents",
    "OnPolicySettings": "downside.agents",
    "PathwiseSettings": "downside.agents",
    "QuantileSettings": "downside.agents",
    "Settings": "downside.agents",
    "SimulatorSettings": "downside.agents",
    "AdviceWarning": "downside.train",
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
    "ACSRM": "downside.train",
    "PGSRM": "downside.train",
    "QRSRM": "downside.train",
    "QRiCVaR": "downside.train",
    "train_many": "downside.train",
    "ConditionalRisk": "downside.decompose",
    "conditional_risk": "downside.decompose",
    "ReturnAware": "downside.envs",
    "PastAware": "downside.envs",
    "RiskReward": "downside.envs",
    "RiskRewardCallback": "downside.envs",
    "Simulator": "downside.envs",
    "SimulatorError": "downside.envs",
    "TargetAware": "downside.envs",
    "check_env": "downside.envs",
    "Difference": "downside.evaluation",
    "Evaluation": "downside.evaluation",
    "compare": "downside.evaluation",
    "evaluate": "downside.evaluation",
    "Explanation": "downside.explanation",
    "explain": "downside.explanation",
    "report": "downside.reporting",
    "Frontier": "downside.studies.frontiers",
    "frontier": "downside.studies.frontiers",
    "StudyError": "downside.studies",
    "Sweep": "downside.studies",
    "sweep": "downside.studies",
    "evaluate_policy": "downside.evaluation",
    "FiniteMDP": "downside.exact",
    "Plan": "downside.exact",
    "certified_bounds": "downside.exact",
    "cvar_curve": "downside.exact",
    "solve": "downside.exact",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'downside' has no attribute {name!r}")
    if name == "baselines":
        return importlib.import_module("downside.baselines")
    return getattr(importlib.import_module(_HOMES.get(name, "downside.risk")), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
