"""`explain`: from an agent or a plan to its story."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from downside.decompose import ConditionalRisk
from downside.envs import AbstractJaxEnv, make_jax
from downside.evaluation.bootstrap import whole_number
from downside.exact import FiniteProblem, OptionProblem, Plan, TradingProblem
from downside.explanation import words
from downside.explanation.calibration import calibrate, in_batches
from downside.explanation.moments import AbstractSource, Moment
from downside.explanation.sources import (
    START_EPISODES,
    FiniteSource,
    LearnedSource,
    SimulatedSource,
)
from downside.explanation.story import Episode, Step, Story
from downside.risk import Distribution
from downside.train import Agent
from downside.train.policy import GreedyPolicy

_CHECK_CONTINUATIONS = 100
"""Simulated futures of a moment in the checks: averages over episodes need no more."""
_CHECK_SEED = 1_000_000
"""The checks walk other episodes than the ones that are told."""
_MOST_MOMENTS = 60_000
"""Long episodes: the checks look at fewer of them."""


def explain(
    subject: Agent | Plan,
    env: Any = None,
    *,
    episode_seed: int = 0,
    episodes: int = 1,
    checks: int = 500,
    returns: str | None = None,
    label: str | None = None,
) -> Story:
    """What a policy is optimising at every step of an episode (Theorem 2), and how sure that is.

    Arguments:
        subject: an agent that has learned, or a plan that `solve` made.
        env: for an agent, the environment to walk through, if not the one it was trained on.
        episode_seed: of the first episode that is told; the others follow it. The same seed means
            the same noise for every agent and every plan of an environment written in JAX.
        episodes: how many episodes are told in full.
        checks: how many other episodes the calibration and the spread of the level are measured
            in; 0 for none. Long episodes get fewer.
        returns: where the distributions come from. "learned": an agent's networks; this is what the
            checks are for. "simulated": the policy, run on from every moment, in an environment
            written in JAX. "exact": the plan of a finite problem. By default, what there is.
        label: what to call it; if left out, what it is.
    """
    episodes = whole_number(episodes, "episodes")
    checks = whole_number(checks, "checks", least=0)
    episode_seed = whole_number(episode_seed, "episode_seed", least=0)
    source = make_source(subject, env, returns=returns, label=label)
    told = source.walk(range(episode_seed, episode_seed + episodes))
    quick = source
    if checks and isinstance(source, SimulatedSource):
        quick = source.with_continuations(_CHECK_CONTINUATIONS)
    walked = _enough(quick, checks)
    start = source.start([one[0] for one in [*walked, *told]])
    return Story(
        label=source.label,
        risk=source.risk,
        gamma=source.gamma,
        kind=source.kind,
        start=start,
        episodes=tuple(
            Episode(seed=episode_seed + i, steps=_steps(source, start, moments))
            for i, moments in enumerate(told)
        ),
        calibration=calibrate(quick, walked, start) if walked else None,
        names=source.names,
        note=source.note,
    )


def make_source(
    subject: Any, env: Any = None, *, returns: str | None = None, label: str | None = None
) -> AbstractSource:
    """Where the distributions of an agent or a plan come from."""
    if isinstance(subject, Plan):
        if env is not None:
            raise ValueError(
                "`env` must be left out for a plan, which is made for one environment."
            )
        return _of_plan(subject, returns, f"plan for {subject.risk}" if label is None else label)
    if not isinstance(subject, Agent):
        raise TypeError(
            f"`subject` must be an agent or a plan, got {subject!r}. Train one with ds.QRSRM, or "
            "make one with ds.solve."
        )
    label = f"{subject.name}, {subject.risk}" if label is None else label
    _ = subject.goal  # says so if it has not learned anything
    if returns in (None, "learned"):
        return LearnedSource(subject, env, label)
    _one_of(returns, ("learned", "simulated"), "an agent")
    given = subject.env if env is None else env
    core = given if isinstance(given, AbstractJaxEnv) else make_jax(given)
    if core is None:
        raise ValueError(
            f'`returns` can be "simulated" only in an environment written in JAX, got {given!r}: '
            'others cannot be set back to a moment. Use returns="learned".'
        )
    policy = GreedyPolicy(subject._algorithm, subject.networks, subject.goal, core)
    return SimulatedSource(
        core,
        policy,
        subject.simulate_returns(START_EPISODES, 0),
        risk=subject.risk,
        gamma=subject.settings.gamma,
        label=label,
    )


def _of_plan(plan: Plan, returns: str | None, label: str) -> AbstractSource:
    if isinstance(plan.problem, FiniteProblem):
        _one_of(returns, (None, "exact"), "the plan of a finite problem")
        return FiniteSource(plan, label)
    _one_of(returns, (None, "simulated"), "a plan on a grid")
    assert isinstance(plan.problem, OptionProblem | TradingProblem)
    return SimulatedSource(
        plan.problem.env, plan.policy, plan.returns, risk=plan.risk, gamma=plan.gamma, label=label
    )


def _one_of(returns: str | None, allowed: Sequence[str | None], what: str) -> None:
    if returns not in allowed:
        names = " or ".join(f'"{name}"' for name in allowed if name is not None)
        raise ValueError(f"`returns` must be {names} for {what}, got {returns!r}.")


def _enough(source: AbstractSource, checks: int) -> list[list[Moment]]:
    """So many episodes, or as many as there is room for."""
    walked: list[list[Moment]] = []
    while len(walked) < checks and sum(map(len, walked)) < _MOST_MOMENTS:
        begin = _CHECK_SEED + len(walked)
        walked += source.walk(range(begin, begin + min(64, checks - len(walked))))
    return walked


def _steps(source: AbstractSource, start: Distribution, moments: list[Moment]) -> tuple[Step, ...]:
    seen = in_batches(source, source.risk, start, moments)
    later = source.chosen(moments)
    spread = float(np.sqrt(np.sum(start.probabilities * (start.values - start.mean) ** 2)))
    expected = [
        one.accumulated + one.discount_so_far * float(mean)
        for one, mean in zip(moments, np.asarray(later.mean), strict=True)
    ]
    steps = []
    for i, moment in enumerate(moments):
        own = seen[i]
        actions, alternatives, values = _alternatives(source, moment, own)
        if i == 0:
            said = words.opening(own, expected[0])
        elif moment.action is None:
            said = words.ending(moment.accumulated, own)
        else:
            said = words.development(
                seen[i - 1],
                own,
                step=moments[i - 1].time,
                expected_before=expected[i - 1],
                expected=expected[i],
                spread=spread,
                exact=source.kind == "exact",
            )
        name = source.names.action
        steps.append(
            Step(
                time=moment.time,
                observation=moment.observation,
                seen=source.names.observation(moment.observation),
                action=None if moment.reward is None else moment.action,
                action_name=""
                if moment.reward is None or moment.action is None
                else name(moment.action),
                reward=moment.reward,
                accumulated=moment.accumulated,
                discount_so_far=moment.discount_so_far,
                returns=_one(later, i),
                risk=own,
                actions=tuple(actions),
                action_names=tuple(name(action) for action in actions),
                alternatives=alternatives,
                action_values=values,
                words=said,
            )
        )
    return tuple(steps)


def _alternatives(
    source: AbstractSource, moment: Moment, risk: ConditionalRisk
) -> tuple[list[int], Distribution | None, np.ndarray]:
    """The actions, their returns, and the value of each by the measure that holds here."""
    if moment.action is None or moment.reward is None:
        return [], None, np.zeros(0)
    actions, returns = source.alternatives(moment)
    tails = np.asarray(
        returns.tail_mean(np.broadcast_to(risk.levels, (len(actions), len(risk.levels))))
    )
    return actions, returns, (np.asarray(risk.weights) * tails).sum(axis=-1)


def _one(batch: Distribution, index: int) -> Distribution:
    values, shares = np.asarray(batch.values)[index], np.asarray(batch.probabilities)[index]
    kept = shares > 0
    return Distribution(values[kept], shares[kept], quantile_side=batch.quantile_side)
