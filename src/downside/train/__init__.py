"""Training: the agents, and the loops that train them."""

from downside.train.agent import QRDQN, QRSRM, Agent, QRCVaR, QRiCVaR
from downside.train.many import train_many

__all__ = ["QRDQN", "QRSRM", "Agent", "QRCVaR", "QRiCVaR", "train_many"]
