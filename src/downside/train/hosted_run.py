"""What changes in a hosted run, how it begins, and where its randomness comes from."""

import zlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.algorithm import AbstractAlgorithm, Goal
from downside.agents.learner import Learner, make_learner, make_networks, with_scale
from downside.agents.networks import Scale, input_spread
from downside.train.averaging import Average
from downside.train.host import Host, HostCore, HostState
from downside.train.host_memory import HostReplay, Ring, Samples
from downside.train.program import Kept, Program
from downside.train.trials import Trials

WINDOW = 100
"""Finished episodes that the present policy is judged by."""
_STARTS = 256
"""First observations that are remembered."""


class HostedRun(eqx.Module):
    """Everything that changes in a run, but for the environments themselves."""

    learner: Learner
    goal: Goal
    has_goal: Bool[Array, ""]
    """Whether an outer step has been made; before, the mean is maximised."""
    spread: Float[Array, ""]
    """Standard deviation of the returns of the present policy."""
    kept: Kept
    key: Key[Array, ""]
    """The root of all randomness; it never changes."""
    rounds: Int[np.ndarray, ""]
    """Rounds of `update_interval` steps of all environments and the updates that follow."""
    replay: HostReplay
    episodes: Ring
    """Of the last episodes: discounted return, sum of rewards, length."""
    starts: Ring
    start_masks: Ring
    trials: Trials
    average: Average | None
    """Of the networks in the last part of the run, if there is to be one."""


def blank(program: Program, algorithm: AbstractAlgorithm, key: Key[Array, ""]) -> HostedRun:
    """A run that has not seen anything."""
    settings, core = program.settings, program.env
    goal = algorithm.first_goal(jnp.zeros(2))
    size = algorithm.wrap(core, goal).observation_space.shape[0]
    networks = make_networks(
        stream(key, "networks"),
        settings,
        program.make_trunk,
        size,
        core.num_actions,
        anchored=not core.bounded,
        hidden=algorithm.hidden_at_first,
    )
    own = core.observation_space.shape[0]
    return HostedRun(
        learner=make_learner(networks, program.optimiser),
        goal=goal,
        has_goal=jnp.zeros((), bool),
        spread=jnp.ones(()),
        kept=Kept(networks, goal, jnp.asarray(-jnp.inf)),
        key=key,
        rounds=np.zeros((), np.int64),
        replay=HostReplay.empty(own, core.num_actions, settings.buffer_size),
        episodes=_no_episodes(),
        starts=Ring.empty(_STARTS, (own,), np.float32),
        start_masks=Ring.empty(_STARTS, (core.num_actions,), bool),
        trials=Trials.none(),
        average=Average.begin(networks, settings),
    )


def warmed_up(program: Program, algorithm: AbstractAlgorithm, run: HostedRun) -> HostedRun:
    """With what random play says about how large the numbers are."""
    count = min(int(run.replay.added), run.replay.capacity)
    seen = Samples(*(array[:count] for array in run.replay.storage))
    episodes = run.episodes.filled()
    # Where no episode has ended, what was earned by then has to do.
    returns = episodes[:, 0] if len(episodes) > 1 else seen.accumulated
    goal = algorithm.first_goal(jnp.asarray(returns, jnp.float32))
    spread = float(np.std(returns))
    spread = spread if spread > 1e-6 else max(1.0, float(np.abs(returns).max()))
    networks = run.learner.networks
    if program.settings.normalise:
        inputs = jax.vmap(
            lambda observation, s, c: jnp.concatenate(
                [observation, algorithm.remembered(s, c, goal)]
            )
        )(seen.observation, seen.accumulated, seen.discount_so_far)
        # In 64 bits: what is measured of an input must not depend, in its last digit, on how many
        # others there are, or agents that see the same would not be the same run.
        seen_by_networks = np.asarray(jax.vmap(lambda one: algorithm.view(one, goal))(inputs))
        # What is hidden has the mean 0, which is what it is set to.
        mean = jnp.asarray(seen_by_networks.mean(axis=0, dtype=np.float64), jnp.float32)
        deviation = jnp.asarray(input_spread(np.asarray(inputs, np.float64)), jnp.float32)
        deviation = jnp.where(deviation > 1e-6, deviation, 1.0)
        own = jnp.asarray(spread, jnp.float32)
        networks = with_scale(
            networks,
            Scale(mean, deviation, jnp.zeros(()), own),
            Scale(mean, deviation, jnp.asarray(returns.mean(), jnp.float32), own),
        )
    return eqx.tree_at(
        lambda one: (one.learner, one.goal, one.spread, one.kept),
        run,
        (
            make_learner(networks, program.optimiser),
            goal,
            jnp.asarray(spread, jnp.float32),
            Kept(networks, goal, run.kept.value),
        ),
    )


def with_starts(program: Program, run: HostedRun) -> Program:
    """The program with the first observations of the last episodes, always as many of them."""
    index = np.resize(np.arange(len(run.starts.filled())), _STARTS)
    starts = HostState(
        jnp.asarray(run.starts.rows[index]), jnp.asarray(run.start_masks.rows[index])
    )
    return eqx.tree_at(lambda one: one.env, program, HostCore(starts))


def host_core(host: Host) -> HostCore:
    """The environment as compiled functions know it, before anything was seen."""
    blank = HostState(jnp.zeros((_STARTS, host.size)), jnp.ones((_STARTS, host.actions), bool))
    return HostCore(blank)


def without_values(run: HostedRun) -> HostedRun:
    """The run with nothing known of what policies are worth."""
    unknown = jnp.asarray(-jnp.inf, run.kept.value.dtype)
    average = run.average
    if average is not None:  # of what was learned for other episodes
        average = Average(average.networks, np.zeros_like(average.count))
    return eqx.tree_at(
        lambda one: (one.kept.value, one.episodes, one.trials, one.average),
        run,
        (unknown, _no_episodes(), Trials.none(), average),
        is_leaf=lambda one: one is None,
    )


def _no_episodes() -> Ring:
    return Ring.empty(WINDOW, (3,), np.float64)


class Draws:
    """NumPy generators in named streams from the root of a run; each costs little to make."""

    def __init__(self, key: Key[Array, ""]):
        self._root = int(np.asarray(jax.random.key_data(key)).view(np.uint64).ravel()[0])

    def of(self, name: str, number: int) -> np.random.Generator:
        """A generator that depends on the root, the name and the number alone."""
        counter = [0, 0, zlib.crc32(name.encode()), number]
        return np.random.Generator(np.random.Philox(counter=counter, key=self._root))


def episode_seed(key: Key[Array, ""], timesteps: int, name: str = "episodes") -> int:
    """The seed that environments are reset with when training begins or goes on; by another name,
    when something else does."""
    return int(Draws(key).of(name, timesteps).integers(0, 2**31 - 1))
