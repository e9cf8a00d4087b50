"""A problem that a user wrote in NumPy, as an environment like those in JAX."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from downside._random import stream
from downside.envs.core import AbstractJaxEnv, Action, StepResult, real_array
from downside.envs.noise import check_count, mirrored_normals, mirrored_uniforms
from downside.envs.simulators.callback import call
from downside.envs.simulators.calls import SimulatorCalls
from downside.envs.simulators.checks import check_simulator, describe


class SimulatorState(NamedTuple):
    """A state of a simulator."""

    values: Any
    """As the simulator has it, for one copy."""
    over: Bool[Array, ""]
    """Whether the episode has ended; the simulator is then not asked any more."""


class Simulator(AbstractJaxEnv[SimulatorState]):
    r"""A simulator in vectorised NumPy, as an environment for every agent.

    The simulator is an object of a plain class. It keeps no state and draws no random numbers of
    its own; whatever changes is an argument, with a row for each of `count` copies::

        class Market:
            horizon = 10                          # the largest number of steps of an episode
            actions = np.linspace(-2.0, 2.0, 21)  # what to choose from
            noise = "normal"                      # one standard normal variable a step

            def initial_state(self, rng, count):
                zeros = np.zeros(count)
                return {"price": zeros + 1.0, "held": zeros, "time": zeros.astype(int)}

            def step(self, state, action, noise):
                price = 0.8 * state["price"] + 0.2 + 0.3 * noise
                held, time = state["held"] + action, state["time"] + 1
                over = time == self.horizon
                reward = -action * state["price"] + over * held * price
                return {"price": price, "held": held, "time": time}, reward, over

        agent = ds.QRSRM(ds.Simulator(Market()), risk="cvar(0.2)").learn()

    What it must have:

    - `horizon`: the largest number of steps of an episode, or None.
    - `actions`: a number of actions, which `step` gets as whole numbers from 0; the points that
      actions stand for, of shape (A,) or (A, k), which `step` gets themselves; or a
      `gymnasium.spaces.Box` of shape () or (k,).
    - `initial_state(rng, count)`: an array, or a dictionary, tuple or dataclass of arrays. `rng` is
      a `numpy.random.Generator`.
    - `step(state, action, noise)`: (state, reward, terminated), or these and truncated. Must not
      change its arguments.

    What it may have:

    - `noise`: "normal", "uniform", ("normal", k), or a dictionary of these. Or
      `sample_noise(rng, count)`, which draws it; then `mirrored(noise)` may give its mirror image.
      Without either, `step` gets None.
    - `observe(state)`: an array of shape (count, d), or a tuple of columns; by default the numbers
      of the state.
    - `action_mask(state)`: booleans of shape (count, A): which actions are legal. For a box,
      `action_bounds(state)`: the lowest and the highest.
    - `observation_names`, `action_names`; `observation_space`; `gamma`, the discount factor that
      belongs to the problem.

    Compiled programs call it back with whole batches. Numbers have 32 bits between two calls; the
    simulator gets the types that `initial_state` gave. Derivatives, which PG-SRM follows, are
    finite differences.
    """

    calls: SimulatorCalls = eqx.field(static=True)
    """The simulator, as it was checked."""
    continuous: bool = eqx.field(static=True)
    """Whether any point between those of the grid can be chosen."""

    def __init__(self, simulator: Any, **parameters: Any):
        """Checks the simulator in a few short episodes.

        Args:
            simulator: The simulator; or its class.
            **parameters: With a class: its arguments.
        """
        if isinstance(simulator, type):
            simulator = simulator(**parameters)
        elif parameters:
            raise TypeError(
                f"`simulator` is an object already, so {sorted(parameters)} cannot be set. Pass "
                "its class together with the parameters."
            )
        self.calls = describe(simulator)
        self.continuous = self.calls.actions.count == 0
        check_simulator(self.calls)

    @classmethod
    def _relaxation(cls, calls: SimulatorCalls) -> "Simulator":
        """The same with continuous actions."""
        made = object.__new__(cls)
        object.__setattr__(made, "calls", calls)
        object.__setattr__(made, "continuous", True)
        return made

    @property
    def simulator(self) -> Any:
        """The user's object."""
        return self.calls.simulator

    # --- spaces -------------------------------------------------------------------------------

    @property
    def num_actions(self) -> int:
        """How many actions there are; 0 if they are continuous."""
        return 0 if self.continuous else self.calls.actions.count

    @property
    def action_space(self) -> gym.spaces.Discrete | gym.spaces.Box:
        """The numbers of the actions, or the box."""
        return self.calls.actions.box if self.continuous else self.calls.actions.space

    @property
    def observation_space(self) -> gym.spaces.Box:
        """As the simulator says; otherwise without bounds."""
        return self.calls.observation_space

    @property
    def observation_names(self) -> tuple[str, ...]:
        """A name for each number that is observed; none if there are none."""
        return self.calls.observation_names

    @property
    def action_names(self) -> tuple[str, ...]:
        """A name for each action, or for each dimension of the box; none if there are none."""
        return self.calls.action_names

    @property
    def horizon(self) -> int | None:
        """The largest number of steps of an episode."""
        return self.calls.horizon

    @property
    def bounded(self) -> bool:
        """Whether episodes always terminate; not if the simulator truncates them."""
        return self.horizon is not None and not self.calls.truncates

    @property
    def default_gamma(self) -> float | None:
        """The discount factor of the simulator, if it has one."""
        gamma = getattr(self.simulator, "gamma", None)
        return None if gamma is None else float(gamma)

    @property
    def relaxed(self) -> "tuple[Simulator, Float[Array, 'A k']] | None":
        """Of actions that stand for points: the simulator with all points between them."""
        actions = self.calls.actions
        if self.continuous or not actions.ordered or actions.points is None:
            return None
        return self._relaxation(self.calls), real_array(actions.points)

    # --- the problem --------------------------------------------------------------------------

    def initial_state(self, key: Key[Array, ""]) -> SimulatorState:
        """`initial_state` of the simulator."""
        shapes = [leaf.jax for leaf in self.calls.state.leaves]
        leaves = call(self.calls.draw_states, shapes, jax.random.key_data(key))
        return SimulatorState(self.calls.state.tree(leaves), jnp.zeros((), bool))

    def sample_noise(self, key: Key[Array, ""]) -> Any:
        """As the simulator declares or draws it; None without noise."""
        if self.calls.declared is not None:
            return _declared(self.calls.declared, key, None)
        if self.calls.noise is None:
            return None
        shapes = [leaf.jax for leaf in self.calls.noise.leaves]
        leaves = call(self.calls.draw_noise, shapes, jax.random.key_data(key))
        return self.calls.noise.tree(leaves)

    def sample_noises(self, key: Key[Array, ""], count: int) -> Any:
        """Evenly spread out, if the noise is declared; in mirrored pairs, if there are such."""
        check_count(count)
        if self.calls.declared is not None:
            return _declared(self.calls.declared, key, count)
        if self.calls.noise is None:
            return None
        leaves = [leaf.jax for leaf in self.calls.noise.leaves]
        shapes = [jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype) for leaf in leaves]
        draw = functools.partial(self.calls.draw_noises, count=count)
        return self.calls.noise.tree(call(draw, shapes, jax.random.key_data(key)))

    def mirrored(self, noise: Any) -> Any:
        """Of declared noise, -z of a normal and 1 - u of a uniform variable."""
        if self.calls.declared is not None:
            return _mirrored(self.calls.declared, noise)
        if self.calls.noise is None or not self.calls.mirrors:
            return None
        leaves = self.calls.noise.arrays(noise)
        shapes = [leaf.jax for leaf in self.calls.noise.leaves]
        return self.calls.noise.tree(call(self.calls.mirror_rows, shapes, *leaves))

    def transition(self, state: SimulatorState, action: Action, noise: Any) -> StepResult:
        """`step` of the simulator. After the end of an episode nothing changes any more."""
        calls = self.calls
        values = calls.state.arrays(state.values)
        noises = [] if calls.noise is None else calls.noise.arrays(noise)
        chosen = real_array(action) if self.continuous else jnp.asarray(action)
        after, reward, terminated, truncated = _step(
            calls, self.continuous, values, chosen, noises, state.over
        )
        over = terminated | truncated
        return StepResult(
            SimulatorState(calls.state.tree(after), over), reward, terminated, truncated
        )

    def observe(self, state: SimulatorState) -> Float[Array, " d"]:
        """`observe` of the simulator."""
        values = self.calls.state.arrays(state.values)
        return _observe(self.calls, values).astype(jnp.float32)

    def action_mask(self, state: SimulatorState) -> Bool[Array, " A"]:
        """`action_mask` of the simulator; all actions without one."""
        if not self.num_actions or not hasattr(self.simulator, "action_mask"):
            return jnp.ones(self.num_actions, dtype=bool)
        shape = jax.ShapeDtypeStruct((self.num_actions,), bool)
        (mask,) = call(self.calls.mask_rows, [shape], *self.calls.state.arrays(state.values))
        return mask

    def action_bounds(self, state: SimulatorState) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """`action_bounds` of the simulator; those of the box without it."""
        if not self.continuous or not hasattr(self.simulator, "action_bounds"):
            return super().action_bounds(state)
        shape = jax.ShapeDtypeStruct(self.calls.actions.low.shape, real_array(0.0).dtype)
        low, high = call(
            self.calls.bounds_rows, [shape, shape], *self.calls.state.arrays(state.values)
        )
        return low, high

    def vector_env(self, num_envs: int = 1, **options: Any) -> Any:
        """So many copies as a Gymnasium vector environment, stepped by one call of the simulator.

        Args:
            num_envs: Number of copies.
            **options: As `SimulatorVectorEnv` takes them, such as `autoreset_mode`.
        """
        from downside.envs.simulators.vector_env import SimulatorVectorEnv

        return SimulatorVectorEnv(self, num_envs, **options)

    def __repr__(self) -> str:
        return f"Simulator({self.calls.name})"


# --- declared noise -------------------------------------------------------------------------------


def _declared(declared: Any, key: Key[Array, ""], count: int | None) -> Any:
    """Noise of a declaration: one, or `count` of them along a first axis."""
    if isinstance(declared, dict):
        return {name: _declared(part, stream(key, name), count) for name, part in declared.items()}
    kind, shape = declared
    if count is None:
        draw = jax.random.normal if kind == "normal" else jax.random.uniform
        return draw(key, shape)
    draw = mirrored_normals if kind == "normal" else mirrored_uniforms
    if not shape:
        return draw(key, count)
    columns = jax.vmap(lambda key: draw(key, count))(jax.random.split(key, shape[0]))
    return columns.T


def _mirrored(declared: Any, noise: Any) -> Any:
    if isinstance(declared, dict):
        return {name: _mirrored(part, noise[name]) for name, part in declared.items()}
    return -noise if declared[0] == "normal" else 1.0 - noise


# --- derivatives ----------------------------------------------------------------------------------


def _shapes(calls: SimulatorCalls) -> list[jax.ShapeDtypeStruct]:
    """Of what a step gives: the state, the reward, terminated and truncated."""
    real = jax.ShapeDtypeStruct((), real_array(0.0).dtype)
    flag = jax.ShapeDtypeStruct((), np.dtype(bool))
    return [*(leaf.jax for leaf in calls.state.leaves), real, flag, flag]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _step(
    calls: SimulatorCalls, continuous: bool, values: list, action: Any, noises: list, over: Any
) -> tuple[list, Array, Array, Array]:
    step = functools.partial(calls.step_rows, continuous, False)
    results = call(step, _shapes(calls), over, *values, action, *noises)
    return results[:-3], results[-3], results[-2], results[-1]


@_step.defjvp
def _step_derivative(calls: SimulatorCalls, continuous: bool, primals: Any, tangents: Any) -> Any:
    values, action, noises, over = primals
    shape = jax.ShapeDtypeStruct(calls.slopes_shape(continuous), real_array(0.0).dtype)
    step = functools.partial(calls.step_rows, continuous, True)
    *results, slopes = call(step, [*_shapes(calls), shape], over, *values, action, *noises)
    moved = [jnp.ravel(tangents[0][i]) for i in calls.real]
    if continuous:
        moved.append(jnp.ravel(tangents[1]))
    change = slopes @ jnp.concatenate(moved) if moved else jnp.zeros(1)
    after, reward, terminated, truncated = results[:-3], results[-3], results[-2], results[-1]
    changes = _nothing(after)
    at = 0
    for i in calls.real:
        size = calls.state.leaves[i].size
        changes[i] = change[at : at + size].reshape(after[i].shape).astype(after[i].dtype)
        at += size
    flags = _nothing([terminated, truncated])
    return (after, reward, terminated, truncated), (changes, change[at], *flags)


def _nothing(values: list[Array]) -> list[Any]:
    """The tangents of what has no derivatives."""
    return [np.zeros(value.shape, jax.dtypes.float0) for value in values]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _observe(calls: SimulatorCalls, values: list) -> Array:
    shape = jax.ShapeDtypeStruct((calls.observation_size,), real_array(0.0).dtype)
    (observed,) = call(calls.observe_rows, [shape], *values)
    return observed


@_observe.defjvp
def _observe_derivative(calls: SimulatorCalls, primals: Any, tangents: Any) -> Any:
    size, kind = calls.observation_size, real_array(0.0).dtype
    shapes = [(size,), (size, calls.slopes_shape(continuous=False)[1])]
    observed, slopes = call(
        calls.observe_slopes, [jax.ShapeDtypeStruct(shape, kind) for shape in shapes], *primals[0]
    )
    moved = [jnp.ravel(tangents[0][i]) for i in calls.real]
    change = slopes @ jnp.concatenate(moved) if moved else jnp.zeros_like(observed)
    return observed, change
