"""The algorithms, one file each, on shared networks, losses and settings."""

from downside.agents.acsrm import LivedSRM
from downside.agents.actor_critic_learner import ActorCriticLearner
from downside.agents.algorithm import (
    AbstractActorAlgorithm,
    AbstractAlgorithm,
    AbstractDialAlgorithm,
    AbstractQuantileAlgorithm,
    BranchedTransition,
    CandidateReturns,
    OuterVariable,
)
from downside.agents.choice_dial import ChoiceDial
from downside.agents.dial import DialSRM
from downside.agents.learner import AbstractLearner
from downside.agents.lived import AbstractLivedAlgorithm
from downside.agents.lived_dial import LivedDialSRM
from downside.agents.memoryless import AbstractMemoryless
from downside.agents.networks import CNN, MLP, Network, cnn
from downside.agents.pgsrm import ActorSRM, PathwiseLearner
from downside.agents.qrcvar import StaticCVaR
from downside.agents.qrdqn import DQN
from downside.agents.qricvar import ICVaR
from downside.agents.qrsrm import SRM, ShiftedUtility
from downside.agents.quantile_learner import LearnerState, Networks, QuantileLearner
from downside.agents.settings import (
    GymnasiumSettings,
    OnPolicySettings,
    PathwiseSettings,
    QuantileSettings,
    Settings,
    SimulatorSettings,
)

__all__ = [
    "CNN",
    "DQN",
    "MLP",
    "SRM",
    "AbstractActorAlgorithm",
    "AbstractAlgorithm",
    "AbstractDialAlgorithm",
    "AbstractLearner",
    "AbstractLivedAlgorithm",
    "AbstractMemoryless",
    "AbstractQuantileAlgorithm",
    "ActorCriticLearner",
    "ActorSRM",
    "BranchedTransition",
    "CandidateReturns",
    "ChoiceDial",
    "DialSRM",
    "GymnasiumSettings",
    "ICVaR",
    "LearnerState",
    "LivedDialSRM",
    "LivedSRM",
    "Network",
    "Networks",
    "OnPolicySettings",
    "OuterVariable",
    "PathwiseLearner",
    "PathwiseSettings",
    "QuantileLearner",
    "QuantileSettings",
    "Settings",
    "ShiftedUtility",
    "SimulatorSettings",
    "StaticCVaR",
    "cnn",
]
