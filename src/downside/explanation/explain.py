"""`explain`: from an agent or a plan to its explanation."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from downside.agents import OnPolicySettings, QuantileSettings
from downside.decompose import ConditionalRisk
from downside.envs import AbstractJaxEnv, make_jax
from downside.envs.faults import named_faults
from downside.evaluation.bootstrap import whole_number
from downside.exact import AbstractFiniteProblem, OptionProblem, Plan, TradingProblem
from downside.explanation import narrative
from downside.explanation.calibration import Calibration, calibrate, conditional_risks
from downside.explanation.choices import compare_choices, utility_at
from downside.explanation.results import Episode, ExplainedStep, Explanation
from downside.explanation.simulation import (
    CONTINUATIONS_AT_A_TIME,
    START_EPISODES,
    SimulatedSource,
    simulated_returns,
)
from downside.explanation.sources import (
    NOT_STATIC,
    AbstractSource,
    FiniteSource,
    LearnedSource,
    learned_start,
)
from downside.explanation.trajectory import Action, TimeStep
from downside.risk import AbstractSpectralRisk, Distribution
from downside.train import Agent
from downside.train.backends.jax.backend import GreedyPolicy

_CHECK_CONTINUATIONS = CONTINUATIONS_AT_A_TIME
"""Continuations of a time step in the checks: averages over episodes need no more."""
_CHOICE_CONTINUATIONS = 200
"""Continuations of an alternative in the check of the choices: half to choose, half to value."""
_CHECK_SEED = 1_000_000
"""The checks use other episodes than the ones that are explained."""
_CHECKED_AT_A_TIME = 64
_MAX_CHECKED_STEPS = 60_000
"""Where episodes are long, fewer of them are checked."""


@named_faults()
def explain(
    subject: Agent | Plan,
    env: Any = None,
    *,
    episode_seed: int = 0,
    episodes: int = 1,
    checks: int = 500,
    returns: str | None = None,
    label: str | None = None,
    changes: Mapping[int, AbstractSpectralRisk | str] | None = None,
) -> Explanation:
    """Explains what a policy optimises at every step of an episode (Theorem 2), with checks.

    Arguments:
        subject: an agent that has learned, or a plan made by `solve`.
        env: for an agent, the environment to play in, if not the one it was trained on.
        episode_seed: of the first episode; the others follow it. In a JAX environment a seed
            means the same noise for every agent and every plan.
        episodes: how many episodes are explained step by step.
        checks: how many other episodes the calibration and the spread of the level are measured
            in; 0 for none. Where episodes are long, fewer are used.
        returns: where the distributions come from. "simulated": the policy, run on from every step,
            in a JAX environment. "learned": an agent's networks, which the checks then test.
            "exact": the plan of a finite problem. By default the truest of these that there is, in
            this order from the right.
        label: its name; by default a description.
        changes: of a dial, measures that it is turned to on the way, by step; what was earned so
            far stays. `{3: "cvar(0.05)"}` is the policy of the agent until step 3, and that of
            `agent.at("cvar(0.05)")` from there. There are no checks then.
    """
    episodes = whole_number(episodes, "episodes")
    checks = whole_number(checks, "checks", least=0)
    episode_seed = whole_number(episode_seed, "episode_seed", least=0)
    if changes:
        from downside.explanation.turning import explain_turned  # it explains each part with this

        if not isinstance(subject, Agent):
            raise TypeError(f"`changes` must be left out for a plan, got {dict(changes)!r}.")
        seeds = range(episode_seed, episode_seed + episodes)
        return explain_turned(subject, env, changes, seeds, label)
    source = make_source(subject, env, returns=returns, label=label)
    trajectories = source.trajectories(range(episode_seed, episode_seed + episodes))
    checked = _checked_trajectories(source, checks)
    start = source.start_returns([steps[0] for steps in [*checked, *trajectories]])
    is_agent = isinstance(subject, Agent)
    return Explanation(
        label=source.label,
        risk=source.risk,
        gamma=source.gamma,
        kind=source.kind,
        start=start,
        episodes=tuple(
            Episode(seed=episode_seed + i, steps=explained_steps(source, start, steps))
            for i, steps in enumerate(trajectories)
        ),
        calibration=_checks(source, checked, start) if checked else None,
        names=source.names,
        note=source.note,
        timesteps=subject.num_timesteps if is_agent else None,
        simulated_steps=subject.simulated_steps if is_agent else None,
    )


def make_source(
    subject: Any, env: Any = None, *, returns: str | None = None, label: str | None = None
) -> AbstractSource:
    """The source of return distributions for an agent or a plan."""
    if isinstance(subject, Plan):
        if env is not None:
            raise ValueError(
                "`env` must be left out for a plan, which is made for one environment."
            )
        return _plan_source(
            subject, returns, f"plan for {subject.risk}" if label is None else label
        )
    if not isinstance(subject, Agent):
        raise TypeError(
            f"`subject` must be an agent or a plan, got {subject!r}. Train one with ds.QRSRM, or "
            "make one with ds.solve."
        )
    label = f"{subject.name}, {subject.risk}" if label is None else label
    outer = subject.outer_variable  # raises if the agent has not learned anything
    by_action = isinstance(subject.settings, QuantileSettings)
    has_quantiles = by_action or (
        isinstance(subject.settings, OnPolicySettings) and subject.settings.evaluation_fraction > 0
    )
    allowed = (None, "learned", "simulated") if has_quantiles else (None, "simulated")
    _check_returns(returns, allowed, f"an agent of {subject.name}")
    given = subject.env if env is None else env
    jax_env = given if isinstance(given, AbstractJaxEnv) else make_jax(given)
    if env is None and isinstance(subject.settings, OnPolicySettings):
        jax_env = subject.jax_env
    if returns == "learned" or (returns is None and jax_env is None and has_quantiles):
        return LearnedSource(subject, env, label)
    if jax_env is None:
        remedy = ' Use returns="learned".' if has_quantiles else ""
        raise ValueError(
            f'`returns` can be "simulated" only in an environment written in JAX, got {given!r}: '
            f"others cannot be set back to an earlier step.{remedy}"
        )
    gamma = subject.settings.gamma
    policy = GreedyPolicy(subject.policy.learner, subject.networks, outer, jax_env)
    return SimulatedSource(
        jax_env,
        policy,
        simulated_returns(jax_env, policy, gamma=gamma, episodes=START_EPISODES, seed=0),
        risk=subject.risk,
        gamma=gamma,
        label=label,
        note="" if subject.algorithm_class.static else NOT_STATIC,
        predicted=functools.partial(learned_start, subject) if by_action else None,
    )


def _plan_source(plan: Plan, returns: str | None, label: str) -> AbstractSource:
    if isinstance(plan.problem, AbstractFiniteProblem):
        _check_returns(returns, (None, "exact"), "the plan of a finite problem")
        return FiniteSource(plan, label)
    _check_returns(returns, (None, "simulated"), "a plan on a grid")
    assert isinstance(plan.problem, OptionProblem | TradingProblem)
    return SimulatedSource(
        plan.problem.env, plan.policy, plan.returns, risk=plan.risk, gamma=plan.gamma, label=label
    )


def _check_returns(returns: str | None, allowed: Sequence[str | None], subject: str) -> None:
    if returns not in allowed:
        names = " or ".join(f'"{name}"' for name in allowed if name is not None)
        raise ValueError(f"`returns` must be {names} for {subject}, got {returns!r}.")


def _checked_trajectories(source: AbstractSource, checks: int) -> list[list[TimeStep]]:
    """So many episodes, or fewer if they are long."""
    trajectories: list[list[TimeStep]] = []
    while len(trajectories) < checks and sum(map(len, trajectories)) < _MAX_CHECKED_STEPS:
        begin = _CHECK_SEED + len(trajectories)
        trajectories += source.checked_trajectories(range(begin, begin + _CHECKED_AT_A_TIME))
    return trajectories[:checks]


def _checks(
    source: AbstractSource, episodes: list[list[TimeStep]], start: Distribution
) -> Calibration:
    """Whether the explanation can be relied on: its distributions, and the policy's choices."""
    if not isinstance(source, SimulatedSource):
        return calibrate(source, episodes, start)
    checks = calibrate(source.with_continuations(_CHECK_CONTINUATIONS), episodes, start)
    choices = compare_choices(
        source.with_continuations(_CHOICE_CONTINUATIONS),
        source.risk,
        episodes,
        checks.times.tolist(),
    )
    return dataclasses.replace(checks, choices=choices)


def explained_steps(
    source: AbstractSource, start: Distribution, steps: list[TimeStep]
) -> tuple[ExplainedStep, ...]:
    """Every step of an episode, with what the policy optimises there."""
    returns = source.returns(steps)
    risks = conditional_risks(source.risk, start, returns, steps)
    texts = _narratives(source, start, returns, risks, steps)
    utility = utility_at(source.risk, start)
    explained = []
    for i, step in enumerate(steps):
        actions, by_action, values = _alternatives(source, step, risks[i])
        taken = None if step.reward is None else step.action
        explained.append(
            ExplainedStep(
                time=step.time,
                observation=step.observation,
                named_observation=source.names.observation(step.observation),
                action=taken,
                action_name="" if taken is None else source.names.action(taken),
                reward=step.reward,
                accumulated=step.accumulated,
                discount_so_far=step.discount_so_far,
                returns=_row(returns, i),
                risk=risks[i],
                actions=tuple(actions),
                action_names=tuple(source.names.action(action) for action in actions),
                alternatives=by_action,
                action_values=values,
                action_utilities=_utilities(utility, step, by_action),
                words=texts[i],
            )
        )
    return tuple(explained)


def _narratives(
    source: AbstractSource,
    start: Distribution,
    returns: Distribution,
    risks: ConditionalRisk,
    steps: list[TimeStep],
) -> list[str]:
    """What happens at each step, in words."""
    spread = float(np.sqrt(np.sum(start.probabilities * (start.values - start.mean) ** 2)))
    expected = [
        step.accumulated + step.discount_so_far * float(mean)
        for step, mean in zip(steps, np.asarray(returns.mean), strict=True)
    ]
    texts = [narrative.opening(risks[0], expected[0])]
    for i in range(1, len(steps)):
        if steps[i].action is None:
            texts.append(narrative.ending(steps[i].accumulated, risks[i]))
            continue
        texts.append(
            narrative.development(
                risks[i - 1],
                risks[i],
                step=steps[i - 1].time,
                expected_before=expected[i - 1],
                expected=expected[i],
                spread=spread,
                exact=source.kind == "exact",
            )
        )
    return texts


def _alternatives(
    source: AbstractSource, step: TimeStep, risk: ConditionalRisk
) -> tuple[list[Action], Distribution | None, np.ndarray]:
    """The actions, their returns, and the value of each by the measure that holds here."""
    if step.action is None or step.reward is None:
        return [], None, np.zeros(0)
    actions, returns = source.returns_by_action(step)
    levels = np.broadcast_to(risk.levels, (len(actions), len(risk.levels)))
    tails = np.asarray(returns.tail_mean(levels))
    return actions, returns, (np.asarray(risk.weights) * tails).sum(axis=-1)


def _utilities(
    utility: Callable[[np.ndarray], np.ndarray], step: TimeStep, returns: Distribution | None
) -> np.ndarray:
    """The mean utility of the total after each action."""
    if returns is None:
        return np.zeros(0)
    totals = step.accumulated + step.discount_so_far * np.asarray(returns.values)
    return (np.asarray(returns.probabilities) * utility(totals)).sum(axis=-1)


def _row(batch: Distribution, index: int) -> Distribution:
    """One distribution of a batch, without the padding."""
    values, shares = np.asarray(batch.values)[index], np.asarray(batch.probabilities)[index]
    kept = shares > 0
    return Distribution(values[kept], shares[kept], quantile_side=batch.quantile_side)
