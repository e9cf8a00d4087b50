"""A dial that is turned in the middle of an episode: what changes, and what does not."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from downside.envs.gymnasium.rollout import Situation
from downside.explanation.explain import explained_steps, make_source
from downside.explanation.narrative import aim, number
from downside.explanation.results import Episode, ExplainedStep, Explanation
from downside.explanation.simulation import SimulatedSource
from downside.explanation.trajectory import TimeStep, record_trajectories
from downside.risk import AbstractSpectralRisk, Distribution, as_risk
from downside.train import Agent


class _Part(NamedTuple):
    """From a step on, the agent at one measure."""

    begin: int
    source: SimulatedSource
    start: Distribution


def explain_turned(
    agent: Agent,
    env: Any,
    changes: Mapping[int, AbstractSpectralRisk | str],
    seeds: Sequence[int],
    label: str | None,
) -> Explanation:
    """The explanation of episodes in which a dial is turned; arguments as for `explain`."""
    for step in changes:
        if isinstance(step, bool) or not isinstance(step, int) or step < 1:
            raise ValueError(
                f"`changes` must have whole numbers >= 1 as steps, got {step!r}. The measure at "
                "step 0 is that of the agent: explain `agent.at(measure)`."
            )
    parts = [_part(agent, env, 0)]
    parts += [_part(agent.at(risk), env, step) for step, risk in sorted(changes.items())]
    texts = [f"{as_risk(risk)} from step {step}" for step, risk in sorted(changes.items())]
    label = f"{agent.name}, {agent.risk}, then {', '.join(texts)}" if label is None else label
    first = parts[0].source
    episodes = [
        Episode(seed=seed, steps=_explained(parts, steps))
        for seed, steps in zip(seeds, _trajectories(parts, seeds), strict=True)
    ]
    return Explanation(
        label=label,
        risk=first.risk,
        gamma=first.gamma,
        kind=first.kind,
        start=parts[0].start,
        episodes=tuple(episodes),
        calibration=None,
        names=first.names,
        note="The measure changes on the way. Checks are for one measure: explain each of them.",
        timesteps=agent.num_timesteps,
        simulated_steps=agent.simulated_steps,
    )


def _part(agent: Agent, env: Any, begin: int) -> _Part:
    source = make_source(agent, env)
    if not isinstance(source, SimulatedSource):
        raise ValueError(
            "`changes` needs an environment written in JAX, where returns are simulated, got "
            f"{agent.env_spec}."
        )
    return _Part(begin, source, source.start_returns([]))


def _trajectories(parts: Sequence[_Part], seeds: Sequence[int]) -> list[list[TimeStep]]:
    """Episodes of the policy of each part in turn: what was earned goes on to the next."""
    first = parts[0].source

    def act(now: Situation, states: list[Any]) -> np.ndarray:
        (*_, part) = (part for part in parts if part.begin <= now.time)
        return part.source.act(now, states)

    return record_trajectories(
        first.copies(len(seeds)),
        seeds,
        act,
        lambda env, _: jax.device_get(env.unwrapped.state),  # pyright: ignore
        gamma=first.gamma,
        appended=0,
    )


def _explained(parts: Sequence[_Part], steps: list[TimeStep]) -> tuple[ExplainedStep, ...]:
    """Each step by the part that it belongs to; the first one after a change says what changed."""
    explained: list[ExplainedStep] = []
    ends = [*(part.begin for part in parts[1:]), len(steps)]
    for i, (part, end) in enumerate(zip(parts, ends, strict=True)):
        mine = steps[part.begin : end]
        if not mine:
            continue
        rows = explained_steps(part.source, part.start, mine)
        if i:
            before = explained_steps(parts[i - 1].source, parts[i - 1].start, mine[:1])
            words = _words(parts[i - 1], part, _replayed(parts[i - 1], mine[0]), before[0], rows[0])
            rows = (dataclasses.replace(rows[0], words=words), *rows[1:])
        explained += rows
    return tuple(explained)


def _replayed(part: _Part, step: TimeStep) -> str:
    """What the policy before the change would do at this step."""
    if step.action is None:
        return ""
    return part.source.names.action(part.source.action_at(step))


def _words(before: _Part, now: _Part, would_do: str, old: ExplainedStep, new: ExplainedStep) -> str:
    """What a change of the measure changes."""
    text = (
        f"Here the measure changes from {before.source.risk} to {now.source.risk}. What was earned "
        f"so far, {number(new.accumulated)}, counts as before. "
    )
    if not new.actions:
        return f"{text}The episode is over: nothing else changes."
    lines = [_line(part) for part in (before, now)]
    text += f"Until here the agent cared about {aim(old.risk)}, from here about {aim(new.risk)}. "
    if None not in lines and lines[0] != lines[1]:
        text += f"The line below which a total counts as bad moves from {lines[0]} to {lines[1]}. "
    elif lines[1] is None and lines[0] is not None:
        text += "There is no line any more below which a total counts as bad. "
    elif lines[1] is not None:
        text += f"A total below {lines[1]} now counts as bad. "
    if would_do == new.action_name:
        return f"{text}It does what it would have done anyway: {new.action_name}."
    return f"{text}It would have done this: {would_do}. Now it does this: {new.action_name}."


def _line(part: _Part) -> str | None:
    """The total below which an episode counts as bad."""
    levels = [level for level, _ in part.source.risk.atoms if level < 1.0]
    if not levels:
        return None
    return number(float(np.asarray(part.start.quantile(np.array(levels[:1])))[0]))
