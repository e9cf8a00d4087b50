"""Where the return distributions are known from: networks, an exact plan, or simulation."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, final

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents import ICVaR
from downside.envs import AbstractJaxEnv, GymnasiumFace
from downside.exact import FiniteProblem, Plan
from downside.explanation.moments import (
    LANES,
    AbstractSource,
    Moment,
    Situation,
    stacked,
    walk,
)
from downside.explanation.names import Names, names_of
from downside.risk import Distribution
from downside.train import Agent

CONTINUATIONS = 2_000
"""Simulated futures of a moment that is told."""
START_EPISODES = 50_000
"""Simulated episodes that the return seen from the start is known from."""
_START_VALUES = 2_000
_START_LEVELS = 200  # a continuous spectrum has a level for each value
_MOST_STARTS = 32
_BATCH = 256
_HOSTED_LANES = 16
_FRESH_EPISODES = 20_000
_FRESH_SEED = 2_000_000  # no one else's

NOT_STATIC = (
    "This agent applies the measure afresh at every state; it does not optimise the measure of the "
    "whole episode. The levels say what its decisions would have to be about if it did."
)


@final
class LearnedSource(AbstractSource):
    """An agent, and what its networks say."""

    kind = "learned"

    def __init__(self, agent: Agent, env: Any, label: str):
        self.agent, self.label, self._own = agent, label, env is None
        self.risk, self.gamma = agent.risk, agent.settings.gamma
        self.resolution = 0.5 / agent.settings.quantiles
        self._lanes = agent_lanes(agent, env)
        self._first = int(getattr(self._lanes[0].action_space, "start", 0))
        self.names = names_of(self._lanes[0])
        self.note = NOT_STATIC if isinstance(agent._algorithm, ICVaR) else ""

    def walk(self, seeds: Sequence[int]) -> list[list[Moment]]:
        """Episodes of the greedy policy."""
        lanes = self._lanes[: len(seeds)]
        return walk(
            lanes,
            self._act,
            lambda _, seen: seen,
            seeds,
            gamma=self.gamma,
            memory=self.agent.policy.appended,
        )

    def _act(self, situation: Situation) -> Int[np.ndarray, " L"]:
        actions, _ = self.agent.predict(situation.observations, action_masks=situation.legal)
        return np.asarray(actions)

    def start(self, first: Sequence[Moment]) -> Distribution:
        """The mixture over start states of the chosen action's quantiles."""
        distinct = {np.asarray(one.handle).tobytes(): one for one in first}
        chosen = self.chosen(list(distinct.values())[:_MOST_STARTS])
        return Distribution.from_quantiles(np.asarray(chosen.values).ravel())

    def fresh_returns(self) -> Float[np.ndarray, " n"] | None:
        """In an environment written in JAX, of the kind that the agent was trained on."""
        if not self._own or not isinstance(self.agent.env, AbstractJaxEnv):
            return None
        return self.agent.simulate_returns(_FRESH_EPISODES, _FRESH_SEED)

    def chosen(self, moments: Sequence[Moment]) -> Distribution:
        """The quantiles of the actions that are taken."""
        actions = np.array(
            [-1 if one.action is None else one.action - self._first for one in moments]
        )
        seen = np.array([one.handle for one in moments], dtype=np.float32)
        out = []
        for begin in range(0, len(seen), _BATCH):
            part = seen[begin : begin + _BATCH]
            # Rows are repeated up to a full batch: what is compiled is used again.
            full = np.resize(part, (_BATCH if len(seen) > 1 else 1, *part.shape[1:]))
            quantiles = self.agent.return_distribution(full)[: len(part)]
            taken = actions[begin : begin + _BATCH]
            own = quantiles[np.arange(len(part)), np.maximum(taken, 0)]
            out.append(np.where(taken[:, None] < 0, 0.0, own))
        return Distribution.from_quantiles(np.concatenate(out))

    def alternatives(self, moment: Moment) -> tuple[list[int], Distribution]:
        """The quantiles of every action."""
        seen = np.asarray(moment.handle, dtype=np.float32)
        quantiles = self.agent.return_distribution(seen[None])[0]
        allowed = (
            np.arange(len(quantiles)) if moment.legal is None else np.flatnonzero(moment.legal)
        )
        names = [int(a) + self._first for a in allowed]
        return names, Distribution.from_quantiles(quantiles[allowed])


@final
class FiniteSource(AbstractSource):
    """The plan of a finite problem: everything is known exactly."""

    kind = "exact"

    def __init__(self, plan: Plan, label: str):
        assert isinstance(plan.problem, FiniteProblem)
        self._plan, self._problem, self.label = plan, plan.problem, label
        self.risk, self.gamma, self.resolution = plan.risk, plan.gamma, 0.0
        self.names = Names(
            observation=lambda seen: {"state": float(seen[0])}, action="action {}".format
        )
        if not self._problem.exact:
            self.note = (
                "The problem was cut or put into cells to be solved: a return can be off by "
                f"{self._problem.return_error:.2g}."
            )
        self._known: dict[tuple[int, int, int], dict[int, Distribution]] = {}

    def walk(self, seeds: Sequence[int]) -> list[list[Moment]]:
        """Episodes drawn from the tables."""
        return [self._episode(np.random.default_rng(seed)) for seed in seeds]

    def _episode(self, rng: np.random.Generator) -> list[Moment]:
        mdp, out = self._problem.mdp, []
        state, earned = int(rng.choice(mdp.num_states, p=mdp.start)), 0.0
        over = bool(mdp.terminal[state])
        for time in range(self._problem.horizon + 1):
            over |= time == self._problem.horizon
            action = None if over else int(self._plan.policy(time, state, earned))
            now = Moment(
                time=time,
                observation=np.array([float(state)]),
                accumulated=earned,
                discount_so_far=mdp.gamma**time,
                action=action,
                reward=None,
                legal=mdp.action_mask[state],
                handle=state,
            )
            if action is None:
                return [*out, now]
            chances = mdp.probabilities[state, action]
            outcome = int(rng.choice(chances.size, p=chances / chances.sum()))
            reward = float(mdp.rewards[state, action, outcome])
            out.append(now._replace(reward=reward))
            over = bool(mdp.ends[state, action, outcome])
            earned += mdp.gamma**time * reward
            state = int(mdp.next_states[state, action, outcome])
        raise AssertionError("an episode ends at the horizon")

    def start(self, first: Sequence[Moment]) -> Distribution:
        """The return of the plan."""
        del first
        return self._problem.returns(self._plan.policy)

    def chosen(self, moments: Sequence[Moment]) -> Distribution:
        """Of the actions that the plan takes."""
        ended = Distribution(np.zeros(1))
        return stacked(
            [ended if one.action is None else self._after(one)[one.action] for one in moments]
        )

    def alternatives(self, moment: Moment) -> tuple[list[int], Distribution]:
        """Of every action that is allowed, followed by the plan."""
        found = self._after(moment)
        return list(found), stacked(list(found.values()))

    def _after(self, moment: Moment) -> dict[int, Distribution]:
        level = self._problem.nodes.levels[moment.time]
        key = (moment.time, moment.handle, level.nearest(moment.handle, moment.accumulated) or 0)
        if key not in self._known:
            self._known[key] = self._problem.returns_after(
                self._plan.policy, moment.time, moment.handle, moment.accumulated
            )
        return self._known[key]


AugmentedPolicy = Callable[[Any, Float[Array, ""], Float[Array, ""]], Int[Array, ""]]


@final
class SimulatedSource(AbstractSource):
    """A policy on an environment in JAX, run on from every moment many times.

    For plans on a grid, and for what an agent really can expect, whatever its networks say.
    """

    kind = "simulated"

    def __init__(
        self,
        env: AbstractJaxEnv,
        policy: AugmentedPolicy,
        returns: Float[np.ndarray, " n"],
        *,
        risk: Any,
        gamma: float,
        label: str,
        continuations: int = CONTINUATIONS,
    ):
        self._core, self._policy, self.label = env, policy, label
        self.risk, self.gamma = risk, gamma
        self.names = names_of(env)
        self._lanes = [GymnasiumFace(core=env) for _ in range(LANES)]
        self._returns = np.sort(np.asarray(returns, dtype=float))
        self.resolution = 1.0 / math.sqrt(len(self._returns))  # two standard errors of a level
        self._continuations, self._key = continuations, stream(jax.random.key(0), "futures")
        self._horizon = env.horizon or (
            1000 if gamma == 1.0 else min(1000, math.ceil(math.log(1e-3) / math.log(gamma)))
        )

    def with_continuations(self, count: int) -> "SimulatedSource":
        """The same with another number of futures."""
        twin = copy.copy(self)
        twin._continuations = count
        return twin

    def walk(self, seeds: Sequence[int]) -> list[list[Moment]]:
        """Episodes of the policy."""
        return walk(
            self._lanes[: len(seeds)],
            self._act,
            lambda env, _: jax.device_get(env.unwrapped.state),  # pyright: ignore
            seeds,
            gamma=self.gamma,
            memory=0,
        )

    def _act(self, situation: Situation) -> Int[np.ndarray, " L"]:
        states = jax.tree.map(lambda *leaves: np.stack(leaves), *situation.handles)
        given = (situation.accumulated, situation.discount_so_far)
        return np.asarray(_decide(self._policy, states, *(jnp.asarray(x, float) for x in given)))

    def start(self, first: Sequence[Moment]) -> Distribution:
        """Of many episodes; kept in equally likely values where there are very many."""
        del first
        most = _START_VALUES if self.risk.is_finite_mixture else _START_LEVELS
        if len(self._returns) <= most:
            return Distribution(self._returns)
        ranks = (np.arange(most) + 0.5) / most
        return Distribution(np.quantile(self._returns, ranks, method="inverted_cdf"))

    def chosen(self, moments: Sequence[Moment]) -> Distribution:
        """Each moment under noise of its own, so that their errors average out."""
        found = self._ahead(moments, [one.action or 0 for one in moments], own_noise=True)
        over = np.array([one.action is None for one in moments])
        return Distribution(np.where(over[:, None], 0.0, found))

    def alternatives(self, moment: Moment) -> tuple[list[int], Distribution]:
        """Every action that is allowed, under the same noise."""
        count = self._core.num_actions
        legal = np.ones(count, bool) if moment.legal is None else moment.legal
        actions = [int(a) for a in np.flatnonzero(legal)]
        found = self._ahead([moment] * len(actions), actions, own_noise=False)
        return actions, Distribution(found)

    def _ahead(
        self, moments: Sequence[Moment], actions: Sequence[int], *, own_noise: bool
    ) -> Float[np.ndarray, "m n"]:
        batch, out = 64, []
        for begin in range(0, len(moments), batch):
            part = list(moments[begin : begin + batch])
            fill = batch - len(part)
            first = np.asarray([*actions[begin : begin + batch], *[0] * fill], np.int32)
            part += [part[-1]] * fill
            states = jax.tree.map(lambda *leaves: np.stack(leaves), *(one.handle for one in part))
            numbers = np.arange(begin, begin + batch) if own_noise else np.zeros(batch, int)
            keys = jax.vmap(jax.random.fold_in, (None, 0))(self._key, numbers)
            returns = _futures(
                self._core,
                self._policy,
                self.gamma,
                self._horizon,
                self._continuations,
                states,
                jnp.asarray([one.accumulated for one in part], float),
                jnp.asarray([one.discount_so_far for one in part], float),
                jnp.asarray(first),
                keys,
            )
            out.append(np.asarray(returns, dtype=float)[: batch - fill])
        return np.concatenate(out)


def agent_lanes(agent: Agent, env: Any) -> list[gym.Env]:
    """Copies of the environment as the agent wants to see it: one, where it cannot be copied."""
    if env is None and isinstance(agent.env, AbstractJaxEnv):
        env = agent.env
    if env is None:
        return [agent.wrap() for _ in range(_HOSTED_LANES)]
    if isinstance(env, AbstractJaxEnv):
        return [agent.wrap(GymnasiumFace(core=env)) for _ in range(LANES)]
    if isinstance(env, gym.vector.VectorEnv):
        raise ValueError(
            f"`env` must be a single environment, got the vector {env!r}. Pass one of its kind."
        )
    if isinstance(env, str):
        return [agent.wrap(gym.make(env)) for _ in range(_HOSTED_LANES)]
    spec = getattr(env, "spec", None)
    if spec is None:
        return [agent.wrap(env)]
    return [agent.wrap(gym.make(spec)) for _ in range(_HOSTED_LANES)]


@eqx.filter_jit
def _decide(
    policy: Any, states: Any, accumulated: Float[Array, " L"], discount: Float[Array, " L"]
) -> Int[Array, " L"]:
    return jax.vmap(policy)(states, accumulated, discount)


@eqx.filter_jit
def _futures(
    env: AbstractJaxEnv,
    policy: Any,
    gamma: float,
    horizon: int,
    count: int,
    states: Any,
    accumulated: Float[Array, " m"],
    discounts: Float[Array, " m"],
    actions: Int[Array, " m"],
    keys: Key[Array, " m"],
) -> Float[Array, "m n"]:
    """The returns to come, discounted to each moment, of taking its action and going on."""

    def one(
        state: Any, so_far: Array, discount: Array, first: Array, key: Key[Array, ""]
    ) -> Float[Array, ""]:
        def step(carry: tuple, inputs: tuple) -> tuple:
            state, to_come, weight, alive = carry
            time, key = inputs
            later = policy(state, so_far + discount * to_come, discount * weight)
            action = jnp.where(time == 0, first, later)
            after = env.transition(state, action, env.sample_noise(key))
            to_come = to_come + jnp.where(alive, weight * after.reward, 0.0)
            alive: Bool[Array, ""] = alive & ~after.terminated & ~after.truncated
            return (after.state, to_come, gamma * weight, alive), None

        begin = (state, jnp.zeros(()), jnp.ones(()), jnp.ones((), bool))
        inputs = (jnp.arange(horizon), jax.random.split(key, horizon))
        return jax.lax.scan(step, begin, inputs)[0][1]

    def moment(state: Any, so_far: Array, discount: Array, action: Array, key: Any) -> Array:
        own = jax.random.split(key, count)
        return jax.vmap(lambda key: one(state, so_far, discount, action, key))(own)

    return jax.vmap(moment)(states, accumulated, discounts, actions, keys)
