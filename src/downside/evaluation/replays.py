"""Episodes to look at: the worst, a bad one and the median, played again in pictures."""

import contextlib
import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from jaxtyping import UInt8

from downside.envs.gymnasium.rollout import Situation, endless, play_episodes
from downside.evaluation.bootstrap import whole_number

_TAIL = 0.2
"""The share of episodes that count as the worst."""
_MAX_STEPS = 10_000
"""Steps after which an episode counts as endless."""


class Replay(NamedTuple):
    """An episode that can be played again."""

    name: str
    """Its rank among all that were played: "worst", "worst 20%" or "median"."""
    seed: int
    """Of the environment's reset."""
    value: float
    """Its discounted return."""
    length: int
    """How many steps it has."""


class Frame(NamedTuple):
    """A picture of an episode."""

    time: int
    earned: float
    """The discounted return so far."""
    picture: UInt8[np.ndarray, "h w 3"]


def chosen_replays(agent: Any, episodes: int = 25, seed: int = 0) -> list[Replay]:
    """The worst of so many episodes, the middle one of the worst fifth, and the median one.

    Arguments:
        agent: what was trained.
        episodes: how many are played to choose from, each with another seed.
        seed: of the first of them.
    """
    count = whole_number(episodes, "episodes")
    seeds = range(seed, seed + count)
    with contextlib.closing(agent.wrap()) as env:
        played = [Replay("", number, *_play(agent, env, number)) for number in seeds]
    order = sorted(played, key=lambda replay: replay.value)
    middle_of_worst = order[int(_TAIL * count) // 2]
    names = {"worst": order[0], "worst 20%": middle_of_worst, "median": order[count // 2]}
    return [replay._replace(name=name) for name, replay in names.items()]


def frames(agent: Any, replay: Replay, count: int = 8) -> list[Frame]:
    """So many pictures of an episode, from its first step to its end."""
    env = _with_pictures(agent)
    wanted = set(np.linspace(0, replay.length, count).round().astype(int).tolist())
    taken: list[Frame] = []

    def take(now: Situation, actions: Any) -> None:
        del actions
        if now.time in wanted:
            picture = np.asarray(env.render(), np.uint8)
            taken.append(Frame(now.time, float(now.memory.accumulated[0]), picture))

    with contextlib.closing(env):
        value, _ = _play(agent, env, replay.seed, take)
    _check_same(replay, value)
    return taken


def film(agent: Any, replay: Replay, folder: str | Path) -> Path:
    """Plays an episode again and writes it as a video; gives its path. Needs moviepy."""
    if importlib.util.find_spec("moviepy") is None:
        raise ImportError(
            'Videos need moviepy: pip install "downside[video]". `downside report` shows pictures '
            "of two episodes without it."
        )
    name = f"{replay.name.replace(' ', '-').replace('%', '')}_return_{replay.value:.2f}"
    final = Path(folder) / f"{name}.mp4"
    final.parent.mkdir(parents=True, exist_ok=True)
    # In a temporary folder first: an unfinished video never has the final name.
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=".") as temporary:
        env = gym.wrappers.RecordVideo(
            _with_pictures(agent),
            str(Path(temporary) / "video"),
            episode_trigger=lambda _: True,
            disable_logger=True,
        )
        with contextlib.closing(env):
            value, _ = _play(agent, env, replay.seed)
        _check_same(replay, value)
        next(Path(temporary).glob("video/*.mp4")).replace(final)
    return final


def can_be_shown(agent: Any) -> bool:
    """Whether the environment can be made again, with pictures."""
    try:
        env = _with_pictures(agent)
    except (ValueError, gym.error.Error):
        return False
    try:
        env.reset(seed=0)
        return env.render() is not None
    except Exception:  # whatever an environment raises that cannot draw
        return False
    finally:
        env.close()


def _with_pictures(agent: Any) -> gym.Env:
    try:
        return agent.wrap(render_mode="rgb_array")
    except (TypeError, NotImplementedError, gym.error.Error) as error:
        raise ValueError(
            f"{agent.env_spec} cannot be drawn: it does not take render_mode='rgb_array' ({error})."
        ) from error


def _play(
    agent: Any, env: gym.Env, seed: int, visit: Callable[[Situation, Any], None] | None = None
) -> tuple[float, int]:
    """Plays an episode; gives its discounted return and its length."""

    def act(now: Situation) -> list[Any]:
        mask = None if now.masks is None else now.masks[0]
        return [agent.predict(now.observations[0], action_masks=mask)[0]]

    gamma = agent.settings.gamma
    end = play_episodes([env], [seed], act, visit, gamma=gamma, max_steps=_MAX_STEPS)
    if end.running[0]:
        raise endless(str(agent.env_spec), _MAX_STEPS)
    return float(end.memory.accumulated[0]), end.time


def _check_same(replay: Replay, value: float) -> None:
    if not np.isclose(value, replay.value, rtol=1e-4, atol=1e-4):
        raise ValueError(
            f"Played again with seed {replay.seed}, the {replay.name} episode returned {value:.4g} "
            f"instead of {replay.value:.4g}: the environment is not determined by its seed, so an "
            "episode cannot be shown after it was chosen."
        )
