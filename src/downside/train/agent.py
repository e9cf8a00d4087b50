"""The agents as a user meets them: `ds.QRSRM(env, risk=...).learn().predict(observation)`."""

import dataclasses
import importlib.metadata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import jax
import numpy as np
from jaxtyping import Float
from rich.console import Console

from downside.agents import (
    AbstractAlgorithm,
    AbstractDialAlgorithm,
    GymnasiumSettings,
    OuterVariable,
    QuantileSettings,
    Settings,
)
from downside.agents.networks import make_trunk
from downside.envs import AbstractJaxEnv, make_jax
from downside.envs.env_spec import EnvSpec
from downside.risk import AbstractSpectralRisk, Dial, Utility, as_dial, as_risk
from downside.train import checkpoint
from downside.train.adapting import changed, sentence
from downside.train.config import check_timesteps, environment, resolve
from downside.train.dial import FoundTarget, turned
from downside.train.driver import Backend, Driver, untrained
from downside.train.gym_backend import GymBackend
from downside.train.gym_base import AbstractGymBackend
from downside.train.jax_backend import AbstractJaxBackend, JaxBackend
from downside.train.log import Log
from downside.train.monitor import Interruption, TrainingBar, as_callbacks
from downside.train.policy import Policy
from downside.train.state import BestPolicy


class Agent:
    """An agent that learns to act, in stable-baselines3's manner.

    Arguments:
        policy: "MlpPolicy", which has no effect; "CnnPolicy" for pictures (the setting `cnn`); or
            the environment, as below.
        env: any Gymnasium environment: its id, the environment, or a vector environment (also one
            of stable-baselines3, such as `DummyVecEnv`). One that
            is written in JAX (`downside envs` lists ours) is trained in one compiled program.
        risk: the measure to optimise, or its text. Or "dial", or a `ds.Dial`: a family of measures,
            for agents that have `dial_algorithm`; see `at`.
        preset: "default", or "paper" for the settings of the paper.
        seed: of everything random. The same seed gives the same agent.
        env_kwargs: with an id, the parameters of the environment.
        network: an `eqx.Module` from an observation to features, or a function
            (key, size of the observation) -> such a module; by default `hidden_sizes` layers.
        tensorboard_log: a folder for TensorBoard events and `progress.jsonl`; none by default.
        verbose: 1 to print a line after each outer step.
        **changes: any setting, by name, or by the name that stable-baselines3 has for it.

    `history` has an entry for each outer step: among others the value J of the policy, the
    environment steps that were lived through and those that were simulated beside them.
    """

    algorithm_class: type[AbstractAlgorithm]
    """Which algorithm it is."""
    dial_algorithm: ClassVar[type[AbstractDialAlgorithm] | None] = None
    """The algorithm for a family of measures; None if there is none."""
    jax_backend: ClassVar[type[AbstractJaxBackend] | None] = JaxBackend
    """How it learns in environments written in JAX; None if as in all others."""
    gym_backend: ClassVar[type[AbstractGymBackend] | None] = GymBackend
    """How it learns in other environments; None if it cannot."""
    classes: ClassVar[dict[str, type["Agent"]]] = {}
    """All agents by the name that files have for them; yours among them, once defined."""

    def __init_subclass__(cls, **arguments: Any):
        super().__init_subclass__(**arguments)
        Agent.classes[cls.full_name()] = cls

    @classmethod
    def full_name(cls) -> str:
        """The name that files have for the class; with its module, if it is one of yours."""
        ours = cls.__module__.startswith("downside.")
        return cls.__name__ if ours else f"{cls.__module__}:{cls.__qualname__}"

    def __init__(
        self,
        policy: Any = None,
        env: Any = None,
        *,
        risk: AbstractSpectralRisk | Dial | str | None = None,
        preset: str = "default",
        seed: int | None = 0,
        env_kwargs: Mapping[str, Any] | None = None,
        network: Any = None,
        tensorboard_log: str | Path | None = None,
        verbose: int = 0,
        **changes: Any,
    ):
        if policy == "CnnPolicy" and env is not None:
            changes = {"cnn": True, **changes}
        env = environment(policy, env)
        seed = 0 if seed is None else seed
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise TypeError(f"`seed` must be a whole number >= 0, got {seed!r}.")
        risk = self.algorithm_class.default_risk if risk is None else risk
        if risk is None:
            raise TypeError(
                f"{type(self).__name__} needs a `risk`, for example risk='cvar(0.2)'. "
                "`downside risks` lists the measures; for the mean alone use QRDQN."
            )
        self.family: Dial | None = as_dial(risk)
        """The measures that the agent learns for, if it is a dial."""
        self.risk: AbstractSpectralRisk
        """The measure; of a dial, the one where it stands."""
        if self.family is None:
            assert not isinstance(risk, Dial)
            self.risk = as_risk(risk)
        elif self.dial_algorithm is not None:
            self.risk, self.algorithm_class = self.family.start, self.dial_algorithm
        else:
            raise ValueError(
                f"`risk` must be one measure for {type(self).__name__}, got {str(risk)!r}. A dial "
                "needs an actor: use ds.PGSRM, or train an agent for each measure (ds.frontier)."
            )
        self.algorithm_class.check(self.risk)
        self.targets: dict[str, FoundTarget] = {}
        """Of a dial, what `at` has found, by measure."""
        self.seed, self.preset = int(seed), preset
        self.tensorboard_log, self.verbose = tensorboard_log, int(verbose)
        self.env_spec = EnvSpec.of(env, env_kwargs)
        jax_env = make_jax(env, **(env_kwargs or {}))
        self.settings: Any
        """Of the class that the agent has for this kind of environment, such as `ds.Settings`."""
        self.settings, backend = self._make_backend(env, jax_env, env_kwargs, changes, network)
        self._given = (env, env_kwargs, changes, network)
        self._driver = self._make_driver(backend)
        self.adapted: dict[str, tuple[Any, Any]] = {}
        """Defaults that were changed by what the warm-up showed: before and after."""
        self._adaptation: str | None = None
        self._generator = np.random.default_rng(self.seed)

    def _make_driver(self, backend: Backend) -> Driver:
        settings = self.settings
        trunk = make_trunk(
            self._given[-1],
            settings.hidden_sizes,
            settings.activation,
            settings.layer_norm,
            backend.env.single_observation_space if getattr(settings, "cnn", False) else None,
        )
        return Driver(backend, self._make_algorithm(), settings, trunk, self.seed)

    def _make_algorithm(self) -> AbstractAlgorithm:
        if self.family is None:
            return self.algorithm_class.make(self.risk, self.settings)
        assert self.dial_algorithm is not None
        return self.dial_algorithm.make_family(self.family, self.risk, self.settings)

    def _make_backend(
        self,
        env: Any,
        jax_env: AbstractJaxEnv | None,
        env_kwargs: Mapping[str, Any] | None,
        changes: Mapping[str, Any],
        network: Any,
    ) -> tuple[Settings, Backend]:
        """The settings, and where transitions come from."""
        algorithm = self.algorithm_class
        if jax_env is not None and jax_env.default_gamma is not None:
            changes = {"gamma": jax_env.default_gamma, **changes}
        if jax_env is not None and self.jax_backend is not None:
            kind = self.jax_backend
            if self.preset == "default":
                changes = {**kind.defaults_for(jax_env), **changes}
            settings = resolve(
                algorithm, kind.settings_class, self.preset, changes, network=network
            )
            return kind.complete(settings, jax_env), kind(jax_env)
        if self.gym_backend is None:
            raise ValueError(
                f"`env` must be written in JAX for {self.name}, which differentiates simulated "
                f"episodes, or be a ds.Simulator; got {self.env_spec}. Write the problem in JAX or "
                "in NumPy (docs: Which door?), or use ds.ACSRM."
            )
        kind, num_envs = self.gym_backend, _count(env)
        settings = resolve(algorithm, kind.settings_class, self.preset, changes, num_envs, network)
        return settings, kind.make(env if jax_env is None else jax_env, env_kwargs, settings)

    def adapt(self, total_timesteps: int | None = None) -> None:
        """Plays the warm-up, and fits the defaults to what it shows: `agent.settings` then has what
        training will use, and `agent.adapted` what has changed.

        `learn` calls it; in JAX environments and for agents that have learned there is nothing to
        do. The settings that were given stay as they are.

        Arguments:
            total_timesteps: the length that the run will have, as for `learn`.
        """
        driver, settings = self._driver, self.settings
        backend = driver.backend
        lived = isinstance(settings, GymnasiumSettings)
        adaptable = lived and settings.adapt and not settings.cnn
        if not adaptable or self.adapted or driver.state is not None:
            return
        assert isinstance(backend, GymBackend)
        warm_up = backend.warm_up(settings, jax.random.key(self.seed))
        env, env_kwargs, changes, network = self._given
        self.settings = resolve(
            self.algorithm_class,
            GymnasiumSettings,
            self.preset,
            changes,
            _count(env),
            network,
            warm_up,
            total_timesteps,
        )
        self.adapted = changed(settings, self.settings)
        if self.adapted:
            self._adaptation = sentence(warm_up, self.adapted)
            backend.adapter.close()
            self._driver = self._make_driver(type(backend).make(env, env_kwargs, self.settings))

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
        check_timesteps(total_timesteps, self.settings)
        self.adapt(total_timesteps)
        if self._adaptation is not None and not self.history and (self.verbose or progress_bar):
            Console(stderr=True, highlight=False).print(self._adaptation, markup=False)
        timesteps = check_timesteps(total_timesteps, self.settings)
        if reset_num_timesteps and self.history:
            self._driver.start_over()
        self._driver.plan(timesteps)
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
        driver = self._driver
        spec = driver.planned()
        callbacks = as_callbacks(callback)
        log = Log(
            self.tensorboard_log,
            tb_log_name,
            str(self.risk),
            history=self.history,
            interval=max(1, log_interval),
            verbose=self.verbose,
        )
        bar = TrainingBar(f"{self.name} {self.risk}", disable=not progress_bar)
        with Interruption() as interruption, log, bar:
            for each in callbacks:
                each.on_start(self)
            try:
                for done, total in driver.chunks():
                    self.targets = {}  # they belong to the policy before
                    if self._adaptation is not None and len(self.history) == 1:
                        self.history[0]["adapted"] = self._adaptation
                    bar.update(done, total, self.history[-1]["best"])
                    go_on = [each.on_step(self) for each in callbacks]
                    if len(self.history) % max(1, log_interval) == 0:
                        log.write(self.history[-1])
                    if interruption.signal is not None:
                        raise interruption.error()
                    if any(answer is False for answer in go_on):
                        break
                if spec.fit_chunks > driver.fitted:
                    bar.say("learning the return distribution of the policy")
                for _ in driver.fit():
                    if interruption.signal is not None:
                        raise interruption.error()
            finally:
                if self.history:
                    for each in callbacks:
                        each.on_end(self)
        return self

    def training(self, total_timesteps: int | None = None) -> Iterator[tuple[int, int]]:
        """`learn` one outer step at a time: yields the steps done and the steps there will be.

        For loops of your own; call `fit_return_distribution` in the end.
        """
        check_timesteps(total_timesteps, self.settings)
        self.adapt(total_timesteps)
        self._driver.plan(check_timesteps(total_timesteps, self.settings))
        for progress in self._driver.chunks():
            self.targets = {}
            yield progress

    def fit_return_distribution(self) -> None:
        """Learns the return distribution of the final policy, which stays as it is.

        Where the quantiles are learned together with the policy there is nothing to do.
        """
        for _ in self._driver.fit():
            pass

    @property
    def history(self) -> list[dict[str, Any]]:
        """An entry for each outer step."""
        return self._driver.history

    @property
    def name(self) -> str:
        """As the paper calls the algorithm."""
        return self.algorithm_class.name

    @property
    def num_timesteps(self) -> int:
        """Environment steps so far."""
        return self._driver.num_timesteps

    @property
    def simulated_steps(self) -> int:
        """Environment steps that were simulated beside them, for learning and the outer step."""
        return int(self.history[-1]["simulated_steps"]) if self.history else 0

    # --- what was learned ---------------------------------------------------------------------

    @property
    def _best(self) -> BestPolicy:
        if self._driver.state is None or not self.history:
            raise untrained()
        return self._driver.state.best

    @property
    def networks(self) -> Any:
        """The networks of the final policy."""
        return self._best.networks

    @property
    def outer_variable(self) -> OuterVariable:
        """The outer variable of the final policy: h, b, or nothing."""
        return self._best.outer

    @property
    def utility(self) -> Utility | None:
        """The utility h whose expectation the policy maximises; None where there is none."""
        return self._driver.algorithm.utility(self.outer_variable)

    @property
    def policy(self) -> Policy:
        """The final policy."""
        driver = self._driver
        return Policy(driver.planned().learner(driver.algorithm), self._best, driver.backend)

    def at(self, risk: AbstractSpectralRisk | str) -> "Agent":
        """Of a dial, the agent for one of its measures: it acts, can be evaluated, explained and
        saved like any other.

        The first time, the target b of the measure is searched in simulated episodes, the same
        ones for every measure; it is kept with the agent and in its checkpoint. What an agent
        remembers of an episode does not depend on its measure, so that observations of `wrap` may
        go to another measure's agent in the middle of an episode.

        Arguments:
            risk: a measure of the family, or its text: `mean`, `cvar(0.05)`,
                `0.5*mean + 0.5*cvar(0.05)`.
        """
        return turned(self, risk)

    def frontier(
        self,
        points: int = 9,
        *,
        start: AbstractSpectralRisk | str = "mean",
        end: AbstractSpectralRisk | str = "cvar(0.1)",
        **options: Any,
    ) -> Any:
        """Of a dial, what more of one measure costs in the other: a `ds.Frontier` of one training.

        Arguments:
            points: how many mixtures of `start` and `end`, both included.
            start: the measure at one end.
            end: the measure at the other end.
            **options: `episodes`, `exact`, `confidence` and `progress_bar`, as for `ds.frontier`.
        """
        import downside

        return downside.frontier(self, points=points, start=start, end=end, **options)

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
            deterministic: False for a random action in a share `exploration_final` of cases, for
                agents that have this setting.
            action_masks: which actions are legal, of shape (actions,) or (batch, actions).
        """
        del episode_start
        explore = 0.0
        if not deterministic and isinstance(self.settings, QuantileSettings):
            explore = self.settings.exploration_final
        return self.policy.predict(observation, action_masks, explore, self._generator), state

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
        return self._driver.backend.aligned

    @property
    def default_episodes(self) -> int:
        """How many episodes `evaluate` plays unless told: fewer where they are slow."""
        return self._driver.backend.default_episodes

    # --- environments -------------------------------------------------------------------------

    @property
    def env(self) -> Any:
        """The environment that the agent learns in."""
        return self._driver.backend.env

    @property
    def jax_env(self) -> AbstractJaxEnv | None:
        """The environment, if it is written in JAX."""
        return self._driver.backend.jax_env

    def get_env(self) -> Any:
        """The environment that the agent learns in."""
        return self.env

    def set_env(self, env: Any) -> None:
        """Another environment to learn in, with the same spaces."""
        if (make_jax(env) is None) != (self.jax_env is None):
            raise ValueError(f"`env` must be of the same kind as {self.env_spec}, got {env!r}.")
        other = type(self)(env, risk=self.risk, **dataclasses.asdict(self.settings))
        self._driver.move_to(other._driver.backend)
        self.env_spec = other.env_spec

    # --- files --------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Writes everything into one file, from which `ds.load` makes the same agent.

        Training can go on from it as if nothing had happened. The file appears whole or not at
        all, and nothing in it can run code.

        Returns:
            The path that was written, with its suffix.
        """
        driver = self._driver
        if driver.state is None or driver.spec is None:
            raise untrained()
        about: dict[str, Any] = {
            "agent": self.full_name(),
            "env": self.env_spec.as_json(),
            "risk": str(self.risk),
            "levels": driver.algorithm.objective.levels.shape[0],
            "settings": dataclasses.asdict(self.settings),
            "preset": self.preset,
            "seed": self.seed,
            "chunks": driver.spec.chunks,
            "fitted": driver.fitted,
            "history": self.history,
            "versions": {
                name: importlib.metadata.version(name) for name in ("downside", "jax", "equinox")
            },
        }
        if self.family is not None:
            targets = {measure: list(target) for measure, target in self.targets.items()}
            about["dial"] = {
                "levels": list(self.family.levels),
                "start": str(self.family.start),
                "targets": targets,
            }
        return checkpoint.write(
            path, checkpoint.to_arrays(driver.backend.to_tree(driver.state)), about
        )

    def export(self, path: str | Path) -> Path:
        """Writes the policy as an ONNX file, which onnxruntime runs without JAX or Downside.

        In: `observation`, `s` and `c` (and `past`, where the agent sees the last steps). Out:
        `action`, and `scores` where actions are discrete. The file is checked against the agent
        on random inputs. Needs `pip install 'downside[onnx]'`.

        Returns:
            The path that was written, with its suffix.
        """
        from downside.train.export import export

        return export(self, path)

    @classmethod
    def load(cls, path: str | Path, env: Any = None, **more: Any) -> "Agent":
        """As `ds.load`, for an agent of this class, which may be one of your own."""
        from downside.train.loading import load

        agent = load(path, env, **more)
        if not isinstance(agent, cls):
            raise ValueError(
                f"{path} holds a {type(agent).__name__}, not a {cls.__name__}. Use ds.load, which "
                "takes any."
            )
        return agent

    def __repr__(self) -> str:
        steps = f"{self.num_timesteps:,} steps" if self.history else "untrained"
        risk = f"'{self.risk}'" if self.family is None else f"'{self.risk}' of {self.family}"
        return f"{type(self).__name__}({self.env_spec}, risk={risk}, {steps})"


def _count(env: Any) -> int | None:
    """How many environments there are, if that is given."""
    if isinstance(env, gym.vector.VectorEnv):
        return env.num_envs
    return 1 if isinstance(env, gym.Env) else None
