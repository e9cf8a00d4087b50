"""Many agents in one compiled program: risk measures x seeds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from downside.envs import AbstractJaxEnv
from downside.risk import AbstractSpectralRisk
from downside.train import fused
from downside.train.agent import QRSRM, Agent, as_record, check_timesteps
from downside.train.progress import TrainingBar

_MOST_BYTES = 4 * 2**30
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
    together: int | None = None,
    progress_bar: bool = False,
    **changes: Any,
) -> list[Agent]:
    """Trains an agent for each risk measure and each seed, side by side in one program.

    The measures are data to the program: it is compiled once, whatever they are. Each agent is
    what it would be if it were trained alone, up to rounding.

    Arguments:
        env: an environment written in JAX, as for a single agent.
        risks: the measures, or their texts.
        seeds: one agent for each of them and each measure.
        agent: which algorithm, e.g. `ds.QRSRM`.
        preset: "default" or "paper".
        total_timesteps: environment steps of each agent.
        env_kwargs: with an id, the parameters of the environment.
        network: as for a single agent.
        together: how many agents at a time; by default as many as fit into memory.
        progress_bar: whether to show how far it is.
        **changes: any field of `ds.Settings`, by name.

    Returns:
        The agents, in the order of `risks` and, for each, of `seeds`.
    """
    if isinstance(risks, str | AbstractSpectralRisk):
        raise TypeError(
            f"`risks` must be a list of measures, got {risks!r}. Pass [{str(risks)!r}] for one."
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
    first = agents[0]
    wanted = check_timesteps(total_timesteps, first.settings)
    program = fused.make_program(first.env, first.settings, first._make_trunk, wanted)
    levels = max(one._algorithm.objective.levels.shape[0] for one in agents)
    size = _group_size(agents, program) if together is None else together
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ValueError(f"`together` must be a whole number >= 1, got {together!r}.")
    steps = program.chunks * program.steps_per_chunk * first.settings.num_envs
    with TrainingBar(
        f"{first.name}, {len(agents)} agents", 0, steps * len(agents), disable=not progress_bar
    ) as bar:
        for begin in range(0, len(agents), size):
            _train(agents[begin : begin + size], program, levels, bar, begin * steps)
    return agents


def _train(
    agents: Sequence[Agent], program: fused.Program, levels: int, bar: TrainingBar, done: int
) -> None:
    """Trains a group of agents together."""
    algorithms = _stack(
        [one.algorithm_class.make(one.risk, one.settings, levels) for one in agents]
    )
    run = _begin(program, algorithms, jnp.stack([jax.random.key(one.seed) for one in agents]))
    for chunk in range(program.chunks):
        run, metrics = _advance(program, algorithms, run)
        for i, one in enumerate(agents):
            one.history.append(as_record(jax.tree.map(lambda leaf, i=i: leaf[i], metrics)))
        per_chunk = program.steps_per_chunk * program.settings.num_envs * len(agents)
        bar.update(done + (chunk + 1) * per_chunk, float(np.mean(metrics.best)))
    for _ in range(program.distribution_chunks):
        run, _ = _settle(program, algorithms, run)
    for i, one in enumerate(agents):
        own, own_run = (
            jax.tree.map(lambda leaf, i=i: leaf[i] if eqx.is_array(leaf) else leaf, part)
            for part in (algorithms, run)
        )
        one._algorithm, one._run = own, own_run


# One program for all of them; the environment and the settings are shared.
_begin = eqx.filter_jit(eqx.filter_vmap(fused.begin, in_axes=(None, 0, 0)))
_advance = eqx.filter_jit(eqx.filter_vmap(fused.advance, in_axes=(None, 0, 0)))
_settle = eqx.filter_jit(eqx.filter_vmap(fused.settle, in_axes=(None, 0, 0)))


def _stack(parts: list[Any]) -> Any:
    return jax.tree.map(
        lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *parts
    )


def _group_size(agents: Sequence[Agent], program: fused.Program) -> int:
    """How many agents fit into memory: what a run holds, twice, as a step makes a new one."""
    shapes = eqx.filter_eval_shape(fused.begin, program, agents[0]._algorithm, jax.random.key(0))
    arrays = [leaf for leaf in jax.tree.leaves(shapes) if hasattr(leaf, "shape")]
    numbers = sum(int(np.prod(leaf.shape)) for leaf in arrays)
    return max(1, min(len(agents), int(_MOST_BYTES / (2 * 4 * numbers))))
