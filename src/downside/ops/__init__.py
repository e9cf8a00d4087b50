"""The maths of one transition: pure functions without a batch axis, for callers to `vmap`."""

from downside.ops.loss import huber, quantile_huber_loss
from downside.ops.scores import (
    greedy,
    masked,
    mean_score,
    shortfall_score,
    spectral_score,
    utility_score,
)
from downside.ops.targets import return_targets, shortfall_target, utility_target

__all__ = [
    "greedy",
    "huber",
    "masked",
    "mean_score",
    "quantile_huber_loss",
    "return_targets",
    "shortfall_score",
    "shortfall_target",
    "spectral_score",
    "utility_score",
    "utility_target",
]
