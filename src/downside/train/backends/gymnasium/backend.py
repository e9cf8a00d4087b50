"""Training in any Gymnasium environment: Python steps the environments, updates are compiled.

The networks learn while the environments are being stepped: actions are chosen, then a round of
updates is started, then the environments step. Everything random comes from streams that depend on
the seed and the number of the step alone.
"""

import math
import time
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from downside._memory import check_fits
from downside._random import stream
from downside.agents.algorithm import AbstractAlgorithm
from downside.agents.learner import return_scale
from downside.agents.networks import MakeTrunk
from downside.agents.settings import GymnasiumSettings
from downside.envs.gymnasium.flatten import is_bytes
from downside.envs.gymnasium.rollout import VectorRollout
from downside.envs.gymnasium.vector_adapter import EnvironmentFaultError, VectorEnvAdapter
from downside.envs.memory_env import initial_memory
from downside.train.backends.gymnasium.adapting import WarmUp
from downside.train.backends.gymnasium.advice import advise
from downside.train.backends.gymnasium.base import AbstractGymBackend
from downside.train.backends.gymnasium.outer import outer_step
from downside.train.backends.gymnasium.program import Round, choose_now, fit_quantiles
from downside.train.backends.gymnasium.state import (
    Average,
    Experience,
    GymState,
    Streams,
    episode_seed,
    explored,
    normalisation_of,
    random_legal,
    without_values,
)
from downside.train.backends.replay import Observed, Ring, Transition
from downside.train.backends.state import FIT_CHUNK, BestPolicy, TrainSpec

_MAX_WARMUP = 20
"""How many times longer the warm-up may get until an episode has ended."""


class GymBackend(AbstractGymBackend):
    """Learns from transitions in one Gymnasium environment."""

    settings_class = GymnasiumSettings

    def __init__(self, adapter: VectorEnvAdapter):
        if not adapter.num_actions:
            raise ValueError(
                f"`env` must have discrete actions, got {adapter.env.single_action_space}. Use "
                "ds.ACSRM, which takes any; or wrap it in `gymnasium.wrappers.TransformAction`: a "
                "number picks one of a few actions."
            )
        super().__init__(adapter)
        self.experience: Experience | None = None
        self._rollout: VectorRollout | None = None
        self._round: tuple[Any, Round] | None = None
        self._warm = False
        """Whether the warm-up has been played and nothing since."""
        self._seconds_per_step = 0.0

    @classmethod
    def make(
        cls, env: Any, env_kwargs: Mapping[str, Any] | None, settings: GymnasiumSettings
    ) -> "GymBackend":
        """The backend for an environment, which may be an id with parameters."""
        history = settings.history_length
        backend = cls(VectorEnvAdapter(env, settings.num_envs, env_kwargs, history_length=history))
        backend.check_buffer(settings.buffer_size)
        return backend

    def check_buffer(self, rows: int) -> None:
        """Raises if so many transitions do not fit into memory."""
        adapter = self.adapter
        space, dtype = self.env.single_observation_space, adapter.observation_dtype
        size = Experience.row_size(adapter.observation_size, self.num_actions, dtype)
        remedy = ""
        if is_bytes(space) and adapter.history.steps:
            remedy = 'With "CnnPolicy", or history_length=0, bytes are kept as bytes.'
        check_fits("buffer_size", rows, size, f"transitions of {adapter.name}", remedy)

    # --- the start ----------------------------------------------------------------------------

    def new_spec(
        self, settings: GymnasiumSettings, make_trunk: MakeTrunk, timesteps: int
    ) -> TrainSpec:
        """What a run of about so many steps does not change."""
        return TrainSpec.make(None, settings, make_trunk, self.num_actions, timesteps)

    def init(
        self, spec: TrainSpec, algorithm: AbstractAlgorithm, key: Key[Array, ""]
    ) -> tuple[GymState, int]:
        """A run that has learned nothing yet, after the warm-up of random play."""
        if not self._warm:
            self.warm_up(spec.gymnasium, key)
        self._warm = False
        assert self.experience is not None
        lengths = self.experience.episodes.filled()[:, 2]
        timesteps = spec.chunks * spec.timesteps_per_chunk
        advise(self.adapter.name, lengths, self._seconds_per_step, timesteps)
        return self._first_state(spec, algorithm, key, self.experience), 0

    def warm_up(
        self, settings: GymnasiumSettings, key: Key[Array, ""], most_seconds: float = math.inf
    ) -> WarmUp:
        """Plays at random, for so many seconds at most, and returns what this shows."""
        experience = self._empty(settings)
        self._rollout = VectorRollout(self.adapter, settings.gamma, episode_seed(key, 0))
        self._latest = np.full(self.adapter.num_envs, -1)
        self._greedy = np.ones(self.adapter.num_envs, bool)
        streams = Streams(key)
        warmup = math.ceil(settings.warmup_steps / self.adapter.num_envs)
        begin, steps = time.perf_counter(), 0
        for step in range(warmup * _MAX_WARMUP):
            if step >= warmup and int(experience.episodes.added) >= 2:
                break
            if time.perf_counter() - begin > most_seconds:
                break
            actions = random_legal(streams.generator("warm-up", step), self._rollout.masks)
            self._collect(settings, actions, np.ones(self.adapter.num_envs, bool))
            steps += self.adapter.num_envs
        ended = int(experience.episodes.added)
        if ended == 0:
            raise EnvironmentFaultError(
                f"No episode of {self.adapter.name} ended in {steps:,} steps of random play: there "
                "is no return to learn from. Wrap it in `gymnasium.wrappers.TimeLimit`."
            )
        self._warm = True
        self._seconds_per_step = (time.perf_counter() - begin) / steps
        lengths = experience.episodes.filled()[:, 2]
        return WarmUp(
            episodes=ended,
            longest=int(lengths.max()),
            share=float((lengths == lengths.max()).mean()),
            terminated=int(experience.replay.filled().terminated.sum()) >= ended,
            seconds=self._seconds_per_step,
        )

    def _empty(self, settings: GymnasiumSettings) -> Experience:
        self.experience = self._experience(settings.buffer_size, settings.outer_episodes)
        return self.experience

    def _experience(self, rows: int, episodes: int) -> Experience:
        size, dtype = self.adapter.observation_size, self.adapter.observation_dtype
        return Experience(size, self.num_actions, rows, dtype, episodes)

    def _first_state(
        self,
        spec: TrainSpec,
        algorithm: AbstractAlgorithm,
        key: Key[Array, ""],
        experience: Experience | None,
    ) -> GymState:
        settings = spec.gymnasium
        played, normalisation, spread, returns = None, None, 1.0, np.zeros(2)
        if experience is not None:
            played, episodes = experience.replay.filled(), experience.episodes.filled()
            # Where no episode has ended, what was earned by then has to do.
            returns = episodes[:, 0] if len(episodes) > 1 else played.memory.accumulated
            spread = float(return_scale(np.asarray(returns))[0])
        outer = algorithm.initial_outer(jnp.asarray(returns, jnp.float32))
        if played is not None and settings.normalise:
            shape = self.env.single_observation_space.shape or ()
            normalisation = normalisation_of(algorithm, outer, played, returns, shape)
        inputs = jax.eval_shape(
            lambda x: algorithm.network_input(x, initial_memory(), outer),
            jax.ShapeDtypeStruct((self.adapter.observation_size,), jnp.float32),
        )
        learner = spec.learner(algorithm).init(
            stream(key, "networks"), inputs.shape[0], normalisation
        )
        average = Average(learner.networks, np.zeros((), np.int64)) if settings.averaging else None
        return GymState(
            learner=learner,
            outer=outer,
            has_outer=jnp.zeros((), bool),
            spread=jnp.asarray(spread, jnp.float32),
            best=BestPolicy(learner.networks, outer, jnp.asarray(-jnp.inf, jnp.float32)),
            key=key,
            rounds=np.zeros((), np.int64),
            average=average,
        )

    # --- one chunk ----------------------------------------------------------------------------

    def chunk(
        self, spec: TrainSpec, algorithm: AbstractAlgorithm, state: GymState
    ) -> tuple[GymState, dict[str, float]]:
        """From one outer step to the next."""
        settings, experience = spec.gymnasium, self.experience
        assert experience is not None
        first, ended_before = int(state.rounds), int(experience.episodes.added)
        if self._rollout is None or self._rollout.disturbed:  # a callback has played in it
            self.resume(spec, state, first * spec.timesteps_per_round)
        rollout = self._rollout
        assert rollout is not None
        compiled = self._compiled(spec, algorithm, state)
        learner, fixed = compiled.leaves(algorithm, state)
        streams = Streams(state.key)
        losses = []
        for number in range(first, first + spec.rounds_per_chunk):
            exploration = spec.exploration(number / spec.rounds)
            for tick in range(settings.update_interval):
                step = number * settings.update_interval + tick
                generator = streams.generator("act", step)
                explore = generator.random(self.adapter.num_envs) < exploration
                explore &= ~self._draw_greedy(settings, streams, step)
                if explore.all():
                    actions = random_legal(generator, rollout.masks)
                else:
                    leaves = (learner[: compiled.num_networks], fixed)
                    chosen = choose_now(compiled.choose, leaves, rollout)
                    actions = explored(generator, explore, rollout.masks, chosen)
                if tick == 0:  # computed while the environments are being stepped
                    generator = streams.generator("updates", number)
                    shape = (settings.updates_per_step, settings.batch_size)
                    samples = experience.replay.sample(generator, shape, settings.n_steps)
                    noise = generator.standard_normal(shape, np.float32)
                    learner, loss = compiled.update(learner, fixed, samples, noise)
                    losses.append(loss)
                self._truncate(settings, streams, step)
                self._collect(settings, actions, explore)
        rounds = np.asarray(state.rounds + spec.rounds_per_chunk)  # a sum alone is no array
        state = eqx.tree_at(
            lambda s: (s.learner, s.rounds), state, (compiled.learner_state(learner), rounds)
        )
        loss = float(np.mean(jax.device_get(losses)))
        return outer_step(spec, algorithm, state, experience, rollout, loss, ended_before)

    def _draw_greedy(
        self, settings: GymnasiumSettings, streams: Streams, step: int
    ) -> Bool[np.ndarray, " n"]:
        """Which environments are in an episode without exploration; drawn at its start."""
        assert self._rollout is not None
        if not settings.greedy_episodes:
            return np.zeros(self.adapter.num_envs, bool)
        chance = streams.generator("greedy", step).random(self.adapter.num_envs)
        drawn = chance < settings.greedy_episodes
        self._greedy = np.where(self._rollout.started, drawn, self._greedy)
        return self._greedy

    def _compiled(self, spec: TrainSpec, algorithm: AbstractAlgorithm, state: GymState) -> Round:
        """Compiled when it is first needed."""
        known = (spec.settings, spec.chunks, jax.tree.structure(state.outer))
        if self._round is None or self._round[0] != known:
            self._round = (known, Round(spec, algorithm, state))
        return self._round[1]

    def _collect(
        self,
        settings: GymnasiumSettings,
        actions: Int[np.ndarray, " n"],
        explored: Bool[np.ndarray, " n"],
    ) -> None:
        """Steps all environments and adds what happened to the experience.

        n-step returns end before an action that was `explored`: what it led to says nothing of the
        policy.
        """
        rollout, experience = self._rollout, self.experience
        assert rollout is not None and experience is not None  # noqa: PT018
        self._latest[explored] = -1
        if rollout.started.any():
            experience.starts.add(rollout.observations[rollout.started])
            experience.start_masks.add(rollout.masks[rollout.started])
        observations, memory = rollout.observations, rollout.memory
        step, ended = rollout.step(actions)
        # All of them, mostly; copies that did nothing but reset are left out.
        rows = slice(None) if step.is_step.all() else step.is_step
        rewards = step.rewards[rows]
        self._latest[rows] = experience.replay.add(
            Transition(
                Observed(observations[rows], np.zeros((len(rewards), 0), bool)),
                type(memory)(memory.accumulated[rows], memory.discount_so_far[rows]),
                actions[rows],
                rewards,
                Observed(step.next_observations[rows], step.next_masks[rows]),
                step.terminated[rows],
                np.full(len(rewards), settings.gamma),
            ),
            self._latest[rows],
        )
        if len(ended):
            judged = self._greedy[step.over] if settings.greedy_episodes else slice(None)
            experience.episodes.add(ended[judged])
            self._latest[step.over] = -1

    def _truncate(self, settings: GymnasiumSettings, streams: Streams, step: int) -> None:
        """Ends some of the episodes in which rewards hardly count any more."""
        assert self._rollout is not None
        late = self._rollout.memory.discount_so_far < settings.min_discount
        if late.any():
            chance = streams.generator("cut", step).random(len(late))
            self.adapter.cut(late & (chance < 1.0 - settings.gamma))

    # --- around a run -------------------------------------------------------------------------

    def fit_return_distribution(
        self, spec: TrainSpec, algorithm: AbstractAlgorithm, state: GymState
    ) -> tuple[GymState, int]:
        """Updates of the quantiles, from transitions of the buffer. Only where a critic scores
        actions: otherwise the quantiles are learned together with the policy."""
        experience = self.experience
        assert experience is not None
        done = int(state.learner.quantile_updates)
        generator = Streams(state.key).generator("fit", done)
        shape = (FIT_CHUNK, spec.settings.batch_size)
        samples = experience.replay.sample(generator, shape)
        noise = generator.standard_normal(shape, np.float32)
        learner, best = fit_quantiles(spec, algorithm, state, samples, jnp.asarray(noise))
        return eqx.tree_at(lambda s: (s.learner, s.best), state, (learner, best)), 0

    def resume(self, spec: TrainSpec, state: GymState, timesteps: int) -> None:
        """Begins new episodes, whose seeds follow from the run and the number of steps."""
        seed = episode_seed(state.key, timesteps)
        if self._rollout is None:
            self._rollout = VectorRollout(self.adapter, spec.settings.gamma, seed)
        else:
            self._rollout.reset(seed)
        self._latest = np.full(self.adapter.num_envs, -1)
        self._greedy = np.ones(self.adapter.num_envs, bool)

    def start_over(
        self, spec: TrainSpec, algorithm: AbstractAlgorithm, state: GymState
    ) -> GymState:
        """Steps and schedules from 0 again; what was learned stays."""
        networks = state.learner.networks
        fresh = spec.learner(algorithm).restart(networks)
        fresh = eqx.tree_at(lambda s: s.targets, fresh, state.learner.targets)
        average = Average(networks, np.zeros((), np.int64)) if state.average is not None else None
        return eqx.tree_at(
            lambda s: (s.learner, s.rounds, s.average, s.key),
            state,
            (fresh, np.zeros((), np.int64), average, stream(state.key, "again")),
            is_leaf=lambda leaf: leaf is None,
        )

    def move_here(self, before: "GymBackend", state: GymState) -> GymState:
        """A run that another backend of the same kind had, with its experience. What policies were
        worth in the environment there means nothing here."""
        self.experience = before.experience
        if self.experience is not None:
            self.experience.episodes = Ring(len(self.experience.episodes.rows), (3,), np.float64)
        return without_values(state)

    # --- checkpoints --------------------------------------------------------------------------

    def to_tree(self, state: GymState) -> Any:
        """All that a checkpoint holds."""
        assert self.experience is not None
        return state, self.experience.arrays()

    def skeleton(self, spec: TrainSpec, algorithm: AbstractAlgorithm) -> Any:
        """A tree like that of `to_tree`, with the right shapes; it takes no memory."""
        state = eqx.filter_eval_shape(
            lambda key: self._first_state(spec, algorithm, key, None), jax.random.key(0)
        )
        in_numpy = np.zeros((), np.int64)
        state = eqx.tree_at(lambda s: s.rounds, state, in_numpy)
        if state.average is not None:
            state = eqx.tree_at(lambda s: s.average.count, state, in_numpy)
        arrays = self._experience(1, spec.gymnasium.outer_episodes).arrays()
        storage, successor, added = arrays["replay"]
        rows = spec.gymnasium.buffer_size
        storage, successor = jax.tree.map(
            lambda array: np.broadcast_to(array, (rows, *array.shape[1:])), (storage, successor)
        )
        return state, {**arrays, "replay": (storage, successor, added)}

    def from_tree(self, tree: Any) -> GymState:
        """The run that `to_tree` took apart."""
        state, arrays = tree
        rows = len(arrays["replay"][1])
        self.experience = self._experience(rows, len(arrays["episodes"][0]))
        self.experience.fill(arrays)
        return state
