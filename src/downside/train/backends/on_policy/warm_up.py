"""What AC-SRM looks at before it learns: how long episodes are, and how quick steps."""

import time

import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Array, Key

from downside.agents.policy_head import PolicyHead
from downside.envs.gymnasium.rollout import VectorRollout
from downside.train.backends.gymnasium.adapting import LONGEST, PROBED, WarmUp
from downside.train.backends.gymnasium.state import Streams


def play_at_random(
    rollout: VectorRollout, head: PolicyHead, key: Key[Array, ""], most_seconds: float
) -> WarmUp:
    """Plays until a few episodes have ended, or until it is clear that they are not short."""
    streams, count = Streams(key), rollout.env.num_envs
    lengths, terminated, steps = np.zeros(0), 0, 0
    most = (LONGEST + 1) * -(-PROBED // count)
    begin = time.perf_counter()
    while steps < most and len(lengths) < max(PROBED, count):
        raw = head.anywhere(streams.generator("warm-up", steps), rollout.masks)
        step, ended = rollout.step(head.action_of_rows(raw))
        lengths = np.append(lengths, ended[:, 2])
        terminated += int((step.terminated & step.over).sum())
        steps += 1
        if steps == 1:  # what is compiled or loaded at first is no step's time
            begin = time.perf_counter()
        if time.perf_counter() - begin > most_seconds:
            break
    # An episode that is under way may be longer than those that ended.
    longest = max(int(lengths.max(initial=0)), int(rollout.lengths.max()))
    return WarmUp(
        episodes=len(lengths),
        longest=longest,
        share=float((lengths == longest).mean()) if len(lengths) else 0.0,
        terminated=terminated >= len(lengths),
        seconds=(time.perf_counter() - begin) / (max(steps - 1, 1) * count),
        resets=rollout.env.mode is AutoresetMode.NEXT_STEP,
        steps=steps * count,
    )
