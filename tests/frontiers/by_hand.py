"""Frontiers that are made by hand, without training."""

import numpy as np

import downside as ds
from downside.frontiers import Optimum, Point, Trained, mixtures
from downside.frontiers.intervals import valued

END = "cvar(0.5)"


def evaluation(mean, tail, seed=0):
    """Two returns, one as likely as the other: the worse is the `tail`, the middle the `mean`."""
    return ds.Evaluation(np.array([tail, 2 * mean - tail]), seed=seed, aligned=True)


def frontier(*points, spread=0.0, seeds=3, optima=None):
    """Points (mean, tail) from mean to cvar(0.5); seed i is worth `spread` * i more than seed 0."""
    between = mixtures("mean", END, len(points))
    out = []
    for i, ((weight, risk), (mean, tail)) in enumerate(zip(between, points, strict=True)):
        shifts = [spread * seed for seed in range(seeds)]
        found = [evaluation(mean + up, tail + up, seed) for seed, up in enumerate(shifts)]
        trained = tuple(
            Trained(seed=seed, evaluation=one, source=None) for seed, one in enumerate(found)
        )
        out.append(
            Point(
                weight=weight,
                risk=risk,
                trained=trained,
                by_start=valued(found, ds.Mean(), 0.95),
                by_end=valued(found, ds.CVaR(0.5), 0.95),
                by_own=valued(found, risk, 0.95),
                optimum=None if optima is None else Optimum(*optima[i]),
            )
        )
    return ds.Frontier(
        env="by hand",
        agent="QR-SRM",
        gamma=0.99,
        start=ds.Mean(),
        end=ds.CVaR(0.5),
        confidence=0.95,
        points=tuple(out),
    )
