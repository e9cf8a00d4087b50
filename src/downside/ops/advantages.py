"""What an action gained, from rewards and values along the steps that followed."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def generalised_advantages(
    rewards: Float[Array, "T n"],
    values: Float[Array, "T n"],
    next_values: Float[Array, "T n"],
    terminated: Bool[Array, "T n"],
    over: Bool[Array, "T n"],
    *,
    gamma: float,
    decay: float,
) -> Float[Array, "T n"]:
    r"""$A_t = \sum_k (\gamma\lambda)^k \delta_{t+k}$ up to the end of the episode (Schulman 2016).

    $\delta_t = r_t + \gamma V(x_{t+1}) - V(x_t)$, where $V(x_{t+1}) = 0$ if the episode was
    `terminated`; one that is `over` without that was truncated. λ is `decay`.
    """
    errors = rewards + gamma * jnp.where(terminated, 0.0, next_values) - values

    def back(after: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        error, over = step
        advantage = error + gamma * decay * jnp.where(over, 0.0, after)
        return advantage, advantage

    _, advantages = jax.lax.scan(back, jnp.zeros_like(values[0]), (errors, over), reverse=True)
    return advantages


def less_common_noise(
    advantages: Float[Array, "T n"], weights: Float[Array, "T n"], repeats: int
) -> tuple[Float[Array, "T n"], Float[Array, ""]]:
    r"""$A_{ki} - \beta \bar A_{-k,i}$: the advantages less what episodes of the same seed share.

    The T steps are `repeats` equal parts, each played from the same seed: row t of part k is $A_k$,
    and $\bar A_{-k}$ is the mean of the other parts there. Their actions are independent of those
    of part k given the seed, so that the gradient of the policy keeps its mean (a control variate
    under common random numbers). $\beta$ is the coefficient of the regression of one on the other,
    between 0 and 1; about 0 where an environment makes nothing of its seed.

    Returns:
        The advantages, and β.
    """
    parts = advantages.reshape(repeats, -1, *advantages.shape[1:])
    shares = weights.reshape(parts.shape)
    count = shares.sum(axis=0) - shares
    others = ((parts * shares).sum(axis=0) - parts * shares) / jnp.maximum(count, 1.0)
    product = (shares * parts * others).sum()
    beta = jnp.clip(product / jnp.maximum((shares * others**2).sum(), 1e-12), 0.0, 1.0)
    return (parts - beta * others).reshape(advantages.shape), beta
