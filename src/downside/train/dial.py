"""Turning the dial: the agent for another measure of its family."""

import copy
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from downside.agents.algorithm import AbstractDialAlgorithm
from downside.agents.learner import AbstractLearner
from downside.risk import AbstractSpectralRisk, as_risk
from downside.train.backends.state import BestPolicy
from downside.train.driver import Backend, Driver

if TYPE_CHECKING:
    from downside.train.acting import AbstractActingAgent

Acting = TypeVar("Acting", bound="AbstractActingAgent")

_SEED = 3_000_000
"""Of the episodes of the search: the same for every measure and target, so that differences are
precise. No other episodes use it."""
_STEPS = (0.4, 0.1)
"""Distance of neighbouring targets in each round of the search, in standard deviations of the
returns."""
_REACH = 2
"""Each round begins with so many targets on both sides of the best one so far. It goes on where the
last one is the best."""
_MOST_TARGETS = 12
"""Of a round."""
_EPISODES = 0.5
"""Of a target, as a share of those of an evaluation, where episodes are simulated."""
_FEW = 0.2
"""Where the search begins with many targets, over the whole range: a share of these episodes, of
each target before the last round."""
_LIVED_STEPS = 20_000
"""Steps of a target, where episodes are played in a Gymnasium environment."""
_LIVED_EPISODES = (50, 2_000)
"""At least and at most."""
_ENOUGH = 1_000
"""With fewer episodes there is one round, since closer targets could not be told apart."""
_CLEARLY = 2.0
"""Standard errors by which another target must be better than that of the table, where episodes are
so few that it matters."""


class FoundTarget(NamedTuple):
    """Where a dial stands for a measure."""

    target: float
    """b."""
    value: float
    """The measure's value there, in the episodes of the search: a little too high, because the
    target is the best one for them."""


def stand(agent: "AbstractActingAgent", risk: AbstractSpectralRisk) -> None:
    """Lets an agent that was read from a file stand at a measure, whose target it has."""
    assert agent.family is not None
    algorithm: Any = agent._driver.algorithm
    agent.risk, agent._driver.algorithm = risk, algorithm.at(agent.family.member(risk).risk)


def turned(agent: Acting, risk: AbstractSpectralRisk | str) -> Acting:
    """The agent for a measure of its family; see `Agent.at`.

    It shares the networks, and the targets that were found so far.
    """
    if agent.family is None:
        raise TypeError(
            f"`at` needs an agent that was trained for a dial, and this one was trained for "
            f"{agent.risk}. Train ds.PGSRM(env, risk='dial'), or ds.ACSRM(env, risk='dial')."
        )
    risk = as_risk(risk)
    member = agent.family.member(risk)
    best, driver = agent._best, copy.copy(agent._driver)
    assert isinstance(driver.algorithm, AbstractDialAlgorithm)
    driver.algorithm = algorithm = driver.algorithm.at(member.risk)
    chosen, searched = agent.targets.get(str(risk)), 0
    if chosen is None:
        learner = driver.planned().learner(algorithm)
        before = driver.backend.evaluated_steps
        chosen = agent.targets[str(risk)] = find_target(
            learner, best, driver.backend, risk, _episodes(driver)
        )
        searched = driver.backend.evaluated_steps - before
    policy = BestPolicy(
        best.networks,
        algorithm.standing(best.outer, chosen.target),
        jnp.asarray(chosen.value, best.value.dtype),
    )
    driver.state = eqx.tree_at(lambda state: state.best, driver.state, policy)
    *earlier, last = driver.history
    steps = last["simulated_steps"] + searched
    driver.history = [*earlier, {**last, "simulated_steps": steps}]
    turned = copy.copy(agent)
    turned.risk, turned._driver = risk, driver
    return turned


def _episodes(driver: Driver) -> int:
    """In how many episodes a target is tried."""
    backend = driver.backend
    if backend.jax_env is not None:
        return max(2, round(_EPISODES * backend.default_episodes))
    least, most = _LIVED_EPISODES
    length = max(1.0, driver.history[-1]["episode_length"])
    return min(max(least, round(_LIVED_STEPS / length)), most)


def find_target(
    learner: AbstractLearner,
    best: BestPolicy,
    backend: Backend,
    risk: AbstractSpectralRisk,
    episodes: int,
) -> FoundTarget:
    """The target with the highest value of the measure, in common random numbers; in lived episodes
    that of the table, unless another is clearly better."""
    algorithm: Any = learner.algorithm
    centre, spread = algorithm.bracket(best.outer)
    lived = backend.jax_env is None

    def returns_at(target: float, count: int) -> np.ndarray:
        policy = BestPolicy(best.networks, algorithm.standing(best.outer, target), best.value)
        return backend.simulate_returns(learner, policy, count, _SEED)

    def value_of(returns: np.ndarray) -> float:
        return float(np.asarray(risk(returns)))

    first, few = algorithm.first_targets(best.outer), max(2, round(_FEW * episodes))
    if first:
        centre = max([centre, *first], key=lambda target: value_of(returns_at(target, few)))
    highest, at_table = FoundTarget(centre, -np.inf), None
    for step in _STEPS[: 1 if lived and episodes < _ENOUGH else None]:
        count = few if first and step != _STEPS[-1] else episodes
        centre, width = highest.target, step * spread
        tried: dict[int, np.ndarray] = {}
        low, high = -_REACH, _REACH
        while len(tried) < _MOST_TARGETS:
            for place in range(low, high + 1):
                if place not in tried:
                    tried[place] = returns_at(centre + place * width, count)
            values = {place: value_of(tried[place]) for place in tried}
            best_value = max(values.values())
            top = min((p for p in values if values[p] == best_value), key=abs)
            at_table = tried[0] if at_table is None else at_table
            if lived and not _is_clear(algorithm, tried[top], at_table):
                return FoundTarget(algorithm.bracket(best.outer)[0], value_of(at_table))
            highest = FoundTarget(centre + top * width, best_value)
            if low < top < high:
                break
            low, high = min(low, top - 1), max(high, top + 1)
    return highest


def _is_clear(algorithm: Any, returns: np.ndarray, others: np.ndarray) -> bool:
    """Whether some returns are better by the present measure, and not by chance. Episodes of one
    number begin alike, so that chance is that of their differences."""
    utilities = []
    for sample in (returns, others):
        knots = algorithm.objective.quantiles(jnp.sort(jnp.asarray(sample, float)))
        utilities.append(np.asarray(algorithm.objective.utility(knots)(sample)))
    gain = utilities[0] - utilities[1]
    return bool(gain.mean() > _CLEARLY * gain.std() / np.sqrt(len(gain)))
