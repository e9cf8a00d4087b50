"""What policies do by step, for the page."""

import numpy as np

from downside.explanation.names import Names
from downside.reporting.deeds import PlayedEpisodes, _kinds, _quantiles, _shares

NAMES = Names(observation=lambda _: {}, action="bet {}".format, coordinates=("stake",))


def played(actions, running=None):
    actions = np.asarray(actions)
    running = np.ones(actions.shape[:2], bool) if running is None else np.asarray(running)
    return PlayedEpisodes(np.zeros((len(actions) + 1, actions.shape[1])), actions, running)


def test_the_actions_that_are_taken_most_have_a_share_each_and_the_rest_one():
    # Eight actions, of which five are shown: 7 four times, 1, 3, 4 and 6 twice, 0 once.
    episodes = played([[7, 7, 1, 3], [7, 4, 1, 0], [7, 6, 6, 4]], [[1, 1, 1, 1]] * 3)
    episodes = episodes._replace(running=episodes.running.astype(bool))
    kinds = _kinds([episodes, played([[3, 7]])], 8)
    assert kinds == [1, 3, 4, 6, 7]
    data = _shares(episodes, [0, 1], kinds, NAMES, 8)
    assert data["shareNames"] == ["bet 1", "bet 3", "bet 4", "bet 6", "bet 7", "other actions"]
    assert data["shares"] == [[0.25, 0.25, 0, 0, 0.5, 0], [0.25, 0, 0.25, 0, 0.25, 0.25]]


def test_episodes_that_are_over_do_not_count():
    episodes = played([[0, 1], [0, 1]], [[True, True], [False, True]])
    assert _kinds([episodes], 2) == [0, 1]
    assert _shares(episodes, [0, 1], [0, 1], NAMES, 2)["shares"] == [[0.5, 0.5], [0.0, 1.0]]


def test_ordered_actions_are_shown_by_what_they_stand_for():
    grid = np.array([[-2.0], [0.0], [2.0]])
    data = _quantiles(played([[0, 1, 2]]), [0], grid, NAMES)
    assert data["quantileNames"] == ["stake"]
    np.testing.assert_allclose(data["quantiles"], [[[-1.8, -1.0, 0.0, 1.0, 1.8]]])
