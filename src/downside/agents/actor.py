r"""Actors: networks from an observation and the memory (s, c) to an action.

In an episode of few steps each time step has a small network of its own: what is best to do
changes with the time that is left, and many small networks learn this faster than a large one.
"""

from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from downside.agents.networks import Linear, MakeTrunk, Network
from downside.envs import AbstractJaxEnv, Memory
from downside.envs.actions import clip
from downside.ops import greedy

_ROWS = 2048
"""Rows of a batch with different time steps that are computed at a time: each needs the weights of
its step."""


class Clock(eqx.Module):
    """Tells the time step from what the agent sees: from one number of the observation, or from the
    discount so far."""

    values: Float[Array, " K"]
    """What it shows at each step."""
    index: int | None = eqx.field(static=True)
    """Which number of the observation it is; None for the discount so far."""

    def __call__(self, observation: Float[Array, " d"], memory: Memory) -> Int[Array, ""]:
        """The step whose value is nearest."""
        shown = memory.discount_so_far if self.index is None else observation[self.index]
        return jnp.argmin(jnp.abs(self.values - shown))


class Actor(eqx.Module):
    """A network for each of K steps, or one for all; the arrays are stacked along the first axis.

    The outputs have no bounds: `ActionHead` turns them into an action.
    """

    networks: Network
    clock: Clock | None
    """None where there is one network for all steps."""

    @classmethod
    def make(
        cls,
        key: Key[Array, ""],
        make_trunk: MakeTrunk,
        size: int,
        outputs: int,
        clock: Clock | None,
    ) -> "Actor":
        """A fresh actor for inputs of this size; its outputs are 0."""
        count = 1 if clock is None else clock.values.shape[0]
        keys = jax.random.split(key, count)
        networks = eqx.filter_vmap(lambda key: Network(make_trunk(key, size), size, (outputs,)))(
            keys
        )
        return cls(networks, clock)

    @property
    def count(self) -> int:
        """How many networks there are."""
        head: Linear = self.networks.head
        return head.bias.shape[0]

    def step(self, observation: Float[Array, " d"], memory: Memory) -> Int[Array, ""]:
        """The time step, as the clock shows it."""
        if self.clock is None:
            return jnp.zeros((), jnp.int32)
        return self.clock(observation, memory)

    def at_step(self, inputs: Float[Array, " e"], step: Int[Array, ""]) -> Float[Array, " o"]:
        """The outputs at a time step, which all rows of a batch share."""
        return network_at(self.networks, jnp.minimum(step, self.count - 1))(inputs)

    def __call__(self, inputs: Float[Array, " e"], step: Int[Array, ""]) -> Float[Array, " o"]:
        """The outputs at a time step, which may differ between the rows of a batch.

        Not differentiable in batches.
        """
        arrays, rest = eqx.partition(self.networks, eqx.is_array)

        def alone(arrays: Any, inputs: Array, step: Array) -> Array:
            return network_at(eqx.combine(arrays, rest), step)(inputs)

        batched = jax.custom_batching.custom_vmap(alone)

        @batched.def_vmap
        def _(
            size: int, in_batch: Any, arrays: Any, inputs: Array, step: Array
        ) -> tuple[Array, bool]:
            axes = jax.tree.map(lambda each: 0 if each else None, in_batch)
            if any(jax.tree.leaves(in_batch[0])) or not in_batch[2]:
                return jax.vmap(alone, axes, axis_size=size)(arrays, inputs, step), True
            rows = inputs if in_batch[1] else jnp.broadcast_to(inputs, (size, *inputs.shape))

            def same_step() -> Array:
                return jax.vmap(lambda row: alone(arrays, row, step[0]))(rows)

            def different_steps() -> Array:
                return jax.lax.map(
                    lambda row: alone(arrays, *row), (rows, step), batch_size=min(_ROWS, size)
                )

            return jax.lax.cond((step == step[0]).all(), same_step, different_steps), True

        return batched(arrays, inputs, jnp.minimum(step, self.count - 1))


def network_at(networks: Network, step: Int[Array, ""]) -> Network:
    """The network of a time step."""
    return jax.tree.map(lambda leaf: leaf[step] if eqx.is_array(leaf) else leaf, networks)


class ActionHead(eqx.Module):
    """From the outputs of an actor to an action: a point of a box, a point of a grid in a box, or
    one of some unordered actions."""

    low: Float[Array, " k"] | None
    high: Float[Array, " k"] | None
    """Bounds of the box; None where actions are unordered."""
    grid: Float[Array, "A k"] | None
    """The points that discrete actions stand for; None where there are none."""
    num_actions: int = eqx.field(static=True)
    """How many discrete actions there are; 0 if actions are continuous."""

    @classmethod
    def of(cls, env: AbstractJaxEnv) -> tuple["ActionHead", AbstractJaxEnv]:
        """The head for the actions of an environment; and the environment to simulate, which has
        continuous actions where the discrete ones are points of a box."""
        relaxed = env.relaxed
        simulated, grid = (env, None) if relaxed is None else relaxed
        space = simulated.action_space
        if not isinstance(space, gym.spaces.Box):
            return cls(None, None, None, env.num_actions), env
        return cls(
            jnp.asarray(space.low), jnp.asarray(space.high), grid, env.num_actions
        ), simulated

    @property
    def outputs(self) -> int:
        """How many outputs an actor must have."""
        return self.num_actions if self.low is None else self.low.shape[0]

    @property
    def spacing(self) -> Float[Array, " k"]:
        """The smallest step between two points of the grid, in each direction; 0 if there is
        none."""
        assert self.grid is not None
        assert self.low is not None
        assert self.high is not None
        steps = jnp.diff(jnp.sort(self.grid, axis=0), axis=0)
        steps = jnp.where(steps > 1e-6 * (self.high - self.low), steps, jnp.inf)
        smallest = steps.min(axis=0, initial=jnp.inf)
        return jnp.where(jnp.isfinite(smallest), smallest, 0.0)

    def point(self, outputs: Float[Array, " k"]) -> Float[Array, " k"]:
        """The point of the box."""
        assert self.low is not None
        assert self.high is not None
        return self.low + (self.high - self.low) * 0.5 * (1.0 + jnp.tanh(outputs))

    def nearest(self, point: Float[Array, " k"], mask: Bool[Array, " A"]) -> Int[Array, ""]:
        """The legal action whose point of the grid is nearest."""
        return greedy(-self.distances(point), mask)

    def distances(self, point: Float[Array, " k"]) -> Float[Array, " A"]:
        """The squared distance to each point of the grid, in units of the box."""
        assert self.grid is not None
        assert self.low is not None
        assert self.high is not None
        return (((self.grid - point) / (self.high - self.low)) ** 2).sum(axis=-1)

    def action(self, outputs: Float[Array, " o"], mask: Bool[Array, " A"]) -> Array:
        """The action as the environment takes it."""
        if self.low is None:
            return greedy(outputs, mask)
        point = self.point(outputs)
        return point if self.grid is None else self.nearest(point, mask)

    def legal_point(
        self,
        outputs: Float[Array, " k"],
        mask: Bool[Array, " A"],
        bounds: tuple[Float[Array, " k"], Float[Array, " k"]],
        rounded: Bool[Array, ""],
        shift: Float[Array, " k"] | float = 0.0,
    ) -> Float[Array, " k"]:
        """The point within `bounds`; where `rounded`, the point of the grid nearest to it and a
        `shift`, which is in steps of the grid.

        Derivatives pass through bounds and rounding as if there were none (straight-through).
        """
        point = self.point(outputs)
        legal = clip(point, *bounds)
        if self.grid is not None:
            shifted = point + shift * self.spacing
            legal = jnp.where(rounded, self.grid[self.nearest(shifted, mask)], legal)
        return point + jax.lax.stop_gradient(legal - point)
