"""The agents as a user meets them: `ds.QRSRM(env, risk=...).learn().predict(observation)`."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from rich.console import Console

from downside.agents import (
    AbstractAlgorithm,
    AbstractDialAlgorithm,
)
from downside.agents.networks import make_trunk
from downside.envs import AbstractJaxEnv, make_jax
from downside.envs.env_spec import EnvSpec
from downside.risk import AbstractSpectralRisk, Dial, as_dial, as_risk
from downside.train.acting import AbstractActingAgent
from downside.train.backends.gymnasium.adapting import changed, sentence
from downside.train.backends.gymnasium.backend import GymBackend
from downside.train.backends.gymnasium.base import AbstractGymBackend
from downside.train.backends.jax.backend import AbstractJaxBackend, JaxBackend
from downside.train.checkpoints.saving import save
from downside.train.config import check_timesteps, environment
from downside.train.driver import Backend, Driver
from downside.train.learning import go_on_training
from downside.train.making import make_backend
from downside.train.monitor import as_callbacks


class Agent(AbstractActingAgent):
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
        self.family = as_dial(risk)
        if self.family is None:
            assert not isinstance(risk, Dial)
            self.risk = as_risk(risk)
        elif self.dial_algorithm is not None:
            self.risk, self.algorithm_class = self.family.start, self.dial_algorithm
        else:
            raise ValueError(
                f"`risk` must be one measure for {type(self).__name__}, got {str(risk)!r}. A dial "
                "needs an actor: use ds.PGSRM or, in any Gymnasium environment, ds.ACSRM; or train "
                "an agent for each measure (ds.frontier)."
            )
        self.algorithm_class.check(self.risk)
        self.targets = {}
        self.seed, self.preset = int(seed), preset
        self.tensorboard_log, self.verbose = tensorboard_log, int(verbose)
        self.env_spec = EnvSpec.of(env, env_kwargs)
        jax_env = make_jax(env, **(env_kwargs or {}))
        if self.family is not None and jax_env is not None and self.dial_algorithm is not None:
            self.algorithm_class = self.dial_algorithm.fitting(jax_env)
        given = (env, jax_env, env_kwargs, changes, network)
        self.settings, backend = make_backend(self, *given)
        self._given = given
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
        assert issubclass(self.algorithm_class, AbstractDialAlgorithm)
        return self.algorithm_class.make_family(self.family, self.risk, self.settings)

    def adapt(self, total_timesteps: int | None = None) -> None:
        """Plays the warm-up, and fits the defaults to what it shows: `agent.settings` then has what
        training will use, and `agent.adapted` what has changed.

        `learn` calls it; for agents that simulate, or have learned before, there is nothing to do.
        The settings that were given stay as they are.

        Arguments:
            total_timesteps: the length that the run will have, as for `learn`.
        """
        driver, settings = self._driver, self.settings
        backend = driver.backend
        if not getattr(settings, "adapt", False) or getattr(settings, "cnn", False):
            return
        if self.adapted or driver.state is not None:
            return
        assert isinstance(backend, AbstractGymBackend)
        warm_up = backend.warm_up(settings, jax.random.key(self.seed))
        driver.uncounted += warm_up.steps
        if not (warm_up.is_short or (warm_up.is_long and backend.adapts_to_long_episodes)):
            return
        self.settings, fresh = make_backend(self, *self._given, warm_up, total_timesteps)
        self.adapted = changed(settings, self.settings)
        self._adaptation = sentence(warm_up, self.adapted) if self.adapted else None
        backend.adapter.close()
        self._driver = self._make_driver(fresh)
        self._driver.uncounted = driver.uncounted

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
        go_on_training(self, as_callbacks(callback), log_interval, tb_log_name, progress_bar)
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
        return save(self, path)

    def export(self, path: str | Path) -> Path:
        """Writes the policy as an ONNX file, which onnxruntime runs without JAX or Downside.

        In: `observation`, `s` and `c` (and `past`, where the agent sees the last steps). Out:
        `action`, and `scores` where actions are discrete. The file is checked against the agent
        on random inputs. Needs `pip install 'downside[onnx]'`.

        Returns:
            The path that was written, with its suffix.
        """
        from downside.train.export.exporting import export

        return export(self, path)

    @classmethod
    def load(cls, path: str | Path, env: Any = None, **more: Any) -> "Agent":
        """As `ds.load`, for an agent of this class, which may be one of your own."""
        from downside.train.checkpoints.loading import load

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
