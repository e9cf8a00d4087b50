"""Studies are read and checked as a whole, before anything starts."""

import copy

import pytest

from downside.sweeping import StudyError, read_study
from downside.sweeping.work import make_agent

from .studies import AGENT, ENV, as_toml, study

WRONG = """\
[study]
name = "tails"
seeeds = 3
risks = [
  "mean",
  "cvr(0.2)",
  "cvar(1.5)",
]
total_timesteps = 0

[[environments]]
id = "downside/MeanRevesion-v0"

[[environments]]
id = "downside/MeanReversion-v0"
sigma = [0.5, -1.0]
period = 3

[[environments]]
id = "downside/AmericanPut-v0"
periods = [
  10,
  0]

[[environments]]
id = "CartPole-v1"
length = 3

[[environments]]
id = "Pendulum-v1"

[[agents]]
name = "qrsmr"

[[agents]]
name = "qrcvar"
risks = ["cvar(0.2)", "0.5*mean + 0.5*cvar(0.2)"]
learning_rte = 0.1
gamma = [0.9, 1.2]

[[agents]]
name = "qrsrm"
quantiles = 8
updates_per_step = 3

[agnets]
"""
SAID = [
    (3, "[study] has no `seeeds`. Did you mean 'seeds'?"),
    (6, "There is no risk measure 'cvr'. Did you mean 'cvar'?"),
    (7, "`alpha` must be in (0, 1], got 1.5."),
    (9, "`total_timesteps` must be a whole number >= 1, got 0."),
    (12, "got 'downside/MeanRevesion-v0'. Did you mean 'downside/MeanReversion-v0'?"),
    (16, "`sigma` must be a finite number in [0, inf), got -1.0."),
    (17, "downside/MeanReversion-v0 has no `period`. Did you mean 'periods'?"),
    (23, "`periods` must be a whole number >= 1, got 0."),
    (27, "unexpected keyword argument 'length'"),
    (29, "`env` must have discrete actions"),
    (33, "`name` must be one of qrsrm, qrcvar, qricvar, qrdqn, got 'qrsmr'. Did you mean 'qrsrm'?"),
    (37, "`risk` must be a single CVaR for QR-CVaR"),
    (38, "An agent has no `learning_rte`. Did you mean 'learning_rate'?"),
    (39, "`gamma` must be a number in (0, 1], got 1.2."),
    (44, "`outer_interval` must be a multiple of `updates_per_step` (3), got 400."),
    (46, "A study has no `agnets`. Did you mean 'agents'?"),
]


def test_everything_that_is_wrong_is_said_at_once_with_its_line(tmp_path):
    path = tmp_path / "tails.toml"
    path.write_text(WRONG)
    with pytest.raises(StudyError) as caught:
        read_study(path)
    first, *lines = str(caught.value).splitlines()
    assert first == f"the study has {len(SAID)} errors; nothing was started."
    told = [line for line in lines if line.startswith("tails.toml:")]
    assert len(told) == len(SAID)
    for line, (number, text) in zip(told, SAID, strict=True):
        assert line.startswith(f"tails.toml:{number}: ")
        assert text in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[study\n", r"study.toml:1: Expected '\]'"),
        ("[study]\nname = 'a'\nname = 'b'\n", r"study.toml:3: Cannot overwrite a value"),
        ("", r"\[study\] needs a `name`"),
    ],
)
def test_a_file_that_is_no_study_is_refused(tmp_path, text, said):
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(StudyError, match=said):
        read_study(path)


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no study .*nowhere\.toml"):
        read_study(tmp_path / "nowhere.toml")
    path = tmp_path / "study.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(StudyError, match="is no text in UTF-8"):
        read_study(path)


def changed(part, **changes):
    """The tiny study with some keys of one part changed; None leaves a key out."""
    table = copy.deepcopy(study())
    own = table["study"] if part == "study" else table[part][0]
    own.update(changes)
    for name in [name for name, value in changes.items() if value is None]:
        del own[name]
    return table


@pytest.mark.parametrize(
    ("part", "changes", "said"),
    [
        ("study", {"name": "a/b"}, r"study.name: `name` must be letters, digits .* got 'a/b'"),
        ("study", {"seeds": 0}, r"study.seeds: `seeds` must be how many, a whole number >= 1"),
        ("study", {"seeds": [0, -1]}, r"study.seeds\[1\]: A seed must be a whole number >= 0"),
        ("study", {"seeds": True}, r"`seeds` must be how many"),
        ("study", {"episodes": 1}, r"`episodes` must be a whole number >= 2, got 1"),
        ("study", {"risks": []}, r"study.risks: `risks` must be measures"),
        ("study", {"risks": None}, r"agents\[0\]: There are no `risks`"),
        ("study", {"measures": ["men"]}, r"study.measures\[0\]: There is no risk measure 'men'"),
        ("environments", {"id": None}, r"environments\[0\].id: An environment needs an `id`"),
        ("environments", {"id": "nomodule:Id-v0"}, r"No module named 'nomodule'"),
        ("environments", {"sigma": []}, r"environments\[0\].sigma: `sigma` has no values"),
        ("environments", {"sigma": {1, 2}}, r"`sigma` must be numbers, text, or lists"),
        ("agents", {"name": None}, r"An agent needs a `name`: one of qrsrm"),
        ("agents", {"preset": "papr"}, r"`preset` must be one of default, paper, got 'papr'"),
        ("agents", {"hidden": [[16], [0]]}, r"agents\[0\].hidden\[1\]: `hidden` must be widths"),
        ("agents", {"name": "qrdqn", "risks": "cvar(0.2)"}, r"`risk` must be the mean for QR-DQN"),
    ],
)
def test_a_study_from_python_is_checked_in_the_same_way(part, changes, said):
    table = changed(part, **changes)
    with pytest.raises(StudyError, match=said):
        read_study(table)


def test_parts_that_are_no_tables_are_refused():
    with pytest.raises(StudyError, match=r"`agents` must be tables, each under \[\[agents\]\]"):
        read_study({**study(), "agents": {"name": "qrsrm"}})
    with pytest.raises(StudyError, match=r"A study needs at least one \[\[environments\]\]"):
        read_study({**study(), "environments": []})
    with pytest.raises(StudyError, match=r"`study` must be a table, got 3"):
        read_study({**study(), "study": 3})


# --- the grid ---------------------------------------------------------------------------------


def test_lists_are_swept_and_everything_is_combined(tmp_path):
    table = study(risks=["mean", "cvar(20%)"], seeds=[3, 5])
    table["environments"][0]["sigma"] = [0.5, 1.0]
    table["environments"].append({"id": "CartPole-v1"})
    table["agents"] = [{"name": "qrsrm", "hidden": [[16], [16, 16]]}, {"name": "qrdqn"}]
    path = tmp_path / "study.toml"
    path.write_text(as_toml(table))
    cells = read_study(path).cells
    # 3 environments x (2 networks x 2 risks + the mean alone) x 2 seeds.
    assert len(cells) == 3 * (2 * 2 + 1) * 2 == len({one.key for one in cells})
    assert {one.risk for one in cells if one.agent == "qrdqn"} == {"mean"}
    assert {one.risk for one in cells} == {"mean", "cvar(0.2)"}
    assert {tuple(one.settings["hidden"]) for one in cells if one.agent == "qrsrm"} == {
        (16,),
        (16, 16),
    }
    assert {one.seed for one in cells} == {3, 5}
    assert [one.key for one in read_study(table).cells] == [one.key for one in cells]


def test_the_same_run_has_the_same_key_however_it_is_written():
    key = read_study(study()).cells[0].key
    table = study(risks=["CVaR( 50% )"], episodes=200, measures=["mean"])
    table["agents"][0]["gamma"] = 0.99  # the default
    table["environments"][0].update(sigma=1, inventory_limit=2)
    assert read_study(table).cells[0].key == key


def test_whatever_changes_a_run_changes_its_key():
    keys = {one.key for one in read_study(study()).cells}
    for part, name, value in [
        ("agents", "gamma", 0.9),
        ("environments", "sigma", 2.0),
        ("environments", "inventory_limit", "none"),
        ("study", "total_timesteps", 96),
        ("study", "risks", ["cvar(0.4)"]),
        ("study", "seeds", [7]),
    ]:
        table = study()
        (table["study"] if part == "study" else table[part][0])[name] = value
        keys |= {one.key for one in read_study(table).cells}
    assert len(keys) == 2 + 5 * 2 + 1


def test_every_run_knows_how_many_episodes_it_is_valued_in():
    # 100,000 where the environment is written in JAX and 1,000 elsewhere, as `ds.evaluate` has it.
    table = changed("study", episodes=None)
    table["environments"].append({"id": "CartPole-v1"})
    table["agents"] = [{"name": "qrdqn"}]
    cells = read_study(table).cells
    assert {(one.bare_id, one.episodes) for one in cells} == {
        ("downside/MeanReversion-v0", 100_000),
        ("CartPole-v1", 1_000),
    }
    for one in cells[::2]:
        assert make_agent(one).default_episodes == one.episodes
    assert {one.episodes for one in read_study(study(episodes=7)).cells} == {7}


def test_a_module_that_breaks_when_imported_hides_no_other_error(tmp_path, monkeypatch):
    (tmp_path / "breaks.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    table = changed("study", seeds=0)
    table["environments"].append({"id": "breaks:Id-v0"})
    with pytest.raises(StudyError, match=r"the study has 2 errors") as caught:
        read_study(table)
    assert "cannot be imported: ZeroDivisionError: division by zero." in str(caught.value)
    assert "`seeds` must be how many" in str(caught.value)


def test_an_agent_may_have_steps_and_measures_of_its_own():
    table = study()
    table["agents"].append({**AGENT, "name": "qrcvar", "risks": "cvar(0.1)", "total_timesteps": 96})
    cells = read_study(table).cells
    assert {(one.agent, one.risk, one.total_timesteps) for one in cells} == {
        ("qrsrm", "cvar(0.5)", 64),
        ("qrcvar", "cvar(0.1)", 96),
    }
    del table["study"]["total_timesteps"]
    assert read_study(table).cells[0].total_timesteps == 768_000  # the preset's


def test_a_value_is_wrong_only_together_with_another_is_told_at_one_of_them():
    table = study()
    table["environments"] = [{**ENV, "initial_inventory": 5.0, "inventory_limit": 2.0}]
    with pytest.raises(StudyError, match=r"environments\[0\]\.initial_inventory|inventory_limit"):
        read_study(table)
