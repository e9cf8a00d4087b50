"""A check of your own environment, before an agent meets it."""

import warnings
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import env_checker
from jaxtyping import Array, Float, Key

from downside.envs.actions import check_box
from downside.envs.core import AbstractJaxEnv, Step
from downside.envs.faults import named_faults
from downside.envs.gymnasium.vector_adapter import VectorEnvAdapter
from downside.envs.registry import make_jax
from downside.envs.simulators.checks import check_simulator
from downside.envs.simulators.simulator import Simulator

_EPISODES = 8
_STEPS = 200
"""Of each episode at most so many are played."""


def check_env(env: Any, *, seed: int = 0, **parameters: Any) -> None:
    """Raises with a sentence on the first thing that an environment gets wrong.

    An environment in JAX is asked for its spaces, compiled, mapped and played under random legal
    actions: shapes and types must stay as they are from step to step, numbers must be finite and
    inside their spaces, equal noise must lead to equal results, episodes must end within the
    horizon. If actions are continuous, derivatives by them must be finite; a warning names the
    ones that no reward depends on. `relaxed` and `mirrored` must fit, where there are any.

    A `ds.Simulator` is first played in NumPy: `step` must be a function of state, action and noise,
    must leave its arguments as they are, and must treat every row by itself.

    Any other environment goes through Gymnasium's checker and a few steps of the adapter through
    which agents see it.

    Args:
        env: An id, an `AbstractJaxEnv`, or a Gymnasium environment or vector environment.
        seed: Of the noise and of the actions.
        **parameters: With an id: the parameters of the environment.
    """
    core = make_jax(env, **parameters)
    if core is not None:
        with named_faults():
            if isinstance(core, Simulator):
                check_simulator(core.calls, seed)
            _check_jax(core, jax.random.key(seed))
        return
    env = gym.make(env, **parameters) if isinstance(env, str) else env
    if isinstance(env, gym.Env):
        with warnings.catch_warnings():
            # Ours takes the environment as it is, and flattens what is not flat.
            warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
            env_checker.check_env(env, skip_render_check=True)
    _play_adapter(env, seed)


# --- JAX ----------------------------------------------------------------------------------------


def _check_jax(env: AbstractJaxEnv, key: Key[Array, ""]) -> None:
    name = _name(env)
    _check_spaces(env, name)
    keys = jax.random.split(key, _EPISODES)
    states, observations = _compiled(env, "reset", lambda: jax.vmap(env.reset)(keys))
    _check_observations(env, observations, f"`observe` of {name}")
    _check_legal(env, states, name)
    actions = jax.vmap(lambda key, state: _random_action(env, key, state))(keys, states)
    step = _compiled(env, "step", lambda: jax.vmap(env.step)(keys, states, actions))
    _check_step(states, step, name)
    traced = [jax.make_jaxpr(env.step)(keys[0], *_first((states, actions))) for _ in range(2)]
    _require(
        str(traced[0]) == str(traced[1]) and _equal(traced[0].consts, traced[1].consts),
        f"`transition` of {name} must be a function of state, action and noise: traced twice, it "
        "was not the same. Draw all randomness in `sample_noise`, from its key.",
    )
    _check_mirrored(env, keys, name)
    if env.relaxed is not None:
        _check_relaxed(env, keys[0], states, name)
    slopes = _check_episodes(env, keys, name)
    if not env.num_actions:
        _check_derivatives(slopes, name)


def _name(env: AbstractJaxEnv) -> str:
    """Of the class that the user wrote."""
    return env.calls.name if isinstance(env, Simulator) else type(env).__name__


def _check_spaces(env: AbstractJaxEnv, name: str) -> None:
    shown, actions = env.observation_space, env.action_space
    flat = isinstance(shown, gym.spaces.Box) and len(shown.shape) == 1
    _require(
        flat and shown.dtype == np.float32,
        f"`observation_space` of {name} must be a flat float32 Box, got {shown}.",
    )
    if isinstance(actions, gym.spaces.Box):
        check_box(actions, name)
        _require(
            env.num_actions == 0,
            f"`num_actions` of {name} must be 0 with a Box as `action_space`, got "
            f"{env.num_actions}. Leave it out.",
        )
        return
    _require(
        isinstance(actions, gym.spaces.Discrete)
        and (int(actions.n), int(actions.start)) == (env.num_actions, 0),
        f"`action_space` of {name} must be a Box or Discrete({env.num_actions}), got {actions}. "
        "Define `num_actions` alone if actions are discrete.",
    )


def _check_observations(env: AbstractJaxEnv, observations: Any, what: str) -> None:
    space = env.observation_space
    values = np.asarray(observations)
    _require(
        values.shape[-1:] == space.shape and values.dtype == np.float32,
        f"{what} must have shape {space.shape} and type float32, got {values.shape[1:]} and "
        f"{values.dtype}.",
    )
    inside = (values >= space.low) & (values <= space.high)  # and not NaN
    _require(
        bool(inside.all()),
        f"{what} must stay inside of `observation_space`; number "
        f"{int(np.argmin(inside.reshape(-1, *space.shape).all(0)))} does not.",
    )


def _check_legal(env: AbstractJaxEnv, states: Any, name: str) -> None:
    masks = np.asarray(jax.vmap(env.action_mask)(states))
    _require(
        masks.shape == (_EPISODES, env.num_actions) and masks.dtype == bool,
        f"`action_mask` of {name} must be {env.num_actions} booleans, got shape {masks.shape[1:]} "
        f"and type {masks.dtype}.",
    )
    space = env.action_space
    if isinstance(space, gym.spaces.Discrete):
        _require(
            bool(masks.any(axis=1).all()),
            f"`action_mask` of {name} must allow at least one action, got none.",
        )
        return
    low, high = map(np.asarray, jax.vmap(env.action_bounds)(states))
    _require(
        low.shape == high.shape == (_EPISODES, *space.shape),
        f"`action_bounds` of {name} must be two vectors of shape {space.shape}, got "
        f"{low.shape[1:]} and {high.shape[1:]}.",
    )
    margin = 1e-6 * (space.high - space.low)
    fits = (low <= high) & (low >= space.low - margin) & (high <= space.high + margin)
    _require(
        bool(fits.all()),
        f"`action_bounds` of {name} must be in order and inside of `action_space`, got "
        f"{low[0]} and {high[0]}.",
    )


def _check_step(states: Any, step: Step, name: str) -> None:
    before, after = jax.tree.leaves(states), jax.tree.leaves(step.state)
    same = jax.tree.structure(states) == jax.tree.structure(step.state) and all(
        (old.shape, old.dtype) == (new.shape, new.dtype)
        for old, new in zip(before, after, strict=True)
    )
    _require(
        same,
        f"The state after `transition` of {name} must have the structure, shapes and types of "
        f"`initial_state`, or a loop over steps cannot be compiled: got {_types(step.state)} after "
        f"{_types(states)}.",
    )
    reward = step.reward
    _require(
        reward.shape == (_EPISODES,) and jnp.issubdtype(reward.dtype, jnp.floating),
        f"`reward` of {name} must be a scalar float, got shape {reward.shape[1:]} and type "
        f"{reward.dtype}.",
    )
    for kind in ("terminated", "truncated"):
        flags = getattr(step, kind)
        _require(
            flags.shape == (_EPISODES,) and flags.dtype == bool,
            f"`{kind}` of {name} must be a scalar boolean, got shape {flags.shape[1:]} and type "
            f"{flags.dtype}. jnp.zeros((), bool) is False.",
        )


def _check_mirrored(env: AbstractJaxEnv, keys: Key[Array, " n"], name: str) -> None:
    noise = jax.vmap(env.sample_noise)(keys)
    mirrored = jax.vmap(env.mirrored)(noise)
    if mirrored is None:
        return
    _require(
        _types(mirrored) == _types(noise)
        and _equal(jax.vmap(env.mirrored)(mirrored), noise, tolerance=1e-5),
        f"`mirrored` of {name} must give a noise of the same structure, whose mirror image is the "
        "noise itself. For a standard normal it is -noise, for a uniform one 1 - noise.",
    )


def _check_relaxed(env: AbstractJaxEnv, key: Key[Array, ""], states: Any, name: str) -> None:
    assert env.relaxed is not None
    continuous, points = env.relaxed
    _check_spaces(continuous, f"{name} (relaxed)")
    space = continuous.action_space
    _require(
        isinstance(space, gym.spaces.Box) and points.shape == (env.num_actions, *space.shape),
        f"`relaxed` of {name} must be an environment with a Box of actions, and one of its points "
        f"for each of the {env.num_actions} actions, got {space} and shape {points.shape}.",
    )
    state = _first(states)
    noise, legal = env.sample_noise(key), np.asarray(env.action_mask(state))

    def result(core: AbstractJaxEnv, actions: Any) -> Any:
        step = jax.vmap(lambda action: core.step_with_noise(state, action, noise))
        result = eqx.filter_jit(step)(actions)
        return result.observation[legal], result.reward[legal]

    numbers = jnp.arange(env.num_actions)
    _require(
        _equal(result(env, numbers), result(continuous, points), tolerance=1e-4),
        f"`relaxed` of {name} must lead to the same rewards and observations at the point of each "
        "legal action as the action itself.",
    )


def _check_episodes(
    env: AbstractJaxEnv, keys: Key[Array, " n"], name: str
) -> Float[np.ndarray, "n t k"]:
    """Gives the derivatives of the sum of rewards by every action of each episode."""

    def total(shifts: Float[Array, "t k"], key: Any) -> tuple[Float[Array, ""], Any]:
        shown = _play(env, key, shifts)
        _, rewards, played, _ = shown
        return jnp.where(played, rewards, 0.0).sum(), shown

    size = 0 if env.num_actions else np.prod(env.action_space.shape or ())
    shifts = jnp.zeros((_length(env), int(size)))
    play = jax.jit(jax.vmap(jax.grad(total, has_aux=True), in_axes=(None, 0)))
    slopes, shown = jax.device_get(play(shifts, keys))
    observations, rewards, played, over = shown
    _check_observations(env, observations[played], f"`observe` of {name}")
    rewards = rewards[played]
    _require(
        bool(np.isfinite(rewards).all()),
        f"`reward` of {name} must be finite, got {rewards[~np.isfinite(rewards)]}.",
    )
    _require(
        env.horizon is None or env.horizon > _STEPS or bool(over.all()),
        f"Episodes of {name} must end within its `horizon` of {env.horizon} steps.",
    )
    return np.asarray(slopes)


def _check_derivatives(slopes: Float[np.ndarray, "n t k"], name: str) -> None:
    finite = np.isfinite(slopes).all((0, 1))
    _require(
        bool(finite.all()),
        f"Derivatives of the rewards of {name} by its actions must be finite, but that by action "
        f"{int(np.argmin(finite))} is not. A square root at 0 and a division by 0, also inside of "
        "`jnp.where`, are the usual causes.",
    )
    for number in np.flatnonzero((slopes == 0.0).all((0, 1))):
        warnings.warn(
            f"No reward of {name} changes with action {number} by a small amount: its derivative "
            "was 0 everywhere. Agents that follow derivatives cannot learn it; rounding and "
            "comparisons are the usual causes.",
            stacklevel=4,
        )


def _length(env: AbstractJaxEnv) -> int:
    return min(env.horizon or _STEPS, _STEPS)


def _play(
    env: AbstractJaxEnv, key: Key[Array, ""], shifts: Float[Array, "t k"]
) -> tuple[Any, Any, Any, Any]:
    """Observations and rewards under random legal actions, which of them are of the episode, and
    whether it is over. `shifts` are added to continuous actions, to differentiate by them."""
    start_key, key = jax.random.split(key)
    start = env.initial_state(start_key)

    def body(carry: tuple, inputs: tuple) -> tuple:
        state, running = carry
        key, shift = inputs
        act_key, step_key = jax.random.split(key)
        action = _random_action(env, act_key, state)
        step = env.step(step_key, state, action if env.num_actions else action + shift)
        after = running & ~step.terminated & ~step.truncated
        # What follows the end has no meaning: from the start it is at least a number.
        state = jax.tree.map(lambda new, old: jnp.where(after, new, old), step.state, start)
        return (state, after), (step.observation, step.reward, running)

    keys = jax.random.split(key, _length(env))
    (_, running), shown = jax.lax.scan(body, (start, jnp.asarray(True)), (keys, shifts))
    return *shown, ~running


def _random_action(env: AbstractJaxEnv, key: Key[Array, ""], state: Any) -> Array:
    if env.num_actions:
        legal = env.action_mask(state)
        return jax.random.categorical(key, jnp.where(legal, 0.0, -jnp.inf))
    low, high = env.action_bounds(state)
    return jax.random.uniform(key, low.shape, low.dtype, low, high)


def _compiled(env: AbstractJaxEnv, what: str, function: Any) -> Any:
    try:
        return eqx.filter_jit(function)()
    except jax.errors.JAXTypeError as error:
        raise ValueError(
            f"`{what}` of {_name(env)} must work inside of jax.jit, but JAX says: "
            f"{str(error).splitlines()[0]} Use jnp.where instead of `if`, and jnp instead of np."
        ) from error


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def _equal(first: Any, second: Any, tolerance: float = 0.0) -> bool:
    close = jax.tree.map(
        lambda a, b: np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True),
        jax.device_get(first),
        jax.device_get(second),
    )
    return all(jax.tree.leaves(close))


def _types(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape[1:])}", tree)


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(sentence)


# --- Gymnasium ----------------------------------------------------------------------------------


def _play_adapter(env: gym.Env | gym.vector.VectorEnv, seed: int) -> None:
    adapter = VectorEnvAdapter(env, 1)
    space = adapter.env.action_space
    space.seed(seed)
    rng = np.random.default_rng(seed)
    _, masks = adapter.reset(seed)
    for _ in range(_STEPS):
        actions = space.sample()
        if adapter.num_actions:  # legal, and counted from 0
            actions = np.where(masks, rng.random(masks.shape), -1.0).argmax(axis=1)
        masks = adapter.step(actions).masks
