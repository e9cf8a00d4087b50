"""The agents as a user meets them: `ds.QRSRM(env, risk=...).learn().predict(observation)`."""

import dataclasses
import importlib.metadata
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import jax
import numpy as np
from jaxtyping import Float

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
)
from downside.agents.networks import make_trunk
from downside.envs import AbstractJaxEnv, make_jax
from downside.risk import AbstractSpectralRisk, Mean, Utility, as_risk
from downside.train import checkpoint
from downside.train.callbacks import as_callbacks
from downside.train.host import Host
from downside.train.hosted_run import HostedRun, host_core, without_values
from downside.train.interruption import Interruption
from downside.train.logs import Log
from downside.train.loops import AnyRun, FusedLoop, GymnasiumLoop, Loop, is_finite
from downside.train.origin import Origin
from downside.train.policy import Policy
from downside.train.program import Kept, Program, make_program
from downside.train.progress import TrainingBar
from downside.train.setup import agent_settings, check_timesteps, default_episodes, environment


class DivergenceError(RuntimeError):
    """The losses became infinite or NaN."""

    def __init__(self, message: str, agents: "Sequence[Agent]" = ()):
        super().__init__(message)
        self.agents: tuple[Agent, ...] = tuple(agents)
        """Of many agents that were trained together, those that are in order."""


def completed(
    record: dict[str, float],
    goal: Goal,
    seconds: float,
    *,
    before: float = 0.0,
    first: int = 0,
) -> dict[str, float]:
    """The record of an outer step as it enters the history, with the time and where h is.

    Arguments:
        record: what the loop says.
        goal: what the outer step arrived at.
        seconds: since training began or went on.
        before: seconds of training before that.
        first: environment steps before that.
    """
    out = {**record, "seconds": before + seconds, "fps": (record["timesteps"] - first) / seconds}
    if isinstance(goal, Aim):
        out["location"] = float(goal.location)
    return out


class Agent:
    """An agent that learns to act, in stable-baselines3's manner.

    Arguments:
        policy: "MlpPolicy", which has no effect; or the environment, as below.
        env: any Gymnasium environment with discrete actions: its id, the environment, or a vector
            environment. One that is written in JAX (`downside envs` lists ours) is trained in one
            compiled program.
        risk: the measure to optimise, or its text.
        preset: "default", or "paper" for the settings of the paper.
        seed: of everything random. The same seed gives the same agent.
        env_kwargs: with an id, the parameters of the environment.
        network: an `eqx.Module` from an observation to features, or a function
            (key, size of the observation) -> such a module; by default `hidden` layers.
        tensorboard_log: a folder for TensorBoard events and `progress.jsonl`; none by default.
        verbose: 1 to print a line after each outer step.
        **changes: any field of `ds.Settings`, by name, or by the name stable-baselines3 has for it.

    What it learns from is in `history`, one entry for each outer step: the value J of the iterate's
    policy among them. The best one is kept.
    """

    algorithm_class: ClassVar[type[AbstractAlgorithm]]
    """What kind of algorithm it is."""

    def __init__(
        self,
        policy: Any = None,
        env: "AbstractJaxEnv | gym.Env | gym.vector.VectorEnv | str | None" = None,
        *,
        risk: AbstractSpectralRisk | str | None = None,
        preset: str = "default",
        seed: int | None = 0,
        env_kwargs: Mapping[str, Any] | None = None,
        network: Any = None,
        tensorboard_log: str | Path | None = None,
        verbose: int = 0,
        **changes: Any,
    ):
        env = environment(policy, env)
        seed = 0 if seed is None else seed
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise TypeError(f"`seed` must be a whole number >= 0, got {seed!r}.")
        if risk is None and self.algorithm_class is not DQN:
            raise TypeError(
                f"{type(self).__name__} needs a `risk`, for example risk='cvar(0.2)'. "
                "`downside risks` lists the measures; for the mean alone use QRDQN."
            )
        self.risk: AbstractSpectralRisk = Mean() if risk is None else as_risk(risk)
        self.algorithm_class.check(self.risk)
        self.seed, self.preset = int(seed), preset
        self.tensorboard_log, self.verbose = tensorboard_log, int(verbose)
        self.origin = Origin.of(env, env_kwargs)
        core = make_jax(env, **(env_kwargs or {}))
        num_envs = env.num_envs if isinstance(env, gym.vector.VectorEnv) else None
        num_envs = 1 if num_envs is None and isinstance(env, gym.Env) else num_envs
        self.settings: Settings = agent_settings(
            self.algorithm_class, preset, changes, core is not None, num_envs, network
        )
        self.env: AbstractJaxEnv | gym.vector.VectorEnv
        self._loop: Loop
        if core is not None:
            self.env = self._core = core
            self._loop = FusedLoop()
        else:
            count, past = self.settings.num_envs, self.settings.past_steps
            self._use(Host(env, count, env_kwargs, past_steps=past))  # pyright: ignore[reportArgumentType]
        self.history: list[dict[str, Any]] = []
        self._make_trunk = make_trunk(
            network, self.settings.hidden, self.settings.activation, self.settings.layer_norm
        )
        self._algorithm = self.algorithm_class.make(self.risk, self.settings)
        self._program: Program | None = None
        self._run: AnyRun | None = None
        self._settled = 0
        self._draws = np.random.default_rng(self.seed)

    def _use(self, host: Host) -> None:
        self._host, self.env = host, host.env
        self._core = host_core(host)
        self._loop = GymnasiumLoop(host)

    # --- learning -----------------------------------------------------------------------------

    def learn(
        self,
        total_timesteps: int | None = None,
        callback: Any = None,
        log_interval: int = 1,
        tb_log_name: str = "run",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> "Agent":
        """Trains for about so many environment steps, a whole number of outer steps.

        Interrupting it (Ctrl-C, SIGTERM) leaves the agent as it was after the last outer step;
        `resume` goes on from there to the same end.

        Arguments:
            total_timesteps: environment steps, by default `settings.total_timesteps`.
            callback: a `ds.Callback`, a function of the agent that is called after each outer step
                and ends training by returning False, or a list of these.
            log_interval: outer steps between two lines of the log.
            tb_log_name: the run's name in `tensorboard_log`.
            reset_num_timesteps: of an agent that has learned before, whether steps and schedules
                start from 0 again; otherwise they are stretched to the new end.
            progress_bar: whether to show steps, speed and the value reached.
        """
        wanted = check_timesteps(total_timesteps, self.settings)
        if reset_num_timesteps and self.history:
            self._start_over()
        self._plan(wanted)
        return self.resume(callback, log_interval, tb_log_name, progress_bar)

    def resume(
        self,
        callback: Any = None,
        log_interval: int = 1,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> "Agent":
        """Goes on with training that was interrupted, to the end that it was to have.

        The result is that of training without an interruption: bit for bit where the environment
        is written in JAX. Others cannot be saved, so that their episodes begin anew.
        """
        if self._program is None:
            raise RuntimeError("The agent has not learned anything yet: call `learn` first.")
        callbacks = as_callbacks(callback)
        log = Log(
            self.tensorboard_log,
            tb_log_name,
            str(self.risk),
            fresh=not self.history,
            verbose=self.verbose,
        )
        bar = TrainingBar(f"{self.name} {self.risk}", disable=not progress_bar)
        with Interruption() as interruption, log, bar:
            for one in callbacks:
                one.on_start(self)
            try:
                for done, total in self._steps():
                    bar.update(done, total, self.history[-1]["best"])
                    go_on = [one.on_step(self) for one in callbacks]
                    if len(self.history) % max(1, log_interval) == 0:
                        log.write(self.history[-1])
                    if interruption.signal is not None:
                        raise interruption.error()
                    if any(answer is False for answer in go_on):
                        break
                if self._program.distribution_chunks > self._settled:
                    bar.say("learning the return distribution of the policy")
                for _ in self._settling():
                    if interruption.signal is not None:
                        raise interruption.error()
            finally:
                if self.history:
                    for one in callbacks:
                        one.on_end(self)
        return self

    def training(self, total_timesteps: int | None = None) -> Iterator[tuple[int, int]]:
        """`learn` one outer step at a time: yields the steps done and the steps there will be.

        For loops of your own; call `settle` in the end.
        """
        self._plan(check_timesteps(total_timesteps, self.settings))
        yield from self._steps()

    def settle(self) -> None:
        """Learns the return distribution of the policy that is kept, which stays as it is.

        Where the quantiles are learned together with the policy there is nothing to do.
        """
        for _ in self._settling():
            pass

    def _plan(self, timesteps: int) -> None:
        """The program from here to so many steps further on."""
        program = make_program(self._core, self.settings, self._make_trunk, timesteps)
        self._program = dataclasses.replace(program, chunks=program.chunks + len(self.history))
        self._settled = 0

    def _start_over(self) -> None:
        """Steps and schedules from 0 again; what was learned stays."""
        assert self._run is not None
        assert self._program is not None
        self._run, self.history = self._loop.start_over(self._program, self._run), []

    def _steps(self) -> Iterator[tuple[int, int]]:
        program = self._program
        assert program is not None
        if self._run is None:
            self._run = self._loop.begin(program, self._algorithm, jax.random.key(self.seed))
        else:
            self._loop.go_on(self._run, self.num_timesteps)
        total = program.chunks * program.steps_per_chunk * program.timesteps_per_round
        before = self.history[-1]["seconds"] if self.history else 0.0
        first, begin = self.num_timesteps, time.perf_counter()
        while len(self.history) < program.chunks:
            run, record = self._loop.advance(program, self._algorithm, self._run)
            if not is_finite(record):
                raise DivergenceError(
                    f"Training diverged after {int(record['timesteps']):,} steps: the loss is not "
                    "finite. The agent is as it was one outer step earlier, and so is its last "
                    "checkpoint. Try a lower `learning_rate`, or look for rewards that are huge."
                )
            took = time.perf_counter() - begin
            self._run = run
            self.history.append(completed(record, run.goal, took, before=before, first=first))
            yield self.num_timesteps, total

    def _settling(self) -> Iterator[int]:
        program, run = self._program, self._run
        if program is None or run is None:
            raise RuntimeError("The agent has not learned anything yet: call `learn` first.")
        while self._settled < program.distribution_chunks:
            self._run = self._loop.settle(program, self._algorithm, self._run)
            self._settled += 1
            yield self._settled

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

    @property
    def policy(self) -> Policy:
        """The policy that is kept."""
        hosted = isinstance(self._loop, GymnasiumLoop)
        env = self._host if hosted else self._core
        return Policy(self._algorithm, self.networks, self.goal, env)

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
        explore = 0.0 if deterministic else self.settings.exploration_final
        return self.policy.predict(observation, action_masks, explore, self._draws), state

    def scores(self, observation: Any) -> Float[np.ndarray, "*batch A"]:
        """The score of every action: what the greedy policy maximises."""
        return self.policy.scores(observation)

    def return_distribution(self, observation: Any) -> Float[np.ndarray, "*batch A N"]:
        """The learned quantiles of every action's return from here on, in increasing order."""
        return self.policy.quantiles(observation)

    def wrap(self, env: Any = None, *, render_mode: str | None = None) -> Any:
        """An environment as the agent wants to see it, with what it remembers appended.

        Arguments:
            env: a Gymnasium environment or vector environment; by default a new one of the kind
                that the agent was trained on.
            render_mode: of the new one, for example "rgb_array" for pictures.
        """
        return self.policy.wrap(env, render_mode)

    def simulate_returns(self, episodes: int, seed: int) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of so many episodes of the greedy policy, under fresh noise."""
        return self.policy.returns(episodes, seed)

    @property
    def aligned(self) -> bool:
        """Whether episode i of `simulate_returns` meets the same noise for every agent and plan; in
        a Gymnasium environment, whether it begins with the same seed."""
        return self._loop.host.aligned if isinstance(self._loop, GymnasiumLoop) else True

    @property
    def default_episodes(self) -> int:
        """How many episodes `evaluate` plays unless told: fewer where they are slow."""
        return default_episodes(isinstance(self._loop, FusedLoop))

    # --- environments -------------------------------------------------------------------------

    def get_env(self) -> Any:
        """The environment that the agent learns in."""
        return self.env

    def set_env(self, env: Any) -> None:
        """Another environment to learn in, with the same spaces."""
        other = type(self)(env, risk=self.risk, **dataclasses.asdict(self.settings))
        if type(other._loop) is not type(self._loop):
            raise ValueError(f"`env` must be of the same kind as {self.origin}, got {env!r}.")
        before, after = self._core, other._core
        spaces = (before.observation_space.shape, before.num_actions)
        if spaces != (after.observation_space.shape, after.num_actions):
            raise ValueError(
                f"`env` must have observations of shape {spaces[0]} and {spaces[1]} actions, got "
                f"{after.observation_space.shape} and {after.num_actions}."
            )
        self.env, self._core, self._loop, self.origin = other.env, after, other._loop, other.origin
        if isinstance(other._loop, GymnasiumLoop):
            self._host = other._host
        if isinstance(self._run, HostedRun):  # what policies were worth elsewhere is no measure
            self._run = without_values(self._run)

    # --- files --------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Writes everything into one file, from which `ds.load` makes the same agent.

        Training can go on from it as if nothing had happened. The file appears whole or not at
        all, and nothing in it can run code.

        Returns:
            The path that was written, with its suffix.
        """
        if self._run is None or self._program is None:
            raise RuntimeError("The agent has not learned anything yet: call `learn` first.")
        about = {
            "agent": type(self).__name__,
            "env": self.origin.as_json(),
            "risk": str(self.risk),
            "settings": dataclasses.asdict(self.settings),
            "preset": self.preset,
            "seed": self.seed,
            "chunks": self._program.chunks,
            "settled": self._settled,
            "history": self.history,
            "versions": {
                name: importlib.metadata.version(name) for name in ("downside", "jax", "equinox")
            },
        }
        return checkpoint.write(path, checkpoint.to_arrays(self._run), about)

    @classmethod
    def load(cls, path: str | Path, env: Any = None, **more: Any) -> "Agent":
        """As `ds.load`, for an agent of this class, which may be one of your own."""
        from downside.train.loading import load

        agent = load(path, env, own=cls, **more)
        if not isinstance(agent, cls):
            raise ValueError(
                f"{path} holds a {type(agent).__name__}, not a {cls.__name__}. Use ds.load, which "
                "takes any."
            )
        return agent

    def __repr__(self) -> str:
        said = f"{self.num_timesteps:,} steps" if self.history else "untrained"
        return f"{type(self).__name__}({self.origin}, risk='{self.risk}', {said})"


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
