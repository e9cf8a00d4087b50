"""A game of repeated bets on a favourable coin."""

import math

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Key

from downside.envs._parameters import check_flag, check_real, check_whole, flag, real, whole
from downside.envs.actions import box
from downside.envs.core import Action, StepResult, real_array
from downside.envs.problems.finite.tabular import Tabular, TabularState
from downside.envs.problems.finite.tabulated import AbstractTabulated, TableBuilder

_SHARES = 8
"""A bet is a number of these parts of the capital."""
_ROUNDING = 1e-3
"""A bet may miss a whole unit by so much before it is rounded down: shares are 32-bit numbers."""


class BettingGame(AbstractTabulated):
    r"""Bet shares of a capital on a favourable coin.

    ## Description
    `rounds` rounds; in each a share a/8 of the capital w is bet, but no more than what is missing
    to `limit`. The bet is won with probability `win` and lost otherwise. Rigter et al. (2021);
    sources differ in `win`.

    Differs: bets are rounded down to whole units, so that the capital is one of `limit` + 1 states.

    ## Action Space
    `Discrete(9)`: the share in eighths; a `Box` of shape (1,), the share in [0, 1], with
    `continuous`.

    ## Observation Space
    `Box` of shape (3,), float32, each number in [0, 1]:

    | index | what |
    | --- | --- |
    | 0 | the capital as a share of `limit` |
    | 1 | its logarithm, log(1 + w) / log(1 + `limit`) |
    | 2 | the fraction of the rounds that has passed |

    ## Rewards
    What a bet wins or loses, so that the return is the last capital less the first. By default
    returns are not discounted.

    ## Starting State
    The capital `start`.

    ## Episode End
    Terminates after `rounds` rounds.

    ## Arguments
    Every field below.
    """

    start: int = whole(16)
    """The first capital, from 1 to `limit`."""
    limit: int = whole(256)
    """The largest capital, at least 2."""
    rounds: int = whole(6)
    """Number of rounds."""
    win: float = real(0.8)
    """Probability to win a bet, in [0, 1]."""
    continuous: bool = flag(False)
    """Whether any share of the capital can be bet. Bets are rounded down all the same; derivatives
    pass through the rounding as if there were none."""

    def __check_init__(self):
        check_whole("limit", self.limit, "It is the largest capital.", least=2)
        check_whole("start", self.start, "It is the first capital.", least=1)
        if self.start > self.limit:
            raise ValueError(
                f"`start` must be at most {self.limit}, got {self.start}. It is the first capital."
            )
        check_whole("rounds", self.rounds, "It is the number of rounds.", least=1)
        check_real("win", self.win, "It is a probability.", least=0.0, most=1.0)
        check_flag("continuous", self.continuous)

    @property
    def horizon(self) -> int:
        """The rounds."""
        return self.rounds

    @property
    def default_gamma(self) -> float:
        """Returns are not discounted."""
        return 1.0

    @property
    def num_actions(self) -> int:
        """The shares; 0 if any share can be bet."""
        return 0 if self.continuous else _SHARES + 1

    @property
    def action_space(self) -> gym.spaces.Discrete | gym.spaces.Box:
        """The numbers of the shares, or the shares themselves."""
        return box(0.0, 1.0, 1) if self.continuous else gym.spaces.Discrete(_SHARES + 1)

    def build_tables(self) -> Tabular:
        """Capitals from 0 to the limit, with bets of whole eighths."""
        tables = TableBuilder(self.limit + 1, _SHARES + 1)
        for capital in range(self.limit + 1):
            for share in range(_SHARES + 1):
                bet = min(capital * share // _SHARES, self.limit - capital)
                tables.add(capital, share, self.win, capital + bet, float(bet))
                tables.add(capital, share, 1.0 - self.win, capital - bet, float(-bet))
        return tables.tabular(start=self.start, horizon=self.rounds)

    # --- any share ----------------------------------------------------------------------------

    def initial_state(self, key: Key[Array, ""]) -> TabularState:
        """The first capital; a real number if it is to be differentiated by."""
        state = super().initial_state(key)
        return state._replace(number=real_array(self.start)) if self.continuous else state

    def action_mask(self, state: TabularState) -> Bool[Array, " A"]:
        """All shares are allowed."""
        del state
        return jnp.ones(self.num_actions, bool)

    def transition(
        self, state: TabularState, action: Action, noise: Float[ArrayLike, ""]
    ) -> StepResult:
        """Win or lose the bet."""
        if not self.continuous:
            return super().transition(state, action, noise)
        capital = real_array(state.number)
        bet = jnp.clip(real_array(action)[0], 0.0, 1.0) * capital
        bet += jax.lax.stop_gradient(jnp.floor(bet + _ROUNDING) - bet)
        bet = jnp.minimum(bet, self.limit - capital)
        reward = jnp.where(real_array(noise) < self.win, bet, -bet)
        time = state.time + 1
        over = time >= self.rounds
        return StepResult(TabularState(capital + reward, time), reward, over, jnp.zeros((), bool))

    @property
    def observation_space(self) -> gym.spaces.Box:
        """The capital, its logarithm and the fraction of time."""
        return gym.spaces.Box(0.0, 1.0, (3,), np.float32)

    def observe(self, state: TabularState) -> Float[Array, " d"]:
        """The capital, its logarithm and the fraction of time."""
        capital = real_array(state.number)
        log = jnp.minimum(jnp.log1p(capital) / math.log1p(self.limit), 1.0)
        shown = (capital / self.limit, log, state.time / self.rounds)
        return jnp.stack(shown).astype(jnp.float32)
