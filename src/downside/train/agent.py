"""The agents as a user meets them: `ds.QRSRM(env, risk=...).learn().predict(observation)`."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from downside.agents import (
    DQN,
    SRM,
    AbstractAlgorithm,
    Aim,
    Goal,
    ICVaR,
    Networks,
    Settings,
    StaticCVaR,
    action_scores,
    settings,
)
from downside.agents.networks import make_trunk
from downside.envs import (
    AbstractJaxEnv,
    GymnasiumFace,
    ReturnAware,
    TargetAware,
    VectorReturnAware,
    VectorTargetAware,
    make_jax,
)
from downside.exact import simulate
from downside.ops import masked
from downside.risk import AbstractSpectralRisk, Mean, Utility, as_risk
from downside.train import fused
from downside.train.program import Kept, Program, Run, make_program, measuring_horizon
from downside.train.progress import TrainingBar

Callback = Callable[["Agent"], bool | None]
"""Called between two chunks of training; returning False ends it."""


class Agent:
    """An agent that learns to act, in stable-baselines3's manner.

    Arguments:
        env: an environment written in JAX: its id, such as "downside/MeanReversion-v0", the
            environment itself, or its Gymnasium face.
        risk: the measure to optimise, or its text.
        preset: "default", or "paper" for the settings of the paper.
        seed: of everything random. The same seed gives the same agent.
        env_kwargs: with an id, the parameters of the environment.
        network: an `eqx.Module` from an observation to features, or a function
            (key, size of the observation) -> such a module; by default `hidden` layers.
        **changes: any field of `ds.Settings`, by name.

    What it learns from is in `history`, one entry for each outer step: the value J of the iterate's
    policy among them. The best one is kept.
    """

    algorithm_class: ClassVar[type[AbstractAlgorithm]]
    """What kind of algorithm it is."""
    aligned = True
    """Episode i of `simulate_returns` meets the same noise for every agent and every plan."""

    def __init__(
        self,
        env: "AbstractJaxEnv | gym.Env | gym.vector.VectorEnv | str",
        *,
        risk: AbstractSpectralRisk | str | None = None,
        preset: str = "default",
        seed: int = 0,
        env_kwargs: Mapping[str, Any] | None = None,
        network: Any = None,
        **changes: Any,
    ):
        core = make_jax(env, **(env_kwargs or {}))
        if core is None:
            raise ValueError(
                f"`env` must be an environment that is written in JAX, got {env!r}. Those of "
                "`downside envs` but the lunar lander are; so is any subclass of "
                "ds.envs.AbstractJaxEnv."
            )
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise TypeError(f"`seed` must be a whole number, got {seed!r}.")
        if risk is None and self.algorithm_class is not DQN:
            raise TypeError(
                f"{type(self).__name__} needs a `risk`, for example risk='cvar(0.2)'. "
                "`downside risks` lists the measures; for the mean alone use QRDQN."
            )
        self.env: AbstractJaxEnv = core
        self.risk: AbstractSpectralRisk = Mean() if risk is None else as_risk(risk)
        defaults = self.algorithm_class.preset if preset == "default" else {}
        self.settings: Settings = settings(
            preset, {**defaults, **changes}, self.algorithm_class.fixed
        )
        self.seed, self.preset = int(seed), preset
        self.history: list[dict[str, float]] = []
        self._make_trunk = make_trunk(network, self.settings.hidden, self.settings.activation)
        self._algorithm = self.algorithm_class.make(self.risk, self.settings)
        self._program: Program | None = None
        self._run: Run | None = None

    # --- learning -----------------------------------------------------------------------------

    def learn(
        self,
        total_timesteps: int | None = None,
        *,
        callback: Callback | None = None,
        progress_bar: bool = False,
    ) -> "Agent":
        """Trains for about so many environment steps, a whole number of outer steps.

        Interrupting it (Ctrl-C) leaves the agent as it was after the last outer step. Calling it
        again goes on from there, with the schedules stretched to the new end.

        Arguments:
            total_timesteps: environment steps, by default `settings.total_timesteps`.
            callback: called after each outer step with the agent; returning False ends training.
            progress_bar: whether to show steps, speed and the value reached.
        """
        training = self.training(total_timesteps)
        with TrainingBar(f"{self.name} {self.risk}", disable=not progress_bar) as bar:
            for done, total in training:
                bar.update(done, total, self.history[-1]["best"])
                if callback is not None and callback(self) is False:
                    break
            bar.say("learning the return distribution of the policy")
            self.settle()
        return self

    def training(self, total_timesteps: int | None = None) -> Iterator[tuple[int, int]]:
        """`learn` one outer step at a time: yields the steps done and the steps there will be.

        For loops of your own; call `settle` in the end.
        """
        wanted = check_timesteps(total_timesteps, self.settings)
        program = make_program(self.env, self.settings, self._make_trunk, wanted)
        chunks = program.chunks + len(self.history)
        self._program = program = dataclasses.replace(program, chunks=chunks)
        if self._run is None:
            self._run = fused.begin(program, self._algorithm, jax.random.key(self.seed))
        total = chunks * program.steps_per_chunk * self.settings.num_envs
        begin = time.perf_counter()
        while len(self.history) < chunks:
            self._run, metrics = fused.advance(program, self._algorithm, self._run)
            record = {name: float(value) for name, value in metrics._asdict().items()}
            self.history.append({**record, "seconds": time.perf_counter() - begin})
            yield self.num_timesteps, total

    def settle(self) -> None:
        """Learns the return distribution of the policy that is kept, which stays as it is.

        Where the quantiles are learned together with the policy there is nothing to do.
        """
        program = self._program
        if program is None or self._run is None:
            raise RuntimeError("The agent has not learned anything yet: call `learn` first.")
        for _ in range(program.distribution_chunks):
            self._run, _ = fused.settle(program, self._algorithm, self._run)

    @property
    def name(self) -> str:
        """As the paper calls the algorithm."""
        return self.algorithm_class.name

    @property
    def num_timesteps(self) -> int:
        """Environment steps so far."""
        return int(self.history[-1]["timesteps"]) if self.history else 0

    # --- what was learned ---------------------------------------------------------------------

    @property
    def _kept(self) -> Kept:
        if self._run is None or not self.history:
            raise RuntimeError("The agent has not learned anything yet: call `learn` first.")
        return self._run.kept

    @property
    def networks(self) -> Networks:
        """The networks of the policy that is kept."""
        return self._kept.networks

    @property
    def goal(self) -> Goal:
        """What the outer step arrived at for the policy that is kept: h, b, or nothing."""
        return self._kept.goal

    @property
    def utility(self) -> Utility | None:
        """The utility h that the policy maximises the expectation of; None where there is none."""
        goal = self.goal
        return goal.absolute() if isinstance(goal, Aim) else None

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """The action for an observation of `agent.wrap(env)`, or the actions for a batch of them.

        Arguments:
            observation: one observation, or several along a first axis.
            state: handed back as it is; what the agent remembers is in the observation.
            episode_start: of no use, for the same reason.
            deterministic: False for a random action in a share `exploration_final` of cases.
            action_masks: which actions are legal, of shape (actions,) or (batch, actions).
        """
        del episode_start
        batch, single = self._observations(observation)
        shape = (len(batch), self.env.num_actions)
        masks = np.ones(shape, bool) if action_masks is None else np.asarray(action_masks, bool)
        if masks.shape not in (shape, shape[1:]):
            raise ValueError(
                f"`action_masks` must have shape {shape}, got {masks.shape}: one entry per action."
            )
        masks = np.broadcast_to(masks, shape)
        scores = np.asarray(_scores(self._algorithm, self.networks, self.goal, jnp.asarray(batch)))
        actions = np.where(masks, scores, -np.inf).argmax(axis=1)
        if not deterministic:
            self._draws = getattr(self, "_draws", None) or np.random.default_rng(self.seed)
            legal = np.where(masks, self._draws.random(shape), -1.0).argmax(axis=1)
            explore = self._draws.random(len(batch)) < self.settings.exploration_final
            actions = np.where(explore, legal, actions)
        return (int(actions[0]) if single else actions), state

    def scores(self, observation: Any) -> Float[np.ndarray, "*batch A"]:
        """The score of every action: what the greedy policy maximises."""
        batch, single = self._observations(observation)
        scores = _scores(self._algorithm, self.networks, self.goal, jnp.asarray(batch))
        out = np.asarray(scores, dtype=float)
        return out[0] if single else out

    def return_distribution(self, observation: Any) -> Float[np.ndarray, "*batch A N"]:
        """The learned quantiles of every action's return from here on, in increasing order."""
        batch, single = self._observations(observation)
        quantiles = _quantiles(self._algorithm, self.networks, self.goal, jnp.asarray(batch))
        out = np.asarray(quantiles, dtype=float)
        return out[0] if single else out

    def _observations(self, observation: Any) -> tuple[Float[np.ndarray, "n d"], bool]:
        batch = np.asarray(observation, dtype=np.float32)
        size = self._algorithm.wrap(self.env, self.goal).observation_space.shape
        single = batch.ndim == len(size)
        batch = batch[None] if single else batch
        if batch.ndim != 2 or batch.shape[1:] != size:
            raise ValueError(
                f"`observation` must have shape {size} or (n, {size[0]}), got "
                f"{np.shape(observation)}. It is an observation of `agent.wrap(env)`: the "
                "environment's, with what the agent remembers."
            )
        return batch, single

    def wrap(self, env: Any = None) -> Any:
        """An environment as the agent wants to see it, with what it remembers appended.

        Arguments:
            env: a Gymnasium environment or vector environment; by default a new one of the kind
                that the agent was trained on.
        """
        env = GymnasiumFace(core=self.env) if env is None else env
        vector = isinstance(env, gym.vector.VectorEnv)
        gamma = self.settings.gamma
        if self.algorithm_class is SRM:
            return (VectorReturnAware if vector else ReturnAware)(env, gamma=gamma)
        if self.algorithm_class is StaticCVaR:
            target = float(self.goal)
            return (VectorTargetAware if vector else TargetAware)(env, gamma=gamma, b=target)
        return env

    def simulate_returns(self, episodes: int, seed: int) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of so many episodes of the greedy policy, under fresh noise."""
        policy = _Policy(self._algorithm, self.networks, self.goal, self.env)
        returns, _ = simulate(
            self.env,
            policy,
            gamma=self.settings.gamma,
            episodes=episodes,
            key=jax.random.key(seed),
            horizon=measuring_horizon(self.env, self.settings.gamma),
        )
        return returns

    def __repr__(self) -> str:
        said = f"{self.num_timesteps:,} steps" if self.history else "untrained"
        return f"{type(self).__name__}({type(self.env).__name__}, risk='{self.risk}', {said})"


class _Policy(eqx.Module):
    """The greedy policy as a function of the state and of what was earned so far."""

    algorithm: AbstractAlgorithm
    networks: Networks
    goal: Goal
    env: AbstractJaxEnv

    def __call__(
        self, state: Any, accumulated: Float[Array, ""], discount: Float[Array, ""]
    ) -> Int[Array, ""]:
        remembered = self.algorithm.remembered(accumulated, discount, self.goal)
        observation = jnp.concatenate([self.env.observe(state), remembered])
        scores = action_scores(self.algorithm, self.networks, observation, self.goal)
        return jnp.argmax(masked(scores, self.env.action_mask(state)))


def check_timesteps(total_timesteps: Any, settings: Settings) -> int:
    """The steps of a run, or an error that says what they must be."""
    if total_timesteps is None:
        return settings.total_timesteps
    number = isinstance(total_timesteps, int | float | np.number)
    if not number or isinstance(total_timesteps, bool) or not total_timesteps >= 1:
        raise ValueError(
            f"`total_timesteps` must be a number >= 1, got {total_timesteps!r}. It counts "
            f"environment steps; the preset's is {settings.total_timesteps:,}."
        )
    return int(total_timesteps)


@eqx.filter_jit
def _scores(
    algorithm: AbstractAlgorithm, networks: Networks, goal: Goal, batch: Float[Array, "n d"]
) -> Float[Array, "n A"]:
    return jax.vmap(lambda one: action_scores(algorithm, networks, one, goal))(batch)


@eqx.filter_jit
def _quantiles(
    algorithm: AbstractAlgorithm, networks: Networks, goal: Goal, batch: Float[Array, "n d"]
) -> Float[Array, "n A N"]:
    seen = jax.vmap(lambda one: algorithm.view(one, goal))(batch)
    return jnp.sort(jax.vmap(networks.quantiles)(seen), axis=-1)


class QRSRM(Agent):
    """QR-SRM: any static spectral risk measure (the paper's algorithm)."""

    algorithm_class = SRM


class QRCVaR(Agent):
    """QR-CVaR: one static CVaR, by a search for its target at the start."""

    algorithm_class = StaticCVaR


class QRiCVaR(Agent):
    """QR-iCVaR: a fixed risk measure of what is still to come, at every step."""

    algorithm_class = ICVaR


class QRDQN(Agent):
    """QR-DQN: the mean."""

    algorithm_class = DQN
