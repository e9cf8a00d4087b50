"""Episodes to look at: a median one and some of the worst, played again in pictures."""

import contextlib
import importlib.util
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from jaxtyping import UInt8

from downside.evaluation.bootstrap import whole_number

_TAIL = 0.2
"""The share of episodes that count as the worst."""
_LONGEST = 10_000
"""Steps after which an episode is taken to never end."""


class Replay(NamedTuple):
    """An episode that can be played again."""

    name: str
    """Its place among all that were played: "worst", "worst 20%" or "median"."""
    seed: int
    """That its environment is reset with."""
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
        episodes: how many are played to choose from, each reset with a seed of its own.
        seed: of the first of them.
    """
    count = whole_number(episodes, "episodes")
    with contextlib.closing(agent.wrap()) as env:
        played = [Replay("", own, *_play(agent, env, own)) for own in range(seed, seed + count)]
    order = sorted(played, key=lambda one: one.value)
    middle_of_worst = order[int(_TAIL * count) // 2]
    names = {"worst": order[0], "worst 20%": middle_of_worst, "median": order[count // 2]}
    return [one._replace(name=name) for name, one in names.items()]


def frames(agent: Any, replay: Replay, count: int = 8) -> list[Frame]:
    """So many pictures of an episode, from its first to its last moment."""
    env = _with_pictures(agent)
    wanted = set(np.linspace(0, replay.length, count).round().astype(int).tolist())
    taken: list[Frame] = []

    def take(time: int, earned: float) -> None:
        if time in wanted:
            picture = np.asarray(env.render(), np.uint8)
            taken.append(Frame(time, earned, picture))

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
    # In a folder of its own first: a video that was cut short never has the final name.
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
    """Whether its environment can be made again, with pictures."""
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
            f"{agent.origin} cannot be drawn: it does not take render_mode='rgb_array' ({error})."
        ) from error


def _play(agent: Any, env: gym.Env, seed: int, moment: Any = None) -> tuple[float, int]:
    """Plays an episode; `moment` hears of each state. Gives the discounted return and the steps."""
    gamma = agent.settings.gamma
    observation, info = env.reset(seed=seed)
    earned, discount, time, over = 0.0, 1.0, 0, False
    while not over:
        if moment is not None:
            moment(time, earned)
        action, _ = agent.predict(observation, action_masks=info.get("action_mask"))
        observation, reward, terminated, truncated, info = env.step(action)
        earned, discount, time = earned + discount * float(reward), discount * gamma, time + 1
        over = terminated or truncated
        if time >= _LONGEST and not over:
            raise ValueError(
                f"An episode of {agent.origin} did not end in {_LONGEST:,} steps. Wrap the "
                "environment in `gymnasium.wrappers.TimeLimit`."
            )
    if moment is not None:
        moment(time, earned)
    return earned, time


def _check_same(replay: Replay, value: float) -> None:
    if not np.isclose(value, replay.value, rtol=1e-4, atol=1e-4):
        raise ValueError(
            f"Played again with seed {replay.seed}, the {replay.name} episode returned {value:.4g} "
            f"instead of {replay.value:.4g}: the environment is not determined by its seed, so an "
            "episode cannot be shown after it was chosen."
        )
