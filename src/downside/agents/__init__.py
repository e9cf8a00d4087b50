"""The algorithms: one idea, quantile Q-learning, with three choices (see `algorithm.py`)."""

from downside.agents.algorithm import AbstractAlgorithm, Decision, Goal, Measured
from downside.agents.learner import Learner, Networks, action_scores
from downside.agents.networks import MLP, Network
from downside.agents.qrcvar import StaticCVaR
from downside.agents.qrdqn import DQN
from downside.agents.qricvar import ICVaR
from downside.agents.qrsrm import SRM, Aim
from downside.agents.settings import PRESETS, Settings, settings

__all__ = [
    "DQN",
    "MLP",
    "PRESETS",
    "SRM",
    "AbstractAlgorithm",
    "Aim",
    "Decision",
    "Goal",
    "ICVaR",
    "Learner",
    "Measured",
    "Network",
    "Networks",
    "Settings",
    "StaticCVaR",
    "action_scores",
    "settings",
]
