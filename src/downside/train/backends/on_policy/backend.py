"""AC-SRM in any Gymnasium environment: whole iterations of lived steps, then compiled updates."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Array, Float, Key

from downside._random import stream
from downside.agents.actor_critic_learner import LivedBatch
from downside.agents.algorithm import AbstractAlgorithm
from downside.agents.learner import AbstractLearner
from downside.agents.lived import AbstractLivedAlgorithm
from downside.agents.networks import MakeTrunk
from downside.agents.policy_head import PolicyHead
from downside.agents.settings import OnPolicySettings
from downside.envs import (
    AbstractJaxEnv,
    GymnasiumEnv,
    GymnasiumVectorEnv,
    Simulator,
    SimulatorVectorEnv,
)
from downside.envs.gymnasium.rollout import VectorRollout
from downside.envs.gymnasium.vector_adapter import VectorEnvAdapter
from downside.train.backends.gymnasium.adapting import WarmUp
from downside.train.backends.gymnasium.base import AbstractGymBackend
from downside.train.backends.gymnasium.state import Streams, episode_seed
from downside.train.backends.jax.backend import greedy_returns
from downside.train.backends.on_policy import fit as on_policy_fit
from downside.train.backends.on_policy.episodes import (
    add_episodes,
    judged,
    last_episodes,
    policy_to_keep,
)
from downside.train.backends.on_policy.positions import FinalPolicy, begun
from downside.train.backends.on_policy.program import (
    RECENT,
    WINDOW,
    Explorer,
    OnPolicySpec,
    OnPolicyState,
    fresh,
    improve,
    in_32_bits,
    increments,
    next_outer,
    order_of,
)
from downside.train.backends.on_policy.warm_up import play_at_random
from downside.train.backends.state import BestPolicy

_EVALUATED = 1_024
"""Copies in which policies are evaluated that see the number of the step or the last steps."""


class OnPolicyBackend(AbstractGymBackend):
    """Learns from whole iterations of lived steps."""

    settings_class = OnPolicySettings
    adapts_to_long_episodes = True

    def __init__(self, adapter: VectorEnvAdapter, jax_env: AbstractJaxEnv | None = None):
        super().__init__(adapter)
        self.core = jax_env
        if jax_env is not None and not adapter.history.low:
            # What is simulated from a state knows nothing of the steps before it.
            self.jax_env, self.default_episodes = jax_env, 100_000
        self.head = PolicyHead.of(adapter.action_space, adapter.name)
        self._rollout: VectorRollout | None = None
        self._positions: Any = None
        """Of the episodes under way, if they have positions."""

    @classmethod
    def make(
        cls, env: Any, env_kwargs: Mapping[str, Any] | None, settings: OnPolicySettings
    ) -> "OnPolicyBackend":
        """The backend for an environment, which may be an id with parameters."""
        core: AbstractJaxEnv | None = None
        source: Any = env
        if isinstance(env, AbstractJaxEnv):
            core, source, env_kwargs = env, _copies(env, settings.num_envs), None
        adapter = VectorEnvAdapter(
            source,
            settings.num_envs,
            env_kwargs,
            history_length=settings.history_length,
            clock=settings.has_clock,
        )
        return cls(adapter, core)

    # --- the start ----------------------------------------------------------------------------

    def warm_up(
        self, settings: OnPolicySettings, key: Key[Array, ""], most_seconds: float = math.inf
    ) -> WarmUp:
        """What some episodes of random play show, in so many seconds at most."""
        rollout = VectorRollout(self.adapter, settings.gamma, Streams(key).seed("warm-up"))
        return play_at_random(rollout, self.head, key, most_seconds)

    def new_spec(
        self, settings: OnPolicySettings, make_trunk: MakeTrunk, timesteps: int
    ) -> OnPolicySpec:
        """What a run of about so many steps does not change."""
        return OnPolicySpec.make(
            self.jax_env, settings, make_trunk, self.head, self.adapter.num_envs, timesteps
        )

    def init(
        self, spec: OnPolicySpec, algorithm: AbstractAlgorithm, key: Key[Array, ""]
    ) -> tuple[OnPolicyState, int]:
        """A run that has learned nothing yet."""
        state = self._first_state(spec, algorithm, key)
        self.resume(spec, state, 0)
        return state, 0

    def _first_state(
        self, spec: OnPolicySpec, algorithm: AbstractAlgorithm, key: Key[Array, ""]
    ) -> OnPolicyState:
        assert isinstance(algorithm, AbstractLivedAlgorithm)
        learner, outer = fresh(spec, algorithm, self.adapter.observation_size, key)
        return OnPolicyState(
            learner=learner,
            outer=outer,
            has_outer=jnp.zeros((), bool),
            spread=jnp.ones(()),
            best=BestPolicy(learner.networks, outer, jnp.asarray(-jnp.inf)),
            key=key,
            episodes=np.zeros((WINDOW, 3 + algorithm.recorded)),
            ended=np.zeros((), np.int64),
            recent=np.zeros(RECENT, np.int64),
        )

    # --- one chunk ----------------------------------------------------------------------------

    def chunk(
        self, spec: OnPolicySpec, algorithm: AbstractAlgorithm, state: OnPolicyState
    ) -> tuple[OnPolicyState, dict[str, float]]:
        """Some iterations: steps of all environments, updates, and the next h."""
        assert isinstance(algorithm, AbstractLivedAlgorithm)
        if self._rollout is None or self._rollout.disturbed:  # a callback has played in it
            self.resume(spec, state, int(state.learner.iterations) * spec.transitions)
        metrics: Any = None
        for _ in range(spec.settings.outer_interval):
            state, metrics = self._iteration(spec, algorithm, state)
        episodes = last_episodes(state)
        episodes = episodes if len(episodes) else np.zeros((1, state.episodes.shape[1]))
        returns, rewards, lengths = episodes[:, :3].T
        iterations = int(state.learner.iterations)
        logged = {name: float(value) for name, value in metrics._asdict().items()}
        noise = 1.0 if self.head.choices else spec.settings.noise
        anneal = float(np.exp(spec.learner(algorithm).log_anneal(iterations / spec.iterations)))
        return state, {
            "timesteps": float(iterations * spec.transitions),
            "simulated_steps": 0,
            "updates": float(iterations * spec.updates_per_iteration),
            **logged,
            "value": judged(spec, algorithm, episodes)[0],
            "best": float(state.best.value),
            "mean": float(returns.mean()),
            "spread": float(returns.std()),
            "exploration": noise * anneal,
            "episodes": float(state.ended),
            "episode_reward": float(rewards.mean()),
            "episode_length": float(lengths.mean()),
        }

    def _iteration(
        self, spec: OnPolicySpec, algorithm: AbstractLivedAlgorithm, state: OnPolicyState
    ) -> tuple[OnPolicyState, Any]:
        """Lives through some steps, learns from them, and moves h."""
        iteration = int(state.learner.iterations)
        steps, ended = self._collect(spec, algorithm, state, iteration)
        state = add_episodes(state, ended)
        if iteration == 0:  # the first policy sees nothing, so that h can still be chosen
            state = self._moved(spec, algorithm, state, 0.0, rate=1.0)
            longest = state.episodes[:, 2].max() if int(state.ended) else math.inf
            short = jnp.asarray(longest <= spec.settings.step_inputs, jnp.float32)
            outer = dataclasses.replace(state.outer, short=short)
            state = dataclasses.replace(state, outer=outer)
        steps["increments"] = increments(algorithm, state.outer, steps)
        order = order_of(spec, Streams(state.key).generator("order", iteration))
        batch = LivedBatch(**in_32_bits(steps), order=order)  # pyright: ignore[reportArgumentType]
        learner, metrics = improve(spec, algorithm, state.learner, state.outer, batch)
        kept = policy_to_keep(spec, algorithm, state, learner, iteration + 1)
        state = dataclasses.replace(state, learner=learner, best=kept)
        return self._moved(spec, algorithm, state, (iteration + 1) / spec.iterations), metrics

    def _collect(
        self,
        spec: OnPolicySpec,
        algorithm: AbstractLivedAlgorithm,
        state: OnPolicyState,
        iteration: int,
    ) -> tuple[dict[str, Any], Float[np.ndarray, "k r"]]:
        """Steps all environments; what happened, and the episodes that ended."""
        rollout, settings = self._rollout, spec.settings
        assert rollout is not None
        learner = spec.learner(algorithm)
        explore = Explorer(learner, state, float(learner.log_anneal(iteration / spec.iterations)))
        generator = Streams(state.key).generator("act", iteration)
        shape = (spec.n_steps, self.adapter.num_envs, self.head.outputs)
        if self.head.choices:
            noise = generator.random(shape, np.float32).clip(1e-6, 1.0 - 1e-6)
        else:
            noise = generator.standard_normal(shape, np.float32)
        lived: list[dict[str, Any]] = []
        ended = [np.zeros((0, state.episodes.shape[1]))]
        repeated = settings.episodes_per_seed > 1
        seed = Streams(state.key).seed("repeated episodes", iteration)
        key = stream(state.key, "positions", iteration)
        for number, row in enumerate(noise):
            if repeated and number % spec.part == 0:
                rollout.reset(seed)
            # Episodes of the same seed have the same positions.
            self._positions = positions = begun(
                algorithm, state.outer, self._positions, rollout.started, key, number % spec.part
            )
            raw, actions = explore(rollout, positions, row)
            before = rollout.observations, rollout.memory, rollout.masks
            step, rows = rollout.step(actions)
            discount = np.where(step.is_step, settings.gamma, 1.0)
            rewards = np.where(step.is_step, step.rewards, 0.0)
            lived.append(
                {
                    "observations": before[0],
                    "memory": before[1],
                    "masks": before[2],
                    "raw": raw,
                    "next_observations": step.next_observations,
                    "next_memory": before[1].update(rewards, discount),
                    "terminated": step.terminated,
                    # What the next reset cuts off is truncated.
                    "over": step.over | (repeated and (number + 1) % spec.part == 0),
                    "is_step": step.is_step,
                    "positions": positions,
                }
            )
            records = algorithm.record(positions, len(step.over))[step.over]
            ended.append(np.concatenate([rows, records], axis=1))
        stacked: dict[str, Any] = jax.tree.map(lambda *parts: np.stack(parts), *lived)
        return stacked, np.concatenate(ended)

    def _moved(
        self,
        spec: OnPolicySpec,
        algorithm: AbstractLivedAlgorithm,
        state: OnPolicyState,
        progress: float,
        rate: float | None = None,
    ) -> OnPolicyState:
        """With the h that the last episodes ask for."""
        rollout, episodes = self._rollout, last_episodes(state)
        assert rollout is not None
        if not len(episodes):  # what was earned so far has to do
            earned = rollout.memory.accumulated
            records = algorithm.record(self._positions, len(earned))
            episodes = np.column_stack([earned, rollout.rewards, rollout.lengths, records])
        outer = next_outer(
            algorithm,
            state.outer,
            algorithm.summary(episodes[:, 0], episodes[:, 3:]),
            jnp.asarray(spec.mean_share(progress), jnp.float32),
            jnp.asarray(spec.settings.outer_rate if rate is None else rate, jnp.float32),
        )
        risk = progress > spec.settings.risk_neutral_fraction
        return dataclasses.replace(
            state, outer=outer, spread=outer.spread, has_outer=jnp.asarray(risk)
        )

    # --- around a run -------------------------------------------------------------------------

    def fit_return_distribution(
        self, spec: OnPolicySpec, algorithm: AbstractAlgorithm, state: OnPolicyState
    ) -> tuple[OnPolicyState, int]:
        """Plays some episodes of the final policy, and learns what follows its actions."""
        assert isinstance(algorithm, AbstractLivedAlgorithm)
        learner, best, settings = spec.learner(algorithm), state.best, spec.settings
        streams = Streams(state.key)
        steps = math.ceil(settings.evaluation_fraction * spec.iterations * spec.transitions)
        lengths = last_episodes(state)[:, 2]
        rollout = VectorRollout(self.adapter, settings.gamma, streams.seed("evaluation"))
        played = on_policy_fit.play(
            rollout,
            FinalPolicy(learner, best.networks, best.outer, state.key),
            self.head,
            streams.generator("deviate", 0),
            steps,
            float(lengths.mean()) if len(lengths) else 1.0,
        )
        if not len(played.returns):  # no episode has ended
            return state, played.steps
        returns = on_policy_fit.fit(
            learner,
            best.networks.returns,
            best.outer,
            played,
            streams.generator("fit", 0),
            state.key,
        )
        state = eqx.tree_at(lambda s: s.best.networks.returns, state, returns)
        return state, played.steps

    def resume(self, spec: OnPolicySpec, state: OnPolicyState, timesteps: int) -> None:
        """Begins new episodes, whose seeds follow from the run and the number of steps."""
        seed = episode_seed(state.key, timesteps)
        if self._rollout is None:
            self._rollout = VectorRollout(self.adapter, spec.settings.gamma, seed)
        else:
            self._rollout.reset(seed)

    def start_over(
        self, spec: OnPolicySpec, algorithm: AbstractAlgorithm, state: OnPolicyState
    ) -> OnPolicyState:
        """Steps and schedules from 0 again; what was learned stays."""
        restarted = spec.learner(algorithm).restart(state.learner.networks)
        restarted = eqx.tree_at(lambda s: s.input_count, restarted, state.learner.input_count)
        return dataclasses.replace(state, learner=restarted, key=stream(state.key, "again"))

    def move_here(self, before: "OnPolicyBackend", state: OnPolicyState) -> OnPolicyState:
        """A run that another backend of the same kind had. What policies were worth in the
        environment there means nothing here."""
        del before
        unknown = jnp.asarray(-jnp.inf, state.best.value.dtype)
        return eqx.tree_at(
            lambda s: (s.best.value, s.ended, s.recent),
            state,
            (unknown, np.zeros_like(state.ended), np.zeros_like(state.recent)),
        )

    # --- the environment, where it is written in JAX ------------------------------------------

    def make_env(self, render_mode: str | None = None) -> gym.Env:
        """A new environment of the same kind."""
        if self.core is None:
            return super().make_env(render_mode)
        return GymnasiumEnv(core=self.core, render_mode=render_mode)

    def for_evaluation(self, episodes: int) -> VectorEnvAdapter:
        """Where so many episodes of a policy are played."""
        if self.core is None:
            return super().for_evaluation(episodes)
        history = self.adapter.history
        count = min(episodes, _EVALUATED)
        return VectorEnvAdapter(
            _copies(self.core, count), count, history_length=history.steps, clock=history.clock
        )

    def simulate_returns(
        self, learner: AbstractLearner, policy: BestPolicy, episodes: int, seed: int
    ) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of a policy in new episodes."""
        if self.jax_env is None:
            return super().simulate_returns(learner, policy, episodes, seed)
        return greedy_returns(self.jax_env, learner, policy, episodes, seed)

    @property
    def aligned(self) -> bool:
        """Whether episode i of an evaluation is the same for every agent."""
        return self.jax_env is not None or (self.core is None and super().aligned)

    # --- checkpoints --------------------------------------------------------------------------

    def to_tree(self, state: OnPolicyState) -> Any:
        """All that a checkpoint holds."""
        return state

    def skeleton(self, spec: OnPolicySpec, algorithm: AbstractAlgorithm) -> Any:
        """A tree like that of `to_tree`, with the right shapes."""
        assert isinstance(algorithm, AbstractLivedAlgorithm)
        state = eqx.filter_eval_shape(
            lambda key: self._first_state(spec, algorithm, key), jax.random.key(0)
        )
        window = np.zeros((WINDOW, 3 + algorithm.recorded))
        in_numpy = (window, np.zeros((), np.int64), np.zeros(RECENT, np.int64))
        return eqx.tree_at(lambda s: (s.episodes, s.ended, s.recent), state, in_numpy)

    def from_tree(self, tree: Any) -> OnPolicyState:
        """The run that `to_tree` took apart."""
        return tree


def _copies(core: AbstractJaxEnv, count: int) -> gym.vector.VectorEnv:
    """Many copies of an environment; a simulator is stepped by NumPy, without JAX in between."""
    kind = SimulatorVectorEnv if isinstance(core, Simulator) else GymnasiumVectorEnv
    return kind(core, count, autoreset_mode=AutoresetMode.SAME_STEP)  # pyright: ignore[reportArgumentType]
