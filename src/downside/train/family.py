"""The public agents of the family, each one algorithm."""

from downside.agents import DQN, SRM, ActorSRM, DialSRM, ICVaR, LivedDialSRM, LivedSRM, StaticCVaR
from downside.envs import Hedging
from downside.risk import AbstractSpectralRisk
from downside.train.agent import Agent
from downside.train.backends.on_policy.backend import OnPolicyBackend
from downside.train.backends.pathwise.backend import PathwiseBackend


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

    def price(
        self,
        risk: AbstractSpectralRisk | str | None = None,
        *,
        episodes: int | None = None,
        seed: int = 1,
    ) -> float:
        """In the hedging problem, the premium at which the seller who hedges like this is
        indifferent between selling the option and doing nothing.

        Its standard error is that of `ds.evaluate(agent, ...).standard_error(risk)`.

        Arguments:
            risk: the seller's measure; by default the one that the agent optimises.
            episodes: how many fresh ones to simulate; by default 100,000.
            seed: of these episodes, which are those of `ds.evaluate` with this seed.
        """
        env = self.jax_env
        if not isinstance(env, Hedging):
            raise TypeError(
                f"`price` is for the hedging problem, where an option is sold; got {self.env_spec}."
                " Use ds.evaluate(agent).value(risk)."
            )
        count = self.default_episodes if episodes is None else episodes
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"`episodes` must be a whole number of at least 1, got {episodes!r}.")
        return env.indifference_price(
            self.simulate_returns(count, seed), self.risk if risk is None else risk
        )


class ACSRM(Agent):
    """AC-SRM: any static spectral risk measure, by an actor that learns from lived episodes.

    Any Gymnasium environment or vector environment; actions may be continuous, Discrete or
    MultiDiscrete. With risk="dial" one actor for every mixture of the mean and one CVaR.
    """

    algorithm_class = LivedSRM
    dial_algorithm = LivedDialSRM
    jax_backend = None
    gym_backend = OnPolicyBackend
