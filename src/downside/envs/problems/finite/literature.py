"""Finite decision problems of the literature, built from parameters."""

import math

import numpy as np

from downside.envs._parameters import check_real, check_whole, real, whole
from downside.envs.problems.finite.tabular import Tabular
from downside.envs.problems.finite.tabulated import AbstractTabulated, TableBuilder


def _check_most(name: str, value: int, most: int, remedy: str) -> None:
    if value > most:
        raise ValueError(f"`{name}` must be at most {most}, got {value}. {remedy}")


class MachineReplacement(AbstractTabulated):
    r"""Keep a machine that wears out, or replace it before it breaks.

    ## Description
    The machine has `levels` levels of wear. Kept, it wears by one level with probability `wear`.
    On the last level it is broken, which costs `failure_cost` a step until it is replaced; on the
    level before, `risky_cost`. A replacement costs `replacement_cost` and works with probability
    `success`: the machine is new then. After Delage and Mannor (2010), with fewer constants.

    ## Action Space
    `Discrete(2)`: 0 keep, 1 replace.

    ## Observation Space
    `Box` of shape (`levels + 1`,), float32: the level as a one-hot vector, and the fraction of
    time.

    ## Rewards
    Minus the costs.

    ## Starting State
    A new machine.

    ## Episode End
    Terminates after `horizon` decisions.

    ## Arguments
    Every field below.
    """

    levels: int = whole(10)
    """Number of levels of wear, at least 2."""
    wear: float = real(0.8)
    """Probability to wear by a level in a step, in [0, 1]."""
    success: float = real(0.9)
    """Probability that a replacement works, in (0, 1]."""
    replacement_cost: float = real(2.0)
    """What a replacement costs, at least 0."""
    risky_cost: float = real(10.0)
    """What a step on the last level but one costs, at least 0."""
    failure_cost: float = real(20.0)
    """What a step with a broken machine costs, at least 0."""
    horizon: int = whole(50)  # pyright: ignore[reportIncompatibleMethodOverride]
    """Number of decisions."""

    def __check_init__(self):
        check_whole("levels", self.levels, "The last one is broken.", least=2)
        check_real("wear", self.wear, "It is a probability.", least=0.0, most=1.0)
        check_real("success", self.success, "It is a probability.", above=0.0, most=1.0)
        for name in ("replacement_cost", "risky_cost", "failure_cost"):
            check_real(name, getattr(self, name), "A cost is a positive number.", least=0.0)
        check_whole("horizon", self.horizon, "It is the number of decisions.", least=1)

    def build_tables(self) -> Tabular:
        """Levels of wear, from new to broken."""
        tables, last = TableBuilder(self.levels, 2), self.levels - 1
        for level in range(self.levels):
            costs = self.failure_cost if level == last else 0.0
            costs = self.risky_cost if level == last - 1 else costs
            tables.add(level, 0, self.wear, min(level + 1, last), -costs)
            tables.add(level, 0, 1.0 - self.wear, level, -costs)
            tables.add(level, 1, self.success, 0, -self.replacement_cost)
            tables.add(level, 1, 1.0 - self.success, level, -self.replacement_cost - costs)
        return tables.tabular(start=0, horizon=self.horizon)


class GamblersRuin(AbstractTabulated):
    r"""Bet until the goal is reached or all is lost.

    ## Description
    A bet of a from capital x wins a with probability `win` and loses it otherwise. At `goal` the
    episode ends with a reward of 1, at 0 with nothing.

    ## Action Space
    `Discrete(goal + 1)`: the bet, at most the capital and what is missing to the goal. 0 waits.

    ## Observation Space
    `Box` of shape (`goal + 2`,), float32: the capital as a one-hot vector, and the fraction of
    time.

    ## Rewards
    1 on reaching the goal.

    ## Starting State
    The capital `start`.

    ## Episode End
    Terminates at 0, at the goal, and after `horizon` bets.

    ## Arguments
    Every field below.
    """

    goal: int = whole(10)
    """The capital to reach, at least 2."""
    start: int = whole(7)
    """The capital to start with, from 1 to `goal` - 1."""
    win: float = real(0.7)
    """Probability to win a bet, in [0, 1]."""
    horizon: int = whole(50)  # pyright: ignore[reportIncompatibleMethodOverride]
    """Number of bets."""

    def __check_init__(self):
        check_whole("goal", self.goal, "It is the capital to reach.", least=2)
        check_whole("start", self.start, "It lies below the goal.", least=1)
        _check_most("start", self.start, self.goal - 1, "It lies below the goal.")
        check_real("win", self.win, "It is a probability.", least=0.0, most=1.0)
        check_whole("horizon", self.horizon, "It is the number of bets.", least=1)

    def build_tables(self) -> Tabular:
        """Capitals from 0 to the goal."""
        tables = TableBuilder(self.goal + 1, self.goal + 1)
        for capital in range(1, self.goal):
            tables.add(capital, 0, 1.0, capital, 0.0)
            for bet in range(1, min(capital, self.goal - capital) + 1):
                up = capital + bet
                tables.add(capital, bet, self.win, up, float(up == self.goal))
                tables.add(capital, bet, 1.0 - self.win, capital - bet, 0.0)
        terminal = np.isin(np.arange(self.goal + 1), (0, self.goal))
        return tables.tabular(start=self.start, horizon=self.horizon, terminal=terminal)


class Inventory(AbstractTabulated):
    r"""Order stock for a demand that is not known.

    ## Description
    Stock x and an order a make x + a, at most `capacity`. The demand is Poisson with mean
    `demand`, cut at `capacity`; what is there is sold at `price`. An order costs `fixed_cost` and
    `unit_cost` for each unit, and what is left over `holding_cost` for each unit.

    ## Action Space
    `Discrete(max_order + 1)`: the order; at most what there is room for.

    ## Observation Space
    `Box` of shape (`capacity + 2`,), float32: the stock as a one-hot vector, and the fraction of
    time.

    ## Rewards
    Sales less costs.

    ## Starting State
    No stock.

    ## Episode End
    Terminates after `horizon` orders.

    ## Arguments
    Every field below.
    """

    capacity: int = whole(20)
    """The most stock, at least 1."""
    max_order: int = whole(10)
    """The largest order, at least 1."""
    demand: float = real(5.0)
    """The mean demand, positive."""
    price: float = real(5.0)
    """What a unit sells for."""
    unit_cost: float = real(2.0)
    """What a unit costs."""
    fixed_cost: float = real(4.0)
    """What an order costs, whatever its size."""
    holding_cost: float = real(0.1)
    """What a unit left over costs."""
    horizon: int = whole(30)  # pyright: ignore[reportIncompatibleMethodOverride]
    """Number of orders."""

    def __check_init__(self):
        check_whole("capacity", self.capacity, "It is the most stock.", least=1)
        check_whole("max_order", self.max_order, "It is the largest order.", least=1)
        check_real("demand", self.demand, "It is the mean demand.", above=0.0)
        for name in ("price", "unit_cost", "fixed_cost", "holding_cost"):
            check_real(name, getattr(self, name), "It is an amount of money.", least=0.0)
        check_whole("horizon", self.horizon, "It is the number of orders.", least=1)

    def build_tables(self) -> Tabular:
        """Stocks from 0 to the capacity."""
        tables = TableBuilder(self.capacity + 1, self.max_order + 1)
        wanted = np.arange(self.capacity)
        logs = wanted * math.log(self.demand) - np.array([math.lgamma(k + 1.0) for k in wanted])
        chances = np.exp(logs - self.demand)
        chances = np.append(chances, max(0.0, 1.0 - chances.sum()))
        for stock in range(self.capacity + 1):
            for order in range(min(self.max_order, self.capacity - stock) + 1):
                have = stock + order
                paid = self.unit_cost * order + self.fixed_cost * (order > 0)
                for sold in range(have + 1):
                    chance = chances[sold] if sold < have else chances[have:].sum()
                    left = have - sold
                    pays = self.price * sold - paid - self.holding_cost * left
                    tables.add(stock, order, float(chance), left, pays)
        return tables.tabular(start=0, horizon=self.horizon)


class RiverSwim(AbstractTabulated):
    r"""Swim up a river to a large reward, or stay where a small one is sure.

    ## Description
    `length` places along a river. Swimming down always works. Swimming up gets a place further
    with probability `up`, is carried back with probability `back`, and stays otherwise. Strehl and
    Littman (2008), with the probabilities as parameters.

    ## Action Space
    `Discrete(2)`: 0 down, 1 up.

    ## Observation Space
    `Box` of shape (`length + 1`,), float32: the place as a one-hot vector, and the fraction of
    time.

    ## Rewards
    `small_reward` for swimming down at the lowest place, `large_reward` for swimming up at the
    highest one.

    ## Starting State
    The lowest place.

    ## Episode End
    Terminates after `horizon` strokes.

    ## Arguments
    Every field below.
    """

    length: int = whole(6)
    """Number of places, at least 2."""
    up: float = real(0.35)
    """Probability to get a place up, in [0, 1]."""
    back: float = real(0.05)
    """Probability to be carried back, in [0, 1 - `up`]."""
    small_reward: float = real(0.1)
    """At the lowest place."""
    large_reward: float = real(10.0)
    """At the highest place."""
    horizon: int = whole(40)  # pyright: ignore[reportIncompatibleMethodOverride]
    """Number of strokes."""

    def __check_init__(self):
        check_whole("length", self.length, "It is the number of places.", least=2)
        check_real("up", self.up, "It is a probability.", least=0.0, most=1.0)
        check_real("back", self.back, "It is a probability.", least=0.0, most=1.0 - self.up)
        for name in ("small_reward", "large_reward"):
            check_real(name, getattr(self, name), "It is a reward.")
        check_whole("horizon", self.horizon, "It is the number of strokes.", least=1)

    def build_tables(self) -> Tabular:
        """Places from the lowest to the highest."""
        tables, last = TableBuilder(self.length, 2), self.length - 1
        for place in range(self.length):
            low, high = max(place - 1, 0), min(place + 1, last)
            tables.add(place, 0, 1.0, low, self.small_reward if place == 0 else 0.0)
            pays = self.large_reward if place == last else 0.0
            tables.add(place, 1, self.up, high, pays)
            tables.add(place, 1, self.back, low, 0.0)
            tables.add(place, 1, 1.0 - self.up - self.back, place, pays)
        return tables.tabular(start=0, horizon=self.horizon)


class DualCounterexample(AbstractTabulated):
    r"""One decision at which dynamic programming over CVaR levels goes wrong.

    ## Description
    The state is 0 with probability `chance` and 1 otherwise. State 1 pays 100 whatever is done. In
    state 0 action 0 pays -300 with probability 1/4 and 300 otherwise, action 1 pays 0, and action
    2 pays -50 or 250 with probability 1/2 each. For cvar(0.5) and a `chance` of 1/2 action 2 is
    best, with 25; the recursion over the dual of CVaR claims 50 and executes action 1, which is
    worth 0 (Hau, Delage, Ghavamzadeh and Petrik 2023).

    ## Action Space
    `Discrete(3)`.

    ## Observation Space
    `Box` of shape (3,), float32: the state as a one-hot vector, and the fraction of time.

    ## Rewards
    As above.

    ## Starting State
    0 or 1.

    ## Episode End
    Terminates after one decision.

    ## Arguments
    The field below.
    """

    chance: float = real(0.5)
    """Probability of state 0, in [0, 1]."""

    def __check_init__(self):
        check_real("chance", self.chance, "It is a probability.", least=0.0, most=1.0)

    @property
    def horizon(self) -> int:
        """One decision."""
        return 1

    def build_tables(self) -> Tabular:
        """Two states."""
        tables = TableBuilder(2, 3)
        for chance, pays in ((0.25, -300.0), (0.75, 300.0)):
            tables.add(0, 0, chance, 0, pays)
        tables.add(0, 1, 1.0, 0, 0.0)
        for pays in (-50.0, 250.0):
            tables.add(0, 2, 0.5, 0, pays)
        for action in range(3):
            tables.add(1, action, 1.0, 1, 100.0)
        return tables.tabular(start=np.array([self.chance, 1.0 - self.chance]), horizon=1)
