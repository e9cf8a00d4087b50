"""The public agents of the family, each one algorithm."""

from downside.agents import DQN, SRM, ActorSRM, DialSRM, ICVaR, StaticCVaR
from downside.train.agent import Agent
from downside.train.pathwise_backend import PathwiseBackend


class QRSRM(Agent):
    """QR-SRM: any static spectral risk measure (the paper's algorithm)."""

    algorithm_class = SRM


class QRCVaR(Agent):
    """QR-CVaR: one static CVaR, by a search for its target at the start."""

    algorithm_class = StaticCVaR


class QRiCVaR(Agent):
    """QR-iCVaR: a fixed risk measure of what is still to come, at every step."""

    algorithm_class = ICVaR


class QRDQN(Agent):
    """QR-DQN: the mean."""

    algorithm_class = DQN


class PGSRM(Agent):
    """PG-SRM: any static spectral risk measure, by an actor that follows its gradient.

    Actions may be continuous. The gradient is that of whole simulated episodes: the environment
    must be written in JAX.
    """

    algorithm_class = ActorSRM
    dial_algorithm = DialSRM
    jax_backend = PathwiseBackend
    gym_backend = None
