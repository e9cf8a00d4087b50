"""Where return distributions come from: an agent's networks, or an exact plan.

The third source, simulation, is in `simulation.py`.
"""

import abc
from collections.abc import Sequence
from typing import Any, final

import gymnasium as gym
import numpy as np
from jaxtyping import Float

from downside.agents import OnPolicySettings, QuantileSettings
from downside.envs import AbstractJaxEnv, GymnasiumEnv, Memory
from downside.envs.gymnasium.rollout import Situation
from downside.exact import AbstractFiniteProblem, Plan
from downside.explanation.names import Names, names_of
from downside.explanation.trajectory import Action, TimeStep, grid_through, record_trajectories
from downside.risk import AbstractSpectralRisk, Distribution
from downside.train import Agent

JAX_COPIES = 64
"""Copies of an environment written in JAX that are played side by side."""
_GYM_COPIES = 16
_MAX_STARTS = 32
_BATCH = 256
_REACH, _WIDEST = 1.0, 1e6
"""How far around the action that is taken others are compared, where a box is wider than this."""
_FRESH_EPISODES = 20_000
_FRESH_SEED = 2_000_000
"""No other episodes use it."""

NOT_STATIC = (
    "This agent applies the risk measure anew at every state; it does not optimise the measure of "
    "the whole episode. The levels show what its decisions would depend on if it did."
)


class AbstractSource(abc.ABC):
    """A policy, its episodes, and the distribution of the return to come at each time step."""

    risk: AbstractSpectralRisk
    """The measure that the policy is meant to optimise."""
    gamma: float
    """The discount factor."""
    label: str
    """What is explained."""
    kind: str
    """Where the distributions come from: "learned", "simulated" or "exact"."""
    resolution: float
    """Error of a level because a distribution is kept in finitely many numbers."""
    names: Names
    """The names of observations and actions."""
    note: str = ""
    """A warning for the reader, if there is one."""

    @abc.abstractmethod
    def trajectories(self, seeds: Sequence[int]) -> list[list[TimeStep]]:
        """One episode for each seed."""

    def checked_trajectories(self, seeds: Sequence[int]) -> list[list[TimeStep]]:
        """As many episodes as there are seeds, for the checks."""
        return self.trajectories(seeds)

    @abc.abstractmethod
    def start_returns(self, first: Sequence[TimeStep]) -> Distribution:
        """The return of an episode, seen from the start; `first` are first steps of episodes."""

    def fresh_returns(self) -> Float[np.ndarray, " n"] | None:
        """The returns of many more episodes, where they are cheap; otherwise None."""
        return None

    def predicted_returns(self, first: Sequence[TimeStep]) -> Distribution | None:
        """What networks say about the return of an episode, where `start_returns` does not ask
        them; None without networks. `first` are first steps of episodes."""
        del first
        return None

    @abc.abstractmethod
    def returns(self, steps: Sequence[TimeStep]) -> Distribution:
        """The return to come at each step if the policy continues: a batch."""

    @abc.abstractmethod
    def returns_by_action(self, step: TimeStep) -> tuple[list[Action], Distribution]:
        """The actions that are allowed at a step, and the return to come after each: a batch.

        Of continuous actions, a grid through the one that is taken.
        """


@final
class LearnedSource(AbstractSource):
    """An agent, with the quantiles of its networks."""

    kind = "learned"

    def __init__(self, agent: Agent, env: Any, label: str):
        assert isinstance(agent.settings, QuantileSettings | OnPolicySettings)
        self.agent, self.label = agent, label
        self._same_env = env is None
        self.risk, self.gamma = agent.risk, agent.settings.gamma
        self.resolution = 0.5 / agent.settings.quantiles
        self._envs = agent_envs(agent, env)
        self._first_action = int(getattr(self._envs[0].action_space, "start", 0))
        self.names = names_of(self._envs[0])
        self.note = "" if agent.algorithm_class.static else NOT_STATIC

    def trajectories(self, seeds: Sequence[int]) -> list[list[TimeStep]]:
        """Episodes of the greedy policy."""
        return record_trajectories(
            self._envs[: len(seeds)],
            seeds,
            self._act,
            lambda _, observation: observation,
            gamma=self.gamma,
            appended=self.agent.policy.appended,
        )

    def _act(self, now: Situation, states: list[Any]) -> Any:
        return self.agent.predict(np.array(states), action_masks=now.masks)[0]

    def start_returns(self, first: Sequence[TimeStep]) -> Distribution:
        """The mixture over start states of the chosen action's quantiles."""
        distinct = {np.asarray(step.state).tobytes(): step for step in first}
        returns = self.returns(list(distinct.values())[:_MAX_STARTS])
        return Distribution.from_quantiles(np.asarray(returns.values).ravel())

    def fresh_returns(self) -> Float[np.ndarray, " n"] | None:
        """In a JAX environment, unless another environment was given."""
        if not self._same_env or self.agent.jax_env is None:
            return None
        return self.agent.simulate_returns(_FRESH_EPISODES, _FRESH_SEED)

    def returns(self, steps: Sequence[TimeStep]) -> Distribution:
        """The quantiles of the actions that are taken."""
        over = np.array([step.action is None for step in steps])
        space = self._envs[0].action_space
        nothing: Any = np.zeros(space.shape or ()) + self._first_action
        actions = np.array([nothing if step.action is None else step.action for step in steps])
        observations = np.array([step.state for step in steps], dtype=np.float32)
        return Distribution.from_quantiles(
            np.where(over[:, None], 0.0, self._quantiles(observations, actions))
        )

    def _quantiles(
        self, observations: Float[np.ndarray, "n d"], actions: np.ndarray
    ) -> Float[np.ndarray, "n N"]:
        """The quantiles after an action at each observation."""
        parts = []
        for begin in range(0, len(observations), _BATCH):
            part, taken = observations[begin : begin + _BATCH], actions[begin : begin + _BATCH]
            # Rows are repeated to fill the batch, so that only one shape is compiled.
            count = _BATCH if len(observations) > 1 else 1
            full = (np.resize(rows, (count, *rows.shape[1:])) for rows in (part, taken))
            parts.append(self.agent.policy.quantiles_of(*full)[: len(part)])
        return np.concatenate(parts)

    def returns_by_action(self, step: TimeStep) -> tuple[list[Action], Distribution]:
        """The quantiles of every action; of others than Discrete ones, of a grid."""
        observation = np.asarray(step.state, dtype=np.float32)
        if isinstance(step.action, tuple):
            grid = _grid(self._envs[0].action_space, step)
            rows = np.resize(observation, (len(grid), observation.size))
            return list[Action](grid), Distribution.from_quantiles(
                self._quantiles(rows, np.array(grid))
            )
        quantiles = self.agent.return_distribution(observation[None])[0]
        legal = np.ones(len(quantiles), bool) if step.legal is None else step.legal
        allowed = np.flatnonzero(legal)
        actions: list[Action] = [int(action) + self._first_action for action in allowed]
        return actions, Distribution.from_quantiles(quantiles[allowed])


def _grid(space: gym.Space, step: TimeStep) -> list[tuple[float, ...]]:
    """Actions beside the one that is taken: one part of it is changed at a time."""
    assert isinstance(step.action, tuple)
    if isinstance(space, gym.spaces.Box):
        with np.errstate(over="ignore"):
            low, high = space.low.ravel().astype(float), space.high.ravel().astype(float)
            bounded, taken = high - low < _WIDEST, np.array(step.action)
            low = np.where(bounded, low, np.maximum(low, taken - _REACH))
            high = np.where(bounded, high, np.minimum(high, taken + _REACH))
        return grid_through(step.action, low, high)
    assert isinstance(space, gym.spaces.MultiDiscrete)
    legal = np.ones(int(space.nvec.sum()), bool) if step.legal is None else step.legal
    grid = [step.action]
    for i, mask in enumerate(np.split(legal, np.cumsum(space.nvec)[:-1])):
        for number in (np.flatnonzero(mask) + space.start[i]).tolist():
            if number != step.action[i]:
                grid.append((*step.action[:i], float(number), *step.action[i + 1 :]))
    return grid


def learned_start(agent: Agent, first: Sequence[TimeStep]) -> Distribution:
    """The return that the networks expect at the start, in an environment written in JAX: the
    mixture over start states of the chosen action's quantiles."""
    memory = agent.policy.memory_input.show(Memory(np.float32(0.0), np.float32(1.0)))
    distinct = {
        step.observation.tobytes(): ([*step.observation, *memory], step.action) for step in first
    }
    rows, actions = zip(*list(distinct.values())[:_MAX_STARTS], strict=True)
    quantiles = agent.return_distribution(np.array(rows, dtype=np.float32))
    chosen = quantiles[np.arange(len(rows)), np.array(actions)]
    return Distribution.from_quantiles(chosen.ravel())


def agent_envs(agent: Agent, env: Any) -> list[gym.Env]:
    """Copies of the environment, wrapped for the agent; just one if it cannot be copied."""
    if env is None:
        env = agent.jax_env
    if env is None:
        return [agent.wrap() for _ in range(_GYM_COPIES)]
    if isinstance(env, AbstractJaxEnv):
        return [agent.wrap(GymnasiumEnv(core=env)) for _ in range(JAX_COPIES)]
    if isinstance(env, gym.vector.VectorEnv):
        raise ValueError(
            f"`env` must be a single environment, got the vector environment {env!r}. Pass one of "
            "its environments."
        )
    source = env if isinstance(env, str) else getattr(env, "spec", None)
    if source is None:
        return [agent.wrap(env)]
    return [agent.wrap(gym.make(source)) for _ in range(_GYM_COPIES)]


@final
class FiniteSource(AbstractSource):
    """The plan of a finite problem: all distributions are exact."""

    kind = "exact"

    def __init__(self, plan: Plan, label: str):
        assert isinstance(plan.problem, AbstractFiniteProblem)
        self._plan, self._problem, self.label = plan, plan.problem, label
        self.risk, self.gamma, self.resolution = plan.risk, plan.gamma, 0.0
        self.names = Names(
            observation=lambda values: {"state": float(values[0])}, action="action {}".format
        )
        if not self._problem.exact:
            self.note = (
                "The problem was cut or discretised to be solved: a return can be off by "
                f"{self._problem.return_error:.2g}."
            )
        self._known: dict[tuple[int, int, int], dict[int, Distribution]] = {}

    def trajectories(self, seeds: Sequence[int]) -> list[list[TimeStep]]:
        """Episodes drawn from the tables."""
        return [self._episode(np.random.default_rng(seed)) for seed in seeds]

    def _episode(self, rng: np.random.Generator) -> list[TimeStep]:
        mdp, steps = self._problem.mdp, []
        state, accumulated = int(rng.choice(mdp.num_states, p=mdp.start)), 0.0
        over = bool(mdp.terminal[state])
        for time in range(self._problem.horizon + 1):
            over |= time == self._problem.horizon
            action = None if over else int(self._plan.policy(time, state, accumulated))
            step = TimeStep(
                time=time,
                observation=np.array([float(state)]),
                accumulated=accumulated,
                discount_so_far=mdp.gamma**time,
                action=action,
                reward=None,
                legal=mdp.action_mask[state],
                state=state,
            )
            if action is None:
                return [*steps, step]
            chances = mdp.probabilities[state, action]
            outcome = int(rng.choice(chances.size, p=chances / chances.sum()))
            reward = float(mdp.rewards[state, action, outcome])
            steps.append(step._replace(reward=reward))
            over = bool(mdp.ends[state, action, outcome])
            accumulated += mdp.gamma**time * reward
            state = int(mdp.next_states[state, action, outcome])
        raise AssertionError("an episode ends at the horizon")

    def start_returns(self, first: Sequence[TimeStep]) -> Distribution:
        """The return of the plan."""
        del first
        return self._problem.returns(self._plan.policy)

    def returns(self, steps: Sequence[TimeStep]) -> Distribution:
        """Of the actions that the plan takes."""
        nothing = Distribution(np.zeros(1))
        return stacked(
            [
                self._after(step)[step.action] if isinstance(step.action, int) else nothing
                for step in steps
            ]
        )

    def returns_by_action(self, step: TimeStep) -> tuple[list[Action], Distribution]:
        """Of every action that is allowed, followed by the plan."""
        after = self._after(step)
        return list(after), stacked(list(after.values()))

    def _after(self, step: TimeStep) -> dict[int, Distribution]:
        key = self._problem.node(step.time, step.state, step.accumulated)
        if key not in self._known:
            self._known[key] = self._problem.returns_after(
                self._plan.policy, step.time, step.state, step.accumulated
            )
        return self._known[key]


def stacked(parts: Sequence[Distribution]) -> Distribution:
    """Distributions of any sizes as one batch, padded with probability 0."""
    size = max(part.values.shape[-1] for part in parts)
    values = np.array([_padded(part.values, size, "edge") for part in parts])
    shares = np.array([_padded(part.probabilities, size, "constant") for part in parts])
    return Distribution(values, shares, quantile_side=parts[0].quantile_side)


def _padded(row: Any, size: int, mode: Any) -> Float[np.ndarray, " n"]:
    row = np.asarray(row, dtype=float)
    return np.pad(row, (0, size - row.size), mode=mode)
