"""The outer step of `RiskReward` while stable-baselines3 trains."""

from typing import Any

import numpy as np


class RiskRewardCallback:
    """Moves h while stable-baselines3 trains: `model.learn(..., callback=ds.RiskRewardCallback())`.

    The environments of the model must be wrapped in `RiskReward`, one by one or as a vector. Their
    returns are pooled, and all of them get the same h. It needs nothing of stable-baselines3: it is
    a function of (locals, globals), and has the methods that a list of callbacks calls.
    """

    def __init__(
        self, *, episodes: int = 500, risk_neutral_fraction: float = 0.1, rate: float = 0.5
    ):
        """Set up the outer step.

        Args:
            episodes: How many episodes must end between two moves of h.
            risk_neutral_fraction: Share of the training in which h stays a line, in [0, 1).
            rate: How far h moves each time, in (0, 1].
        """
        if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 2:
            raise ValueError(f"`episodes` must be a whole number of at least 2, got {episodes!r}.")
        if not 0.0 <= risk_neutral_fraction < 1.0:
            raise ValueError(
                f"`risk_neutral_fraction` must be in [0, 1), got {risk_neutral_fraction!r}."
            )
        if not 0.0 < rate <= 1.0:
            raise ValueError(f"`rate` must be in (0, 1], got {rate!r}.")
        self.episodes, self.risk_neutral_fraction, self.rate = episodes, risk_neutral_fraction, rate
        self.moves = 0
        """How often h was moved."""
        self._returns: list[float] = []
        self._model: Any = None
        self.parent: Any = None

    def __call__(self, local_names: dict[str, Any], global_names: dict[str, Any]) -> bool:
        """After a step of all environments."""
        del global_names
        return self._after_step(local_names["self"])

    def _after_step(self, model: Any) -> bool:
        env = model.get_env()
        for returns in env.env_method("take_returns"):
            self._returns.extend(returns)
        begins = self.risk_neutral_fraction * model._total_timesteps
        if len(self._returns) < self.episodes or model.num_timesteps < begins:
            self._returns = self._returns[-4 * self.episodes :]
            return True
        utility = env.get_attr("rewards")[0].utility
        moved = utility.from_returns(np.array(self._returns))
        env.env_method("move", *moved, self.rate)
        self._returns, self.moves = [], self.moves + 1
        return True

    # --- as a list of callbacks calls it --------------------------------------------------------

    def init_callback(self, model: Any) -> None:
        """Before training."""
        self._model = model

    def on_step(self) -> bool:
        """After a step of all environments."""
        return self._after_step(self._model)

    def update_locals(self, local_names: dict[str, Any]) -> None:
        """Of no use."""

    update_child_locals = update_locals

    def on_training_start(self, local_names: dict[str, Any], global_names: dict[str, Any]) -> None:
        """Of no use."""

    def on_training_end(self) -> None:
        """Of no use."""

    def on_rollout_start(self) -> None:
        """Of no use."""

    def on_rollout_end(self) -> None:
        """Of no use."""
