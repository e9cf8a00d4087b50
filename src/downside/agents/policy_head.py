"""Stochastic policies: from the outputs of an actor to actions and their log-probabilities."""

import math
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

_FAR = 1e9
"""What is taken off the logit of an action that is not legal."""
_LOG_ROOT_TAU = 0.5 * math.log(2.0 * math.pi)


class PolicyHead(eqx.Module):
    r"""A Gaussian over the points of a box, or a softmax for each choice among discrete actions.

    A raw action is what the distribution is over. Of a box it is a point in units of its half-width
    around its middle, before it is clipped to the box: the outputs are the mean, the standard
    deviation is the same everywhere. Otherwise it is the number of each choice.
    """

    middle: Float[np.ndarray, " k"]
    half_width: Float[np.ndarray, " k"]
    """Of the box; a side without bounds counts in units of 1."""
    low: Float[np.ndarray, " k"]
    high: Float[np.ndarray, " k"]
    start: Any
    """The number of the first action of each choice."""
    shape: tuple[int, ...] = eqx.field(static=True)
    """Of one action."""
    choices: tuple[int, ...] = eqx.field(static=True)
    """How many actions each choice has; empty for a box."""
    dtype: str = eqx.field(static=True)

    @classmethod
    def of(cls, space: gym.Space, name: str) -> "PolicyHead":
        """The head for an action space, or an error that says what is possible."""
        none = np.zeros(0, np.float32)
        if isinstance(space, gym.spaces.Discrete):
            return cls(none, none, none, none, 0, (), (int(space.n),), "int32")
        if isinstance(space, gym.spaces.MultiDiscrete) and space.nvec.ndim == 1:
            start = np.asarray(space.start, np.int32)
            counts = tuple(int(count) for count in space.nvec)
            return cls(none, none, none, none, start, space.shape, counts, "int32")
        if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating):
            low, high = (np.ravel(b).astype(np.float32) for b in (space.low, space.high))
            bounded = np.isfinite(low) & np.isfinite(high) & (high - low < 1e6)
            with np.errstate(invalid="ignore", over="ignore"):
                middle = np.where(bounded, (low + high) / 2, np.clip(0.0, low, high))
                half = np.where(bounded, (high - low) / 2, 1.0)
            middle, half = middle.astype(np.float32), np.maximum(half, 1e-6).astype(np.float32)
            return cls(middle, half, low, high, 0, space.shape, (), str(space.dtype))
        raise ValueError(
            f"`env` must have actions of kind Box (of floats), Discrete or MultiDiscrete (of one "
            f"axis) for AC-SRM, got {space} in {name}. Wrap it in "
            "`gymnasium.wrappers.TransformAction`."
        )

    @property
    def outputs(self) -> int:
        """How many outputs an actor must have."""
        return sum(self.choices) if self.choices else self.middle.shape[0]

    @property
    def raw_size(self) -> int:
        """How many numbers a raw action has."""
        return len(self.choices) if self.choices else self.middle.shape[0]

    @property
    def mask_size(self) -> int:
        """How many entries a mask has: one for each action of each choice."""
        return sum(self.choices)

    # --- from outputs to actions --------------------------------------------------------------

    def mode(self, outputs: Float[Array, " o"], mask: Bool[Array, " m"]) -> Float[Array, " r"]:
        """The raw action of the deterministic policy."""
        if not self.choices:
            return outputs
        return jnp.stack([part.argmax() for part in self._logits(outputs, mask)]).astype(float)

    def sample(
        self,
        outputs: Float[Array, " o"],
        log_std: Float[Array, " k"],
        mask: Bool[Array, " m"],
        noise: Float[Array, " o"],
    ) -> Float[Array, " r"]:
        """A raw action at random: `noise` is standard normal for a box, else uniform on (0, 1)."""
        if not self.choices:
            return outputs + jnp.exp(log_std) * noise
        gumbel = self._split(-jnp.log(-jnp.log(noise)))
        return jnp.stack(
            [
                (logits + part).argmax()
                for logits, part in zip(self._logits(outputs, mask), gumbel, strict=True)
            ]
        ).astype(float)

    def action(self, raw: Float[Array, " r"]) -> Array:
        """The action as the environment takes it; a Discrete one is counted from 0."""
        if not self.choices:
            point = self.middle + self.half_width * raw
            return jnp.clip(point, self.low, self.high).reshape(self.shape)
        return raw.astype(jnp.int32).reshape(self.shape) + self.start

    def unclipped(self, action: Any) -> Float[Array, " r"]:
        """A raw action that is this action; of a Discrete one, its number from 0."""
        if not self.choices:
            return (jnp.ravel(action) - self.middle) / self.half_width
        return jnp.ravel(action - self.start).astype(float)

    def action_of_rows(self, raw: Float[np.ndarray, "n r"]) -> np.ndarray:
        """The actions of many raw actions, in NumPy."""
        shape = (len(raw), *self.shape)
        if not self.choices:
            point = np.clip(self.middle + self.half_width * raw, self.low, self.high)
            return point.astype(np.float32).reshape(shape)
        return raw.astype(np.int64).reshape(shape) + np.asarray(self.start)

    def anywhere(
        self, generator: np.random.Generator, masks: Bool[np.ndarray, "n m"]
    ) -> Float[np.ndarray, "n r"]:
        """Legal raw actions at random, one for each mask: uniform over the choices or the box."""
        if not self.choices:
            return generator.uniform(-1.0, 1.0, (len(masks), self.raw_size)).astype(np.float32)
        chance = np.where(masks, generator.random(masks.shape), -1.0)
        parts = np.split(chance, np.cumsum(self.choices)[:-1], axis=1)
        return np.stack([part.argmax(axis=1) for part in parts], axis=1).astype(np.float32)

    def encode(self, raw: Float[Array, " r"]) -> Float[Array, " o"]:
        """A raw action as an input of a network: one-hot, or the point within the box."""
        if not self.choices:
            point = jnp.clip(self.middle + self.half_width * raw, self.low, self.high)
            return (point - self.middle) / self.half_width
        numbers = raw.astype(jnp.int32)
        parts = [jax.nn.one_hot(numbers[i], count) for i, count in enumerate(self.choices)]
        return jnp.concatenate(parts)

    # --- probabilities ------------------------------------------------------------------------

    def log_probability(
        self,
        outputs: Float[Array, " o"],
        log_std: Float[Array, " k"],
        mask: Bool[Array, " m"],
        raw: Float[Array, " r"],
    ) -> Float[Array, ""]:
        """The log of the probability, or of the density, of a raw action."""
        if not self.choices:
            distance = (raw - outputs) * jnp.exp(-log_std)
            return (-0.5 * distance**2 - log_std - _LOG_ROOT_TAU).sum()
        parts = [
            jnp.where(jnp.arange(logits.shape[0]) == raw[i].astype(jnp.int32), logits, 0.0).sum()
            for i, logits in enumerate(map(jax.nn.log_softmax, self._logits(outputs, mask)))
        ]
        return jnp.stack(parts).sum()

    def divergence(
        self,
        before: Float[Array, " o"],
        outputs: Float[Array, " o"],
        log_std: Float[Array, " k"],
        mask: Bool[Array, " m"],
    ) -> Float[Array, ""]:
        r"""$\mathrm{KL}(\pi_0 \| \pi)$ from the policy with the outputs `before`; both have the
        same standard deviation."""
        if not self.choices:
            return 0.5 * (((outputs - before) * jnp.exp(-log_std)) ** 2).sum()
        old, new = (
            [jax.nn.log_softmax(part) for part in self._logits(each, mask)]
            for each in (before, outputs)
        )
        return jnp.stack(
            [(jnp.exp(a) * (a - b)).sum() for a, b in zip(old, new, strict=True)]
        ).sum()

    def entropy(
        self, outputs: Float[Array, " o"], log_std: Float[Array, " k"], mask: Bool[Array, " m"]
    ) -> Float[Array, ""]:
        """The entropy of the policy in one state."""
        if not self.choices:
            return (log_std + 0.5 + _LOG_ROOT_TAU).sum()
        logs = map(jax.nn.log_softmax, self._logits(outputs, mask))
        return jnp.stack([-(jnp.exp(part) * part).sum() for part in logs]).sum()

    def _logits(self, outputs: Float[Array, " o"], mask: Bool[Array, " m"]) -> list[Array]:
        return self._split(jnp.where(mask, outputs, outputs - _FAR))

    def _split(self, values: Float[Array, " o"]) -> list[Array]:
        edges = np.cumsum(self.choices)[:-1].tolist()
        return jnp.split(values, edges)
