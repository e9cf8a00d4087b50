"""Turning the dial: the agent for another measure of its family."""

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from downside.agents.algorithm import AbstractDialAlgorithm
from downside.agents.learner import AbstractLearner
from downside.risk import AbstractSpectralRisk, as_risk
from downside.train.driver import Backend
from downside.train.state import BestPolicy

if TYPE_CHECKING:
    from downside.train.agent import Agent

_SEED = 3_000_000
"""Of the episodes of the search: the same for every measure and target, so that differences are
precise. No other episodes use it."""
_ROUNDS = ((2.0, 9, 0.2), (0.5, 9, 0.5), (0.1, 5, 1.0))
"""Each looks around the best target so far: how far, in standard deviations of the returns; at how
many targets; and in what share of the episodes."""
_EPISODES = 0.5
"""Of the last round, as a share of those of an evaluation."""


class FoundTarget(NamedTuple):
    """Where a dial stands for a measure."""

    target: float
    """b."""
    value: float
    """The measure's value there, in the episodes of the search: a little too high, because the
    target is the best one for them."""


def stand(agent: "Agent", risk: AbstractSpectralRisk) -> None:
    """Lets an agent that was read from a file stand at a measure, whose target it has."""
    assert agent.family is not None
    algorithm: Any = agent._driver.algorithm
    agent.risk, agent._driver.algorithm = risk, algorithm.at(agent.family.member(risk).risk)


def turned(agent: "Agent", risk: AbstractSpectralRisk | str) -> "Agent":
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
    found = agent.targets.get(str(risk))
    if found is None:
        learner = driver.planned().learner(algorithm)
        found = agent.targets[str(risk)] = find_target(learner, best, driver.backend, risk)
    policy = BestPolicy(
        best.networks,
        algorithm.standing(best.outer, found.target),
        jnp.asarray(found.value, best.value.dtype),
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
    found = FoundTarget(centre, -np.inf)
    for width, count, share in _ROUNDS:
        episodes = max(2, round(share * _EPISODES * backend.default_episodes))
        values: dict[float, float] = {}
        for target in found.target + width * spread * np.linspace(-1.0, 1.0, count):
            outer = algorithm.standing(best.outer, float(target))
            policy = BestPolicy(best.networks, outer, best.value)
            returns = backend.simulate_returns(learner, policy, episodes, _SEED)
            values[float(target)] = float(np.asarray(risk(returns)))
        target = max(values, key=values.__getitem__)
        found = FoundTarget(target, values[target])
    return found
