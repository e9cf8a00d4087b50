"""What an agent has learned: its policy, and all that is done with it."""

from typing import Any, Self

import numpy as np
from jaxtyping import Float

from downside.agents import OuterVariable, QuantileSettings
from downside.risk import AbstractSpectralRisk, Dial, Utility
from downside.train.backends.state import BestPolicy
from downside.train.dial import FoundTarget, turned
from downside.train.driver import Driver, untrained
from downside.train.policy import Policy


class AbstractActingAgent:
    """An agent that acts. `Agent` adds how it learns."""

    settings: Any
    """Of the class that the agent has for this kind of environment, such as `ds.Settings`."""
    risk: AbstractSpectralRisk
    """The measure; of a dial, the one where it stands."""
    family: Dial | None
    """The measures that the agent learns for, if it is a dial."""
    targets: dict[str, FoundTarget]
    """Of a dial, what `at` has found, by measure."""
    _driver: Driver
    _generator: np.random.Generator

    @property
    def history(self) -> list[dict[str, Any]]:
        """An entry for each outer step."""
        return self._driver.history

    @property
    def _best(self) -> BestPolicy:
        if self._driver.state is None or not self.history:
            raise untrained()
        return self._driver.state.best

    @property
    def networks(self) -> Any:
        """The networks of the final policy."""
        return self._best.networks

    @property
    def outer_variable(self) -> OuterVariable:
        """The outer variable of the final policy: h, b, or nothing."""
        return self._best.outer

    @property
    def utility(self) -> Utility | None:
        """The utility h whose expectation the policy maximises; None where there is none."""
        return self._driver.algorithm.utility(self.outer_variable)

    @property
    def policy(self) -> Policy:
        """The final policy."""
        driver = self._driver
        return Policy(driver.planned().learner(driver.algorithm), self._best, driver.backend)

    def at(self, risk: AbstractSpectralRisk | str) -> Self:
        """Of a dial, the agent for one of its measures: it acts, can be evaluated, explained and
        saved like any other.

        The first time, the target b of the measure is searched in simulated episodes, the same
        ones for every measure; it is kept with the agent and in its checkpoint. What an agent
        remembers of an episode does not depend on its measure, so that observations of `wrap` may
        go to another measure's agent in the middle of an episode.

        Arguments:
            risk: a measure of the family, or its text: `mean`, `cvar(0.05)`,
                `0.5*mean + 0.5*cvar(0.05)`.
        """
        return turned(self, risk)

    def frontier(
        self,
        points: int = 9,
        *,
        start: AbstractSpectralRisk | str = "mean",
        end: AbstractSpectralRisk | str = "cvar(0.1)",
        **options: Any,
    ) -> Any:
        """Of a dial, what more of one measure costs in the other: a `ds.Frontier` of one training.

        Arguments:
            points: how many mixtures of `start` and `end`, both included.
            start: the measure at one end.
            end: the measure at the other end.
            **options: `episodes`, `exact`, `confidence` and `progress_bar`, as for `ds.frontier`.
        """
        import downside

        return downside.frontier(self, points=points, start=start, end=end, **options)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """The action for an observation of `agent.wrap(env)`, or the actions for a batch of them.

        Arguments:
            observation: one observation, or several along a first axis.
            state: handed back as it is; what the agent remembers is in the observation.
            episode_start: of no use, for the same reason.
            deterministic: False for a random action in a share `exploration_final` of cases, for
                agents that have this setting.
            action_masks: which actions are legal, of shape (actions,) or (batch, actions).
        """
        del episode_start
        explore = 0.0
        if not deterministic and isinstance(self.settings, QuantileSettings):
            explore = self.settings.exploration_final
        return self.policy.predict(observation, action_masks, explore, self._generator), state

    def scores(self, observation: Any) -> Float[np.ndarray, "*batch A"]:
        """The score of every action: what the greedy policy maximises."""
        return self.policy.scores(observation)

    def return_distribution(self, observation: Any) -> Float[np.ndarray, "*batch A N"]:
        """The learned quantiles of every action's return from here on, in increasing order."""
        return self.policy.quantiles(observation)

    def wrap(self, env: Any = None, *, render_mode: str | None = None) -> Any:
        """An environment as the agent wants to see it, with what it remembers appended.

        Arguments:
            env: a Gymnasium environment or vector environment; by default a new one of the kind
                that the agent was trained on.
            render_mode: of the new one, for example "rgb_array" for pictures.
        """
        return self.policy.wrap(env, render_mode)

    def simulate_returns(self, episodes: int, seed: int) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of so many episodes of the greedy policy, under fresh noise."""
        return self.policy.returns(episodes, seed)

    @property
    def aligned(self) -> bool:
        """Whether episode i of `simulate_returns` meets the same noise for every agent and plan; in
        a Gymnasium environment, whether it begins with the same seed."""
        return self._driver.backend.aligned

    @property
    def default_episodes(self) -> int:
        """How many episodes `evaluate` plays unless told: fewer where they are slow."""
        return self._driver.backend.default_episodes
