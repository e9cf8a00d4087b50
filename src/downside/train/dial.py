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
from downside.train.driver import Backend

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
"""Of a target, as a share of those of an evaluation."""
_FEW = 0.2
"""Where the search begins with many targets, over the whole range: a share of these episodes, of
each target before the last round."""


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
            f"{agent.risk}. Train ds.PGSRM(env, risk='dial')."
        )
    risk = as_risk(risk)
    member = agent.family.member(risk)
    best, driver = agent._best, copy.copy(agent._driver)
    assert isinstance(driver.algorithm, AbstractDialAlgorithm)
    driver.algorithm = algorithm = driver.algorithm.at(member.risk)
    chosen = agent.targets.get(str(risk))
    if chosen is None:
        learner = driver.planned().learner(algorithm)
        chosen = agent.targets[str(risk)] = find_target(learner, best, driver.backend, risk)
    policy = BestPolicy(
        best.networks,
        algorithm.standing(best.outer, chosen.target),
        jnp.asarray(chosen.value, best.value.dtype),
    )
    driver.state = eqx.tree_at(lambda state: state.best, driver.state, policy)
    driver.history = list(driver.history)
    turned = copy.copy(agent)
    turned.risk, turned._driver = risk, driver
    return turned


def find_target(
    learner: AbstractLearner, best: BestPolicy, backend: Backend, risk: AbstractSpectralRisk
) -> FoundTarget:
    """The target with the highest value of the measure, in common random numbers."""
    algorithm: Any = learner.algorithm
    centre, spread = algorithm.bracket(best.outer)
    episodes = max(2, round(_EPISODES * backend.default_episodes))

    def value(target: float, count: int) -> float:
        policy = BestPolicy(best.networks, algorithm.standing(best.outer, target), best.value)
        returns = backend.simulate_returns(learner, policy, count, _SEED)
        return float(np.asarray(risk(returns)))

    first, few = algorithm.first_targets(best.outer), max(2, round(_FEW * episodes))
    if first:
        centre = max([centre, *first], key=lambda target: value(target, few))
    highest = FoundTarget(centre, -np.inf)
    for step in _STEPS:
        count = few if first and step != _STEPS[-1] else episodes
        centre, width = highest.target, step * spread
        values: dict[int, float] = {}
        low, high = -_REACH, _REACH
        while len(values) < _MOST_TARGETS:
            for place in range(low, high + 1):
                if place not in values:
                    values[place] = value(centre + place * width, count)
            best_value = max(values.values())
            top = min((p for p in values if values[p] == best_value), key=abs)
            highest = FoundTarget(centre + top * width, best_value)
            if low < top < high:
                break
            low, high = min(low, top - 1), max(high, top + 1)
    return highest
