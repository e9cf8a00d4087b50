"""Measures, returns and a policy that the tests share."""

import numpy as np

from downside import CustomSpectrum, CVaR, DualPower, Exponential, Mean, parse
from downside.evaluation import Evaluation

RISKS = [
    Mean(),
    CVaR(0.1),
    parse("0.5*mean + 0.5*cvar(0.2)"),
    Exponential(4.0),
    DualPower(2.0),
    CustomSpectrum(lambda u: 1 - u**2),
]


def draws(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def plain(returns, **fields):
    return Evaluation(np.asarray(returns, dtype=float), **fields)


class Coin:
    """A policy whose episode i pays `pay` or loses 1, as the i-th toss of the seed says."""

    def __init__(self, pay=1.0, aligned=True):
        self.pay, self.aligned = pay, aligned

    def simulate_returns(self, episodes, seed):
        return np.where(np.random.default_rng(seed).random(episodes) < 0.5, self.pay, -1.0)
