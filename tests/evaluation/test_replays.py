"""Episodes that are chosen, played again, drawn and filmed."""

import gymnasium as gym
import numpy as np
import pytest

import downside as ds
from downside.evaluation import can_be_shown, chosen_replays, film, frames
from downside.reporting import report

pytestmark = pytest.mark.slow  # what all tests look at takes long to make

SMALL = {"quantiles": 4, "hidden_sizes": (8,), "batch_size": 8, "warmup_steps": 50}


@pytest.fixture(scope="module")
def agent():
    return ds.QRSRM("CartPole-v1", risk="cvar(0.5)", num_envs=2, **SMALL).learn(100)


def test_the_worst_one_of_the_worst_fifth_and_the_median_are_chosen(agent):
    worst, bad, median = chosen_replays(agent, episodes=11, seed=3)
    assert [worst.name, bad.name, median.name] == ["worst", "worst 20%", "median"]
    values = []
    env = agent.wrap()
    for seed in range(3, 14):  # by hand: the sum of gamma^t, one for each step that it stays up
        observation, _ = env.reset(seed=seed)
        steps, over = 0, False
        while not over:
            observation, _, terminated, truncated, _ = env.step(agent.predict(observation)[0])
            steps, over = steps + 1, terminated or truncated
        values.append((1 - 0.99**steps) / (1 - 0.99))
    assert worst.value == pytest.approx(min(values))
    assert bad.value == pytest.approx(sorted(values)[1])
    assert median.value == pytest.approx(np.median(values))


def test_pictures_run_from_the_first_step_to_the_end(agent):
    replay = chosen_replays(agent, episodes=3)[-1]
    taken = frames(agent, replay, 4)
    assert [taken[0].time, taken[-1].time] == [0, replay.length]
    assert taken[0].earned == 0
    assert taken[-1].earned == pytest.approx(replay.value)
    assert taken[0].picture.shape[-1] == 3
    assert (taken[0].picture != taken[-1].picture).any()


def test_an_episode_is_filmed(agent, tmp_path):
    pytest.importorskip("moviepy")
    replay = chosen_replays(agent, episodes=1)[0]
    path = film(agent, replay, tmp_path / "videos")
    assert path.name == f"worst_return_{replay.value:.2f}.mp4"
    assert path.read_bytes()[4:8] == b"ftyp"
    assert list(path.parent.iterdir()) == [path]


def test_without_moviepy_the_error_says_what_to_install(agent, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install \"downside\[video\]\""):
        film(agent, chosen_replays(agent, episodes=1)[0], tmp_path)


def test_an_environment_that_its_seed_does_not_determine_is_not_shown_wrongly(agent):
    replay = chosen_replays(agent, episodes=1)[0]
    with pytest.raises(ValueError, match="not determined by its seed"):
        frames(agent, replay._replace(value=replay.value + 1), 2)


class Plain(gym.Env):
    """Nothing to see."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, True, False, {}


def test_what_cannot_be_made_again_cannot_be_shown(agent):
    assert can_be_shown(agent)
    assert not can_be_shown(ds.QRDQN(Plain(), **SMALL).learn(50))


def test_the_report_shows_two_episodes(agent, tmp_path):
    page = report(
        agent, out=tmp_path / "a.html", episodes=20, explained_episodes=1, checks=4
    ).read_text()
    assert page.count('<img src="data:image/jpeg') == 16
    assert "One of the worst fifth: " in page
    assert "The median episode: " in page
