"""The frontier of a dial: one training for each seed, turned to every measure."""

from collections.abc import Sequence
from typing import Any

from downside.evaluation import evaluate
from downside.evaluation.bootstrap import whole_number
from downside.risk import AbstractSpectralRisk, Dial
from downside.runs import evaluation_seed
from downside.studies.engines.in_process import Trained, labelled
from downside.studies.frontiers.curve import Frontier, Optimum, make_frontier
from downside.studies.frontiers.mixtures import mixtures
from downside.studies.frontiers.optima import exact_optima, is_planned
from downside.train import Agent
from downside.train.monitor import Checkpoints


def is_dials(subject: Any) -> bool:
    """Whether it is an agent, or several, instead of an environment."""
    several = isinstance(subject, list | tuple) and bool(subject)
    return all(isinstance(each, Agent) for each in (subject if several else [subject]))


def dial_frontier(
    dials: Agent | Sequence[Agent],
    *,
    start: AbstractSpectralRisk,
    end: AbstractSpectralRisk,
    points: int,
    episodes: int | None,
    exact: bool | None,
    confidence: float,
    progress_bar: bool,
) -> Frontier:
    """The frontier of agents that have learned; arguments as for `frontier`."""
    agents = [dials] if isinstance(dials, Agent) else list(dials)
    first, seeds = agents[0], [agent.seed for agent in agents]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"`env` must be dials with different seeds, got seeds {seeds}.")
    for agent in agents:
        if agent.family is None or str(agent.env_spec) != str(first.env_spec):
            raise ValueError(
                f"`env` must be an environment, or dials (agents with risk='dial') of one "
                f"environment, got {agent!r}."
            )
    between = mixtures(start, end, points)
    risks = [risk for _, risk in between]
    episodes = None if episodes is None else whole_number(episodes, "episodes", least=2)
    planned = is_planned(first, exact)
    trained = turn([_evaluated(agent, episodes) for agent in agents], risks, episodes)
    optima: Sequence[Optimum | None] = [None] * len(risks)
    if planned:
        optima = exact_optima(first, risks, (start, end), None, progress_bar)
    return make_frontier(first, start, end, between, trained, optima, confidence=confidence)


def family_of(risks: Sequence[AbstractSpectralRisk]) -> Dial:
    """A family with all these measures, or an error that names one that no dial has."""
    wide = Dial((1e-6, 1.0))
    levels = [member.level for member in map(wide.member, risks) if member.share < 1.0]
    low, high = Dial().levels
    return Dial((min([low, *levels]), high))


def turn(
    trained: Sequence[Trained], risks: Sequence[AbstractSpectralRisk], episodes: int | None
) -> list[Trained]:
    """The dials at each measure, seed by seed within a measure; in their run folders, the targets
    are kept."""
    turned = []
    for risk in risks:
        for member in trained:
            agent = member.agent.at(risk)
            turned.append(_evaluated(agent, episodes, member))
    for member in trained:
        if member.folder is not None:
            Checkpoints(member.folder).on_end(member.agent)
    return turned


def _evaluated(agent: Agent, episodes: int | None, source: Trained | None = None) -> Trained:
    evaluation = evaluate(agent, episodes=episodes, seed=evaluation_seed(agent.seed))
    folder = None if source is None else source.folder
    return Trained(
        seed=agent.seed, evaluation=labelled(evaluation, agent), folder=folder, source=agent
    )
