"""Training: the agents as users meet them, on one driver and two backends."""

from downside.envs.vector_adapter import EnvironmentFaultError
from downside.train.advice import AdviceWarning
from downside.train.agent import Agent
from downside.train.checkpoint import CheckpointError
from downside.train.driver import DivergenceError
from downside.train.family import ACSRM, PGSRM, QRDQN, QRSRM, QRCVaR, QRiCVaR
from downside.train.loading import load
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
