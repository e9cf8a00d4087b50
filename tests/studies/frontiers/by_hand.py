"""Frontiers that are made by hand, without training."""

import numpy as np

import downside as ds
from downside.evaluation.seeds import estimate_value
from downside.studies.frontiers import Optimum, Point, Trained, mixtures

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
        evaluations = [evaluation(mean + up, tail + up, seed) for seed, up in enumerate(shifts)]
        trained = tuple(
            Trained(seed=seed, evaluation=returns, source=None)
            for seed, returns in enumerate(evaluations)
        )
        out.append(
            Point(
                weight=weight,
                risk=risk,
                trained=trained,
                by_start=estimate_value(evaluations, "mean", resamples=None),
                by_end=estimate_value(evaluations, END, resamples=None),
                by_own=estimate_value(evaluations, risk, resamples=None),
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
