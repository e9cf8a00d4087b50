"""The optimisers and their learning rate over a run."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers

from downside.agents.settings import Settings

_WARMUP = 0.02
_ADAM_SHARE = 0.2
"""Learning rate of the Adam part beside Muon's, whose steps are as long as Adam's at 0.2."""
_LEAST_SIDE = 16
"""Matrices with a shorter side than this, such as the first layer's, are left to Adam."""


def make_optimiser(
    settings: Settings, updates: int, b2: float = 0.999
) -> optax.GradientTransformation:
    """The optimiser of a run of so many updates; `b2` is Adam's rate for squared gradients."""
    if settings.learning_rate_schedule:
        rate = _along(settings.learning_rate, settings.learning_rate_schedule, updates)
    elif settings.final_learning_rate == 1.0:
        rate = optax.constant_schedule(settings.learning_rate)
    else:
        warmup = max(1, round(_WARMUP * updates))
        rate = optax.warmup_cosine_decay_schedule(
            0.0,
            settings.learning_rate,
            warmup,
            max(updates, warmup + 1),
            settings.final_learning_rate * settings.learning_rate,
        )
    if settings.optimiser == "adam":
        optimiser = optax.adam(rate, b2=b2)
    else:
        optimiser = optax.contrib.muon(
            rate,
            adam_learning_rate=lambda count: _ADAM_SHARE * rate(count),
            muon_weight_dimension_numbers=_matrices,
            consistent_rms=0.2,
        )
    if not settings.max_grad_norm:
        return optimiser
    return optax.chain(optax.clip_by_global_norm(settings.max_grad_norm), optimiser)


def _along(peak: float, shares: tuple[float, ...], updates: int) -> optax.Schedule:
    """Lines between evenly spaced points of the run."""
    points = jnp.linspace(0.0, max(updates, 1), len(shares))
    return lambda count: peak * jnp.interp(count, points, jnp.asarray(shares))


def _matrices(parameters: Any) -> Any:
    """Which parameters are matrices between hidden layers; None for all others."""

    def dimensions(path: Any, leaf: Any) -> MuonDimensionNumbers | None:
        in_head = any(getattr(part, "name", None) == "head" for part in path)
        if in_head or not eqx.is_array(leaf) or leaf.ndim != 2 or min(leaf.shape) < _LEAST_SIDE:
            return None
        return MuonDimensionNumbers(reduction_axis=0, output_axis=1)

    return jax.tree_util.tree_map_with_path(dimensions, parameters)
