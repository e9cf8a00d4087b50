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
