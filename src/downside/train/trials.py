"""Which policy is kept where nothing can be simulated: the best in episodes of its own.

From one outer step to the next the policy changes by more than what is left to gain, and the last
episodes of training cannot tell: they were played by many policies in turn, with random actions
among their own. So a policy can be tried out now and then. One that is clearly worse than the best
so far is given up after a few episodes, which leaves more of them for those that come close.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from downside.risk import Tabulated
from downside.train.playing import Player
from downside.train.program import Program

LEAST, MOST = 128, 512
"""Episodes of a policy that is kept; twice as many each time. One may be given up after a quarter
of the least."""
_IN_THE_TAIL, _SOME = 20, 0.1
"""Episodes that must lie in the tail, whose CVaRs have this share of the weight or more."""
_CLEARLY = 2.0
"""Standard errors by which one is worse that is given up."""
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


def least_episodes(objective: Tabulated) -> int:
    """Episodes below which nothing is kept: with fewer, a policy that fails now and then may never
    have failed yet, and seems better than it is, and surely so."""
    weighed = np.cumsum(np.asarray(objective.masses)) >= _SOME
    level = float(np.asarray(objective.levels)[weighed.argmax()]) if weighed.any() else 1.0
    return min(MOST, max(LEAST, 4 * math.ceil(_IN_THE_TAIL / 4 / level - 1e-3)))


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

    A policy that is clearly worse than `bar` is given up early, and worth nothing. So is one whose
    episodes do not end, as they may without random actions.
    """
    least = least_episodes(objective)
    episodes, found = least // 4, (-math.inf, math.inf)
    while True:
        returns = player.returns_within(episodes, _PATIENCE * steps)
        if returns is None:
            return found
        ordered = jnp.asarray(np.sort(returns))
        value, error = float(objective.value(ordered)), float(objective.standard_error(ordered))
        if value + _CLEARLY * error < bar:
            return -math.inf, math.inf
        if player.steps / episodes * least > _PATIENCE * steps:  # longer than in training
            return found
        if episodes >= least:
            found = value, error
            if episodes >= MOST or 2 * player.steps > steps:
                return found
        episodes *= 2
