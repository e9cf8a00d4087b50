"""Training: the agents as users meet them, on one driver and two backends."""

from downside.envs.gymnasium.vector_adapter import EnvironmentFaultError
from downside.train.agent import Agent
from downside.train.backends.gymnasium.advice import AdviceWarning
from downside.train.checkpoints.checkpoint import CheckpointError
from downside.train.checkpoints.loading import load
from downside.train.driver import DivergenceError
from downside.train.family import ACSRM, PGSRM, QRDQN, QRSRM, QRCVaR, QRiCVaR
from downside.train.many import train_many
from downside.train.monitor import Callback, Checkpoints, Evaluations, StopAtValue

__all__ = [
    "ACSRM",
    "PGSRM",
    "QRDQN",
    "QRSRM",
    "AdviceWarning",
    "Agent",
    "Callback",
    "CheckpointError",
    "Checkpoints",
    "DivergenceError",
    "EnvironmentFaultError",
    "Evaluations",
    "QRCVaR",
    "QRiCVaR",
    "StopAtValue",
    "load",
    "train_many",
]
