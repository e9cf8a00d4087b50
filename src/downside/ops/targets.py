"""What a transition says the value before it should have been.

`terminated` means that nothing can be earned from here on. A time limit that is no part of the
problem (truncation) is not termination: there, pass False and bootstrap from the final
observation. What is said about the successor of a terminated transition is never looked at.
"""

import jax.numpy as jnp
from jaxtyping import Bool, Float

from downside._typing import Array
from downside.risk import Utility


def return_targets(
    reward: Float[Array, ""] | float,
    next_quantiles: Float[Array, " N"],
    *,
    gamma: Float[Array, ""] | float,
    terminated: Bool[Array, ""] | bool,
) -> Float[Array, " N"]:
    r"""Quantiles of the return before a transition (Algorithm 2): $r + \gamma \theta'_j$.

    $\theta'$ (`next_quantiles`) belongs to the action chosen at the successor, and counts as 0
    where the episode has `terminated`.
    """
    return reward + gamma * jnp.where(terminated, 0.0, next_quantiles)


def utility_target(
    utility: Utility,
    accumulated: Float[Array, ""] | float,
    next_score: Float[Array, ""] | float,
    terminated: Bool[Array, ""] | bool,
) -> Float[Array, ""]:
    r"""Target of $V(x, s, c, a) = \mathbb{E}[h(s + c\,G)]$ (lemma 1 of appendix B).

    $\max_{a'} V(x', s', c', a')$ over the legal actions (`next_score`), without reward and without
    discount, because both are in $s' = s + c\,r$ and $c' = \gamma c$ already; $h(s')$ where the
    episode has `terminated`. `accumulated` is $s'$: with the reward of this transition.
    """
    return jnp.where(terminated, utility(accumulated), next_score)


def shortfall_target(
    target_after: Float[Array, ""] | float,
    next_score: Float[Array, ""] | float,
    *,
    gamma: Float[Array, ""] | float,
    terminated: Bool[Array, ""] | bool,
) -> Float[Array, ""]:
    r"""Target of $W(x, b, a) = -\mathbb{E}[(b - G)^+]$, the score of CVaR.

    $\gamma \max_{a'} W(x', b', a')$ over the legal actions (`next_score`), because
    $b - r - \gamma G' = \gamma (b' - G')$ with $b' = (b - r)/\gamma$ (`target_after`);
    $-\gamma (b')^+$ where the episode has `terminated`.
    """
    return gamma * jnp.where(terminated, -jnp.maximum(target_after, 0.0), next_score)
