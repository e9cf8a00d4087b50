import numpy as np
import pytest

from downside import FiniteMDP, solve

HEADER = "idstatefrom,idaction,idstateto,probability,reward\n"
GOOD = HEADER + "1,1,1,0.25,2.0\n1,1,1,0.25,3.0\n1,1,2,0.5,0.0\n1,2,2,1.0,1.0\n2,1,2,1.0,0.0\n"


def write(tmp_path, text):
    path = tmp_path / "problem.csv"
    path.write_text(text)
    return path


def test_ids_from_one_repeated_rows_and_missing_actions_are_read(tmp_path):
    mdp = FiniteMDP.from_csv(write(tmp_path, GOOD), gamma=0.5, start=1, horizon=2)
    assert (mdp.num_states, mdp.num_actions) == (2, 2)
    np.testing.assert_array_equal(mdp.start, [1.0, 0.0])
    np.testing.assert_array_equal(mdp.action_mask, [[True, True], [True, False]])
    np.testing.assert_allclose(mdp.probabilities[0, 0], [0.25, 0.25, 0.5])
    np.testing.assert_allclose(mdp.rewards[0, 0], [2.0, 3.0, 0.0])


def test_rows_that_pay_the_same_add_up(tmp_path):
    text = HEADER + "0,0,0,0.1,1\n0,0,0,0.4,1\n0,0,0,0.5,2\n"
    mdp = FiniteMDP.from_csv(write(tmp_path, text), gamma=0.5, start=0)
    np.testing.assert_allclose(mdp.probabilities[0, 0], [0.5, 0.5])


@pytest.mark.parametrize("first", [0, 1])
def test_a_problem_survives_the_way_through_a_file(tmp_path, first):
    mdp = FiniteMDP.from_csv(write(tmp_path, GOOD), gamma=0.9, start=1, horizon=3)
    path = tmp_path / "again.csv"
    mdp.to_csv(path, first=first)
    again = FiniteMDP.from_csv(path, gamma=0.9, start=first, horizon=3)
    risk = "cvar(0.3)"
    assert solve(mdp, risk, episodes=2).value == solve(again, risk, episodes=2).value
    for name in ("probabilities", "next_states", "rewards", "action_mask"):
        np.testing.assert_array_equal(getattr(again, name), getattr(mdp, name))


def test_a_terminal_state_is_written_as_one_that_stays(tmp_path):
    mdp = FiniteMDP(
        [[[0.5, 0.5]], [[0.0, 0.0]]], [[[1.0, 2.0]], [[0.0, 0.0]]], [False, True], gamma=0.5
    )
    mdp.to_csv(tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[-1] == "1,0,1,1.0,0.0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("0.5,0.0", "0.4,0.0"), r"problem\.csv, line 4: .*sum to 1, got 0\.9"),
        (GOOD.replace("0.5,0.0", "-0.5,0.0"), r"line 4: the probability must be in \[0, 1\]"),
        (GOOD.replace("3.0", "nan"), r"line 3: `reward` must be a finite number, got 'nan'"),
        (GOOD.replace("1,2,2", "1,x,2"), r"line 5: `idaction` must be a whole number .*'x'"),
        (GOOD.replace("2,1,2,1.0,0.0\n", ""), r"line 4: it leads to state 2, which has no row"),
        (GOOD + "2,1\n", r"line 7: it must have 5 fields, got 2"),
        ("a,b\n1,2\n", r"line 1: the header must name idstatefrom"),
        (HEADER, r"must hold at least one transition"),
        (HEADER + "5,1,5,1.0,0\n", "state ids must begin with 0 or 1, got 5"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        FiniteMDP.from_csv(write(tmp_path, text), gamma=0.5, start=1, horizon=2)


def test_what_is_no_file_or_no_start_is_refused_in_words(tmp_path):
    with pytest.raises(FileNotFoundError, match="`path` must be a CSV file of transitions"):
        FiniteMDP.from_csv(tmp_path / "none.csv", gamma=0.5, start=1)
    with pytest.raises(ValueError, match=r"`start` must be a state's id in \[1, 2\].*got 3"):
        FiniteMDP.from_csv(write(tmp_path, GOOD), gamma=0.5, start=3)
    mdp = FiniteMDP.from_csv(write(tmp_path, GOOD), gamma=0.5, start=1)
    with pytest.raises(ValueError, match="`first` must be 0 or 1"):
        mdp.to_csv(tmp_path / "out.csv", first=2)
