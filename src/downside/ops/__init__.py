"""The maths of one transition, for callers to `vmap`; and of the steps of an episode."""

from downside.ops.advantages import generalised_advantages, less_common_noise
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
    "generalised_advantages",
    "greedy",
    "huber",
    "less_common_noise",
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
