"""Many agents with one compiled program: risk measures x seeds.

On a CPU each agent runs on a core of its own, as many at a time as there are cores: batched, the
small matrices of many agents multiply more slowly than one after the other (measured in
docs/research-notes/choices-and-speed.md). On an accelerator they are one batch, in one program.
Where there are several devices each takes its share: agents need nothing of each other.
"""

import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from downside._machine import cores
from downside.agents import AbstractAlgorithm
from downside.envs import AbstractJaxEnv, make_jax
from downside.envs.env_spec import EnvSpec
from downside.envs.faults import named_faults, ready
from downside.risk import AbstractSpectralRisk
from downside.train.agent import Agent
from downside.train.backends.jax.backend import AbstractJaxBackend
from downside.train.backends.state import FIT_CHUNK
from downside.train.config import check_timesteps
from downside.train.devices import Compiling, share, used_devices
from downside.train.driver import Clock, DivergenceError, is_finite
from downside.train.family import QRSRM
from downside.train.monitor import TrainingBar

_MAX_BYTES = 4 * 2**30
"""Memory that the agents of one group may take together."""


def train_many(
    env: "AbstractJaxEnv | gym.Env | gym.vector.VectorEnv | str",
    *,
    risks: Iterable[AbstractSpectralRisk | str],
    seeds: Iterable[int] = (0,),
    agent: type[Agent] = QRSRM,
    preset: str = "default",
    total_timesteps: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    network: Any = None,
    engine: str | None = None,
    together: int | None = None,
    progress_bar: bool = False,
    **changes: Any,
) -> list[Agent]:
    """Trains an agent for each risk measure and each seed.

    Measures are data to the program: it is compiled once for all that have as many levels. With
    the engine "threads" each agent is bit for bit what it would be if it were trained alone; with
    "vmap", up to rounding. All devices of the process (`jax.local_devices()`) take part, unless
    `jax.config` names a default device; each compiles the program once.

    Arguments:
        env: an environment written in JAX, as for a single agent. For others there is `ds.sweep`.
        risks: the measures, or their texts.
        seeds: one agent for each of them and each measure.
        agent: which algorithm, e.g. `ds.QRSRM`.
        preset: "default" or "paper".
        total_timesteps: environment steps of each agent.
        env_kwargs: with an id, the parameters of the environment.
        network: as for a single agent.
        engine: "threads", an agent to a core, or "vmap", all agents in one batch; by default the
            first on a CPU and the second elsewhere.
        together: how many agents at a time ("threads"), or in a batch ("vmap"); by default as many
            as there are cores, or as fit into 4 GiB.
        progress_bar: whether to show how far it is.
        **changes: any setting, by name.

    Returns:
        The agents, in the order of `risks` and, for each, of `seeds`.

    Raises:
        DivergenceError: when all others are trained, if the losses of an agent became infinite or
            NaN; those in order are its `agents`.
    """
    if isinstance(risks, str | AbstractSpectralRisk):
        raise TypeError(
            f"`risks` must be a list of measures, got {risks!r}. Pass [{str(risks)!r}] for one."
        )
    check_in_jax(env, env_kwargs)
    if agent.jax_backend is None:
        raise ValueError(
            f"`agent` must be one that learns in a compiled program, got {agent.__name__}, which "
            "lives through episodes. Train one after the other."
        )
    seeds = list(seeds)
    agents = [
        agent(
            env,
            risk=risk,
            seed=seed,
            preset=preset,
            env_kwargs=env_kwargs,
            network=network,
            **changes,
        )
        for risk in risks
        for seed in seeds
    ]
    if not agents:
        raise ValueError("`risks` and `seeds` must each have at least one entry, got none.")
    train_agents(
        agents,
        total_timesteps=total_timesteps,
        engine=engine,
        together=together,
        progress_bar=progress_bar,
    )
    return agents


def train_agents(
    agents: Sequence[Agent],
    *,
    total_timesteps: int | None = None,
    engine: str | None = None,
    together: int | None = None,
    finished: Callable[[Agent], None] | None = None,
    progress_bar: bool = False,
) -> None:
    """Trains agents that differ in nothing but their measure and seed, as `train_many` does.

    Arguments:
        agents: agents that have not learned yet.
        total_timesteps: environment steps of each agent.
        engine: as for `train_many`.
        together: as for `train_many`.
        finished: called with each agent when it is trained, in the thread that trained it.
        progress_bar: whether to show how far it is.

    Raises:
        DivergenceError: as for `train_many`.
    """
    if engine is None:
        engine = "threads" if jax.default_backend() == "cpu" else "vmap"
    if engine not in ("threads", "vmap"):
        raise ValueError(f"`engine` must be 'threads' or 'vmap', got {engine!r}.")
    if together is not None and (
        isinstance(together, bool) or not isinstance(together, int | np.integer) or together < 1
    ):
        raise ValueError(f"`together` must be a whole number >= 1, got {together!r}.")
    for member in agents:
        if member.jax_env is None:
            raise _not_in_jax(member.env_spec)
    title = f"{agents[0].name}, {len(agents)} agents"
    with TrainingBar(title, disable=not progress_bar) as bar:
        train = _train_in_threads if engine == "threads" else _train_in_batches
        diverged = train(agents, total_timesteps, together, bar, finished or (lambda _: None))
    if diverged:
        raise _divergence(agents, diverged)


def _divergence(agents: Sequence[Agent], diverged: set[int]) -> DivergenceError:
    bad = [f"{agents[i].risk}, seed {agents[i].seed}" for i in sorted(diverged)]
    return DivergenceError(
        f"Training diverged for {len(bad)} of {len(agents)} agents: the loss is not finite for "
        f"{'; '.join(bad)}. Each is as it was one outer step earlier. The others are trained: they "
        "are the `agents` of this error. Try a lower `learning_rate`, or look for huge rewards.",
        [member for i, member in enumerate(agents) if i not in diverged],
    )


def check_in_jax(env: Any, parameters: Mapping[str, Any] | None = None) -> None:
    """Refuses an environment that many agents cannot be trained in within one process."""
    if make_jax(env, **(parameters or {})) is None:
        raise _not_in_jax(EnvSpec.of(env, parameters))


def _not_in_jax(spec: EnvSpec) -> ValueError:
    return ValueError(
        f"`env` must be written in JAX for many agents in one process, got {spec}. Use "
        "`ds.sweep`, where each run has a process and an environment of its own."
    )


# --- an agent to a core -----------------------------------------------------------------------


def _train_in_threads(
    agents: Sequence[Agent],
    total_timesteps: int | None,
    together: int | None,
    bar: TrainingBar,
    finished: Callable[[Agent], None],
) -> set[int]:
    """Trains the agents; gives the numbers of those that diverged."""
    compiling, done = Compiling(), dict.fromkeys(range(len(agents)), 0)
    diverged: set[int] = set()

    def train(number: int, device: Any, stop: threading.Event) -> None:
        try:
            train_one(number, device, stop)
        except DivergenceError:  # the others go on
            diverged.add(number)

    def train_one(number: int, device: Any, stop: threading.Event) -> None:
        agent = agents[number]

        def chunks(what: str, steps: Iterator[Any]) -> Iterator[Any]:
            with compiling.first((what, _levels(agent), device)):
                first = None if stop.is_set() else next(steps, None)
            if first is not None:
                yield first
                yield from steps

        for done[number], total in chunks("training", agent.training(total_timesteps)):
            if stop.is_set():
                return
            best = np.mean([agent.history[-1]["best"] for agent in agents if agent.history])
            bar.update(sum(done.values()), total * len(agents), float(best))
        for _ in chunks("fitting", agent._driver.fit()):
            if stop.is_set():
                return
        if not stop.is_set():
            finished(agent)

    at_a_time = cores() if jax.default_backend() == "cpu" else len(used_devices())
    share([functools.partial(train, i) for i in range(len(agents))], together or at_a_time)
    return diverged


def _levels(agent: Agent) -> int:
    return agent._driver.algorithm.objective.levels.shape[0]


def _algorithm(agent: Agent, levels: int) -> AbstractAlgorithm:
    """The agent's algorithm, with its measure in as many numbers as the others have."""
    if agent.family is not None:  # a dial has one level wherever it stands
        return agent._driver.algorithm
    return agent.algorithm_class.make(agent.risk, agent.settings, levels)


# --- one batch --------------------------------------------------------------------------------


def _train_in_batches(
    agents: Sequence[Agent],
    total_timesteps: int | None,
    together: int | None,
    bar: TrainingBar,
    finished: Callable[[Agent], None],
) -> set[int]:
    """Trains the agents; gives the numbers of those that diverged."""
    first, devices = agents[0], len(used_devices())
    spec = first._driver.new_spec(check_timesteps(total_timesteps, first.settings))
    levels = max(_levels(agent) for agent in agents)
    size = min(together or _group_size(first, spec, len(agents)), math.ceil(len(agents) / devices))
    per_chunk = spec.timesteps_per_chunk
    done = dict.fromkeys(range(0, len(agents), size), 0)
    diverged: set[int] = set()

    def train(begin: int, device: Any, stop: threading.Event) -> None:
        del device
        group = agents[begin : begin + size]
        bad: dict[int, Any] = {}
        for chunk, best in _train(group, spec, levels, bad):
            if stop.is_set():
                return
            done[begin] = (chunk + 1) * len(group)
            bar.update(sum(done.values()) * per_chunk, spec.chunks * len(agents) * per_chunk, best)
        diverged.update(begin + i for i in bad)
        for i, agent in enumerate(group):
            if i not in bad:
                finished(agent)

    share([functools.partial(train, begin) for begin in done], devices)
    return diverged


def _train(
    agents: Sequence[Agent], spec: Any, levels: int, bad: dict[int, Any]
) -> Iterator[tuple[int, float]]:
    """Trains a group of agents together; yields the chunk and the mean of their best values.

    `bad` receives the runs that diverged, as they were one chunk earlier. In the batch they go on,
    because its shape stays, but their results are dropped.
    """
    algorithms = _stack([_algorithm(agent, levels) for agent in agents])
    keys = jnp.stack([jax.random.key(agent.seed) for agent in agents])
    clocks = [Clock([]) for _ in agents]
    backend = agents[0]._driver.backend
    assert isinstance(backend, AbstractJaxBackend)
    program = backend.program
    with named_faults():
        state, simulated = ready(_together(program.init)(spec, algorithms, keys))
    before, extra = state, np.asarray(simulated)
    for chunk in range(spec.chunks):
        before = state
        with named_faults():
            state, metrics = ready(_together(program.chunk)(spec, algorithms, before))
        for i, agent in enumerate(agents):
            if i in bad:
                continue
            record = program.record(spec, _part(metrics, i))
            record["simulated_steps"] += int(extra[i])
            if not is_finite(record):
                bad[i] = _part(before, i)
                continue
            outer, algorithm = _part(state.outer, i), _part(algorithms, i)
            agent.history.append(clocks[i].completed(record, algorithm, outer))
        extra = np.zeros_like(extra)
        if len(bad) == len(agents):
            break
        good = [agent for i, agent in enumerate(agents) if i not in bad]
        yield chunk, float(np.mean([agent.history[-1]["best"] for agent in good]))
    else:
        del before  # or there would be three of them, not two
        for _ in range(spec.fit_chunks):
            fit = _together(program.fit_return_distribution)
            with named_faults():
                state, _ = ready(fit(spec, algorithms, state))
    fitted = 0
    if spec.fit_chunks:
        fitted = FIT_CHUNK * program.simulated_per_batch(spec) * spec.fit_chunks
    for i, agent in enumerate(agents):
        driver = agent._driver
        driver.spec, driver.algorithm = spec, _part(algorithms, i)
        driver.state = bad[i] if i in bad else _part(state, i)
        driver.fitted = 0 if i in bad else spec.fit_chunks
        if i not in bad:
            agent.history[-1]["simulated_steps"] += fitted


def _part(batch: Any, i: int) -> Any:
    """What belongs to one of the agents."""
    return jax.tree.map(lambda leaf: leaf[i] if eqx.is_array(leaf) else leaf, batch)


@functools.cache
def _together(function: Any) -> Any:
    """The function for a group of agents; the environment and the settings are shared.

    Without its own compilation, whose options only an outermost program may have.
    """
    return eqx.filter_jit(eqx.filter_vmap(function.__wrapped__, in_axes=(None, 0, 0)))


def _stack(parts: list[Any]) -> Any:
    return jax.tree.map(
        lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *parts
    )


def _group_size(agent: Agent, spec: Any, count: int) -> int:
    """How many agents fit into memory: what a run holds, twice, as a chunk makes a new one."""
    shapes = agent._driver.backend.skeleton(spec, agent._driver.algorithm)
    arrays = [leaf for leaf in jax.tree.leaves(shapes) if hasattr(leaf, "shape")]
    numbers = sum(int(np.prod(leaf.shape)) for leaf in arrays)
    return max(1, min(count, int(_MAX_BYTES / (2 * 4 * numbers))))
