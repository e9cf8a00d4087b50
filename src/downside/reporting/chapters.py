"""What a report says of one agent or plan: its returns, its story, the optimum, and panels."""

import dataclasses

import numpy as np

from downside.envs import AbstractJaxEnv, AmericanPut
from downside.envs.american_put import EXERCISE
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
from downside.explanation import Story, explain
from downside.train import Agent

Subject = Agent | Plan

_EPISODES = 20_000


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Chapter:
    """One agent or plan in a report."""

    label: str
    """What it is called."""
    story: Story
    """How its risk preference evolves."""
    evaluation: Evaluation
    """Returns of fresh episodes."""
    about: str = ""
    """The environment and how the policy was made, in a few words."""
    optimum: float | None = None
    """The highest value that any policy can have, where it is known."""
    boundary: tuple[float | None, ...] | None = None
    """For an option: the price at which exercise begins, at each time."""
    strips: tuple[tuple[Replay, tuple[Frame, ...]], ...] = ()
    """Two episodes in pictures, where the environment can be drawn."""


def make_chapter(
    subject: Subject,
    *,
    label: str | None = None,
    evaluation: Evaluation | None = None,
    episodes: int | None = None,
    told: int = 3,
    checks: int = 500,
    episode_seed: int = 0,
    optimum: float | bool | None = None,
) -> Chapter:
    """Evaluates and explains an agent or a plan.

    Arguments:
        subject: what the chapter is about.
        label: what to call it; if left out, what it is.
        evaluation: its fresh episodes, if it has been valued already.
        episodes: fresh episodes that it is valued in, by default 20,000, or 1,000 where they are
            slow.
        told: episodes that are told step by step.
        checks: episodes that the calibration is measured in.
        episode_seed: of the first episode that is told.
        optimum: the optimum, or True to compute it; a plan is its own.
    """
    story = explain(subject, episode_seed=episode_seed, episodes=told, checks=checks, label=label)
    if episodes is None:
        episodes = min(_EPISODES, getattr(subject, "default_episodes", _EPISODES))
    if evaluation is None:
        evaluation = evaluate(subject, episodes=episodes, label=story.label)
    return Chapter(
        label=story.label,
        story=story,
        evaluation=evaluation,
        about=_about(subject),
        optimum=_optimum(subject, optimum),
        boundary=_boundary(subject),
        strips=_strips(subject, episode_seed),
    )


def _strips(subject: Subject, seed: int) -> tuple[tuple[Replay, tuple[Frame, ...]], ...]:
    """One of the worst episodes and a median one. Not of our own problems, which are a chart."""
    if isinstance(subject, Plan) or isinstance(subject.env, AbstractJaxEnv):
        return ()
    if not can_be_shown(subject):
        return ()
    try:
        _, bad, median = chosen_replays(subject, seed=seed)
        return tuple((one, tuple(frames(subject, one))) for one in (bad, median))
    except ValueError:  # not determined by its seed, or without end
        return ()


def _optimum(subject: Subject, optimum: float | bool | None) -> float | None:
    if isinstance(subject, Plan):
        return subject.value
    if optimum is True:
        if not isinstance(subject.env, AbstractJaxEnv):
            return None
        return solve(subject.env, subject.risk, gamma=subject.settings.gamma, episodes=1000).value
    return None if optimum is None or optimum is False else float(optimum)


def _about(subject: Subject) -> str:
    if isinstance(subject, Plan):
        what = getattr(subject.problem, "env", None)
        name = "a finite problem" if what is None else type(what).__name__
        return f"{name}; the exact planner; discount {subject.gamma:g}"
    return (
        f"{subject.origin}; {subject.name}, {subject.num_timesteps:,} steps of learning, seed "
        f"{subject.seed}; discount {subject.settings.gamma:g}"
    )


def _boundary(subject: Subject) -> tuple[float | None, ...] | None:
    """The price at which exercise of an option begins; None where it is never worth it."""
    if isinstance(subject, Plan):
        found = subject.boundary
        return None if found is None else tuple(None if p != p else float(p) for p in found)
    env = subject.env
    if not isinstance(env, AmericanPut):
        return None
    prices = np.linspace(0.3, 1.7, 281) * env.strike
    edge: list[float | None] = []
    for time in range(env.periods):
        discount = np.float32(subject.settings.gamma**time)
        remembered = subject._algorithm.remembered(np.float32(0.0), discount, subject.goal)  # pyright: ignore[reportArgumentType]
        same = np.tile([time / env.periods, *np.asarray(remembered)], (len(prices), 1))
        actions, _ = subject.predict(np.column_stack([prices, same]))
        taken = prices[(np.asarray(actions) == EXERCISE) & (np.asarray(env.payoff(prices)) > 0)]  # pyright: ignore[reportArgumentType]
        end = max if env.kind == "put" else min
        edge.append(float(end(taken)) if taken.size else None)
    return tuple(edge)
