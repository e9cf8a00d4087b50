"""The section of a report on one agent or plan: returns, explanation, optimum, panels."""

import dataclasses

import numpy as np

from downside.envs import AmericanPut, Memory
from downside.envs.problems.finance.american_put import EXERCISE
from downside.evaluation import (
    Evaluation,
    Frame,
    Replay,
    can_be_shown,
    chosen_replays,
    evaluate,
    frames,
)
from downside.exact import Plan, solve
from downside.explanation import Explanation, explain
from downside.train import Agent, EnvironmentFaultError

Subject = Agent | Plan

_EPISODES = 20_000


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ReportSection:
    """One agent or plan in a report."""

    label: str
    """Its name."""
    explanation: Explanation
    """How its risk preference evolves."""
    evaluation: Evaluation
    """Returns of fresh episodes."""
    about: str = ""
    """The environment and how the policy was made."""
    optimum: float | None = None
    """The highest value that any policy can have, where it is known."""
    boundary: tuple[float | None, ...] | None = None
    """For an option: the price at which exercise begins, at each time."""
    strips: tuple[tuple[Replay, tuple[Frame, ...]], ...] = ()
    """Two episodes in pictures, where the environment can be drawn."""


def make_section(
    subject: Subject,
    *,
    label: str | None = None,
    evaluation: Evaluation | None = None,
    episodes: int | None = None,
    explained_episodes: int = 3,
    checks: int = 500,
    episode_seed: int = 0,
    optimum: float | bool | None = None,
) -> ReportSection:
    """Evaluates and explains an agent or a plan.

    Arguments:
        subject: the agent or plan.
        label: its name; by default a description.
        evaluation: an evaluation that was made before.
        episodes: fresh episodes to evaluate it in, by default 20,000, or 1,000 where they are slow.
        explained_episodes: episodes that are explained step by step.
        checks: episodes that the calibration is measured in.
        episode_seed: of the first episode that is explained.
        optimum: the optimum, or True to compute it; the value of a plan is the optimum.
    """
    explanation = explain(
        subject, episode_seed=episode_seed, episodes=explained_episodes, checks=checks, label=label
    )
    if episodes is None:
        episodes = min(_EPISODES, getattr(subject, "default_episodes", _EPISODES))
    if evaluation is None:
        evaluation = evaluate(subject, episodes=episodes, label=explanation.label)
    return ReportSection(
        label=explanation.label,
        explanation=explanation,
        evaluation=evaluation,
        about=_about(subject),
        optimum=_optimum(subject, optimum),
        boundary=_boundary(subject),
        strips=_strips(subject, episode_seed),
    )


def _strips(subject: Subject, seed: int) -> tuple[tuple[Replay, tuple[Frame, ...]], ...]:
    """A bad episode and the median one. JAX environments have charts instead."""
    if isinstance(subject, Plan) or subject.jax_env is not None:
        return ()
    if not can_be_shown(subject):
        return ()
    try:
        _, bad, median = chosen_replays(subject, seed=seed)
        return tuple((replay, tuple(frames(subject, replay))) for replay in (bad, median))
    except (ValueError, EnvironmentFaultError):  # not determined by its seed, or endless
        return ()


def _optimum(subject: Subject, optimum: float | bool | None) -> float | None:
    if isinstance(subject, Plan):
        return subject.value
    if optimum is True:
        if subject.jax_env is None:
            return None
        return solve(
            subject.jax_env, subject.risk, gamma=subject.settings.gamma, episodes=1000
        ).value
    return None if optimum is None or optimum is False else float(optimum)


def _about(subject: Subject) -> str:
    if isinstance(subject, Plan):
        env = getattr(subject.problem, "env", None)
        name = "a finite problem" if env is None else type(env).__name__
        return f"{name}; the exact planner; discount {subject.gamma:g}"
    return (
        f"{subject.env_spec}; {subject.name}, learned from {subject.num_timesteps:,} environment "
        f"steps and {subject.simulated_steps:,} simulated ones, seed {subject.seed}; discount "
        f"{subject.settings.gamma:g}"
    )


def _boundary(subject: Subject) -> tuple[float | None, ...] | None:
    """The price at which exercise of an option begins; None where it is never worth it."""
    if isinstance(subject, Plan):
        exact = subject.boundary
        return None if exact is None else tuple(None if p != p else float(p) for p in exact)
    env = subject.jax_env
    if not isinstance(env, AmericanPut):
        return None
    prices = np.linspace(0.3, 1.7, 281) * env.strike
    edge: list[float | None] = []
    for time in range(env.periods):
        memory = Memory(np.float32(0.0), np.float32(subject.settings.gamma**time))
        shown = subject.policy.memory_input.show(memory)
        same = np.tile([time / env.periods, *shown], (len(prices), 1))
        actions, _ = subject.predict(np.column_stack([prices, same]))
        taken = prices[(np.asarray(actions) == EXERCISE) & (np.asarray(env.payoff(prices)) > 0)]  # pyright: ignore[reportArgumentType]
        end = max if env.kind == "put" else min
        edge.append(float(end(taken)) if taken.size else None)
    return tuple(edge)
