"""The average of the networks over the last part of a run, to be kept as the policy.

From one outer step to the next, what networks say of two actions that are nearly as good changes by
more than the actions differ, and the policy with it: now it fails in these episodes, now in those.
Much of that is in no two of them alike, and is gone in the average of their weights (stochastic
weight averaging). The networks that learn, and play in training, are left as they are.
"""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int

from downside.agents.learner import Networks
from downside.agents.settings import Settings


class Average(eqx.Module):
    """The mean of the networks after each of some outer steps."""

    networks: Networks
    """The mean; of none, without meaning."""
    count: Int[np.ndarray, ""]
    """Of how many."""

    @classmethod
    def begin(cls, networks: Networks, settings: Settings) -> "Average | None":
        """Of none yet; None if there is to be no average."""
        return cls(networks, np.zeros((), np.int64)) if settings.averaging else None

    def with_next(self, networks: Networks) -> "Average":
        """With one more."""
        count = int(self.count) + 1
        mean = networks if count == 1 else _moved(self.networks, networks, 1.0 / count)
        return Average(mean, np.asarray(count, np.int64))


def averaged(
    average: Average | None, networks: Networks, progress: float, settings: Settings
) -> tuple[Average | None, Networks]:
    """The average after an outer step at this share of the run, and the networks to keep: the
    average in the last `averaging` of the run, before that those that learn.

    None are in it that maximised the mean because h was not known yet. So that agents can be
    compared, those that have no h begin as late.
    """
    first = 1.0 - settings.averaging
    if settings.neutral_fraction < 1.0:
        first = max(first, settings.neutral_fraction)
    if average is None or progress <= first:  # also of a run that was stretched to a new end
        return Average.begin(networks, settings), networks
    average = average.with_next(networks)
    return average, average.networks


def _moved(old: Networks, new: Networks, share: float) -> Networks:
    """Some of the way from the old networks to the new ones."""
    weights, rest = eqx.partition(old, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(weights)
    others = jax.tree.leaves(eqx.filter(new, eqx.is_inexact_array))
    return eqx.combine(jax.tree.unflatten(tree, _change(leaves, others, share)), rest)


@jax.jit
def _change(old: list, new: list, share: float) -> list:
    return [before + share * (after - before) for before, after in zip(old, new, strict=True)]
