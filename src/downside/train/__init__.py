"""Training: the agents, the loops that train them, and the files that keep them."""

from downside.train.agent import QRDQN, QRSRM, Agent, DivergenceError, QRCVaR, QRiCVaR
from downside.train.callbacks import Callback, Checkpoints, Evaluations, StopAtValue
from downside.train.checkpoint import CheckpointError
from downside.train.host import EnvironmentFaultError
from downside.train.loading import load
from downside.train.many import train_many

__all__ = [
    "QRDQN",
    "QRSRM",
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
