"""Which policy is kept where nothing can be simulated: the best in episodes of its own.

From one outer step to the next the policy changes by more than what is left to gain, and the last
episodes of training cannot tell: they were played by many policies in turn, with random actions
among their own. So a policy is tried out now and then. One that is clearly worse than the best so
far is given up after a few episodes, which leaves more of them for those that come close.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from downside.risk import Tabulated
from downside.train.playing import Player
from downside.train.program import Program

FIRST, MOST = 32, 512
"""Episodes of a trial: as few if it is given up, as many if it is not; twice as many each time."""
_CLEARLY = 2.0
"""Standard errors by which one is worse that is given up."""
_IN_THE_TAIL, _SOME = 5, 0.1
"""Episodes that must lie in the tail, whose CVaRs have this share of the weight or more."""
_PATIENCE = 2.0
"""How many times the steps of a trial it may take, when its episodes are longer than others."""


class Trials(eqx.Module):
    """What there is to know of the trials of a run."""

    steps: Int[np.ndarray, ""]
    """Environment steps of all of them."""
    error: Float[np.ndarray, ""]
    """The standard error of the kept policy's value; infinite before the first trial."""

    @classmethod
    def none(cls) -> "Trials":
        """Before the first one."""
        return cls(np.zeros((), np.int64), np.full((), np.inf))

    @property
    def held(self) -> bool:
        """Whether there was one."""
        return bool(np.isfinite(self.error))


def first_episodes(objective: Tabulated) -> int:
    """Episodes below which a trial says nothing: some must lie in the tail that counts."""
    weighed = np.cumsum(np.asarray(objective.masses)) >= _SOME
    level = float(np.asarray(objective.levels)[weighed.argmax()]) if weighed.any() else 1.0
    return min(MOST, max(FIRST, math.ceil(_IN_THE_TAIL / level - 1e-3)))


def allowance(program: Program, chunk: int, used: int, least: float) -> float:
    """Environment steps for a trial after so many chunks, if it takes `least` of them at least.

    0 if there is none: they are spread over the second half of the run, and one that cannot be
    paid for waits for the next.
    """
    settings = program.settings
    due = _due(settings.trials, chunk, program.chunks)
    if due == _due(settings.trials, chunk - 1, program.chunks):
        return 0.0
    total = program.chunks * program.steps_per_chunk * program.timesteps_per_round
    left = settings.trial_share * total * due / settings.trials - used
    return left if left >= least else 0.0


def _due(trials: int, chunk: int, chunks: int) -> int:
    """How many trials there are to be by the end of a chunk."""
    return int(trials * max(0, 2 * chunk - chunks) // chunks)


def try_out(player: Player, objective: Tabulated, bar: float, steps: float) -> tuple[float, float]:
    """The value of a policy and its standard error, in about so many steps.

    It stops early at a policy that is clearly worse than `bar`. One whose episodes do not end, as
    they may without random actions, is worth nothing.
    """
    value, error = -math.inf, math.inf
    episodes = first_episodes(objective)
    while True:
        returns = player.returns_within(episodes, _PATIENCE * steps)
        if returns is None:
            return value, error
        ordered = jnp.asarray(np.sort(returns))
        value, error = float(objective.value(ordered)), float(objective.standard_error(ordered))
        hopeless = value + _CLEARLY * error < bar
        if hopeless or episodes >= MOST or 2 * player.steps > steps:
            return value, error
        episodes *= 2
