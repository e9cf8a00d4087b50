"""Studies are read and checked as a whole, before anything starts."""

import copy

import pytest

import downside as ds
from downside.studies import StudyError, read_study

from .tiny import AGENT, ENV, as_toml, study

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
ERRORS = [
    ("agnets", "A study has no `agnets`. Did you mean 'agents'?"),
    ("study.seeeds", "[study] has no `seeeds`. Did you mean 'seeds'?"),
    ("study.total_timesteps", "`total_timesteps` must be a whole number >= 1, got 0."),
    ("study.risks[1]", "There is no risk measure 'cvr'. Did you mean 'cvar'?"),
    ("study.risks[2]", "`alpha` must be in (0, 1], got 1.5."),
    ("environments[0].id", "'downside/MeanRevesion-v0'. Did you mean 'downside/MeanReversion-v0'?"),
    ("environments[1].period", "has no `period`. Did you mean 'periods'?"),
    ("environments[1].sigma[1]", "`sigma` must be a finite number in [0, inf), got -1.0."),
    ("environments[2].periods[1]", "`periods` must be a whole number >= 1, got 0."),
    ("environments[3].length", "unexpected keyword argument 'length'"),
    ("environments[4]", "`env` must have discrete actions"),
    (
        "agents[0].name",
        "`name` must be one of qrsrm, qrcvar, qricvar, qrdqn, pgsrm, acsrm, got 'qrsmr'.",
    ),
    ("agents[1].learning_rte", "An agent has no `learning_rte`. Did you mean 'learning_rate'?"),
    ("agents[1].gamma[1]", "`gamma` must be a number in (0, 1], got 1.2."),
    ("agents[1].risks", "`risk` must be a single CVaR for QR-CVaR"),
    ("agents[2].updates_per_step", "must be a multiple of `updates_per_step` (3), got 400."),
]


def test_all_errors_are_reported_together_with_the_paths_of_their_keys(tmp_path):
    path = tmp_path / "tails.toml"
    path.write_text(WRONG)
    with pytest.raises(StudyError) as caught:
        read_study(path)
    first, *lines = str(caught.value).splitlines()
    assert first == f"the study has {len(ERRORS)} errors; nothing was started."
    reported = [line for line in lines if line.startswith("tails.toml: ")]
    assert len(reported) == len(ERRORS)
    for line, (key, text) in zip(reported, ERRORS, strict=True):
        assert line.startswith(f"tails.toml: {key}: ")
        assert text in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[study\n", r"study.toml: Expected '\]' .*line 1"),
        ("[study]\nname = 'a'\nname = 'b'\n", r"study.toml: Cannot overwrite a value .*line 3"),
        ("", r"\[study\] needs a `name`"),
    ],
)
def test_a_file_that_is_no_study_is_refused(tmp_path, text, message):
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(StudyError, match=message):
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
    entry = table["study"] if part == "study" else table[part][0]
    entry.update(changes)
    for name in [name for name, value in changes.items() if value is None]:
        del entry[name]
    return table


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("study", {"name": "a/b"}, r"study.name: `name` must be letters, digits .* got 'a/b'"),
        ("study", {"seeds": 0}, r"study.seeds: `seeds` must be how many, a whole number >= 1"),
        ("study", {"seeds": [0, -1]}, r"study.seeds\[1\]: A seed must be a whole number >= 0"),
        ("study", {"seeds": True}, r"`seeds` must be how many"),
        ("study", {"episodes": 1}, r"`episodes` must be a whole number >= 2, got 1"),
        ("study", {"risks": []}, r"study.risks: `risks` must be measures"),
        ("study", {"risks": ["dial"]}, r"study.risks\[0\]: A study takes a measure .* --dial"),
        ("study", {"risks": None}, r"agents\[0\]: There are no `risks`"),
        ("study", {"callback": "downside:Nothing"}, r"study.callback: .* cannot be imported"),
        ("study", {"callback": "downside"}, r"must be given as package.module:Class"),
        ("study", {"measures": ["men"]}, r"study.measures\[0\]: There is no risk measure 'men'"),
        ("environments", {"id": None}, r"environments\[0\].id: An environment needs an `id`"),
        ("environments", {"id": "nomodule:Id-v0"}, r"names the module 'nomodule', which"),
        ("environments", {"sigma": []}, r"environments\[0\].sigma: `sigma` has no values"),
        ("environments", {"sigma": {1, 2}}, r"`sigma` must be numbers, text, or lists"),
        ("agents", {"name": None}, r"An agent needs a `name`: one of qrsrm"),
        ("agents", {"preset": "papr"}, r"`preset` must be one of default, paper, got 'papr'"),
        (
            "agents",
            {"hidden_sizes": [[16], [0]]},
            r"agents\[0\].hidden_sizes\[1\]: `hidden_sizes` must be widths",
        ),
        ("agents", {"name": "qrdqn", "risks": "cvar(0.2)"}, r"`risk` must be the mean for QR-DQN"),
    ],
)
def test_a_study_from_python_is_checked_in_the_same_way(part, changes, message):
    table = changed(part, **changes)
    with pytest.raises(StudyError, match=message):
        read_study(table)


def test_parts_that_are_no_tables_are_refused():
    with pytest.raises(StudyError, match=r"`agents` must be tables, each under \[\[agents\]\]"):
        read_study({**study(), "agents": {"name": "qrsrm"}})
    with pytest.raises(StudyError, match=r"A study needs at least one \[\[environments\]\]"):
        read_study({**study(), "environments": []})
    with pytest.raises(StudyError, match=r"`study` must be a table, got 3"):
        read_study({**study(), "study": 3})


# --- the grid ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_lists_are_swept_and_everything_is_combined(tmp_path):
    table = study(risks=["mean", "cvar(20%)"], seeds=[3, 5])
    table["environments"][0]["sigma"] = [0.5, 1.0]
    table["environments"].append({"id": "CartPole-v1"})
    table["agents"] = [{"name": "qrsrm", "hidden_sizes": [[16], [16, 16]]}, {"name": "qrdqn"}]
    path = tmp_path / "study.toml"
    path.write_text(as_toml(table))
    cells = read_study(path).runs
    # 3 environments x (2 networks x 2 risks + the mean alone) x 2 seeds.
    assert len(cells) == 3 * (2 * 2 + 1) * 2 == len({spec.key for spec in cells})
    assert {spec.risk for spec in cells if spec.agent == "qrdqn"} == {"mean"}
    assert {spec.risk for spec in cells} == {"mean", "cvar(0.2)"}
    assert {tuple(spec.settings["hidden_sizes"]) for spec in cells if spec.agent == "qrsrm"} == {
        (16,),
        (16, 16),
    }
    assert {spec.seed for spec in cells} == {3, 5}
    assert [spec.key for spec in read_study(table).runs] == [spec.key for spec in cells]


def test_the_same_run_has_the_same_key_however_it_is_written():
    key = read_study(study()).runs[0].key
    table = study(risks=["CVaR( 50% )"], episodes=200, measures=["mean"])
    table["agents"][0]["gamma"] = 0.99  # the default
    table["environments"][0].update(sigma=1, inventory_limit=2)
    assert read_study(table).runs[0].key == key


def test_whatever_changes_a_run_changes_its_key():
    keys = {spec.key for spec in read_study(study()).runs}
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
        keys |= {spec.key for spec in read_study(table).runs}
    assert len(keys) == 2 + 5 * 2 + 1


def test_every_run_knows_how_many_episodes_it_is_valued_in():
    # 100,000 where the environment is written in JAX and 1,000 elsewhere, as `ds.evaluate` has it.
    table = changed("study", episodes=None)
    table["environments"].append({"id": "CartPole-v1"})
    table["agents"] = [{"name": "qrdqn"}]
    cells = read_study(table).runs
    assert {(spec.bare_id, spec.episodes) for spec in cells} == {
        ("downside/MeanReversion-v0", 100_000),
        ("CartPole-v1", 1_000),
    }
    for spec in cells[::2]:
        assert spec.make_agent().default_episodes == spec.episodes
    assert {spec.episodes for spec in read_study(study(episodes=7)).runs} == {7}


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
    cells = read_study(table).runs
    assert {(spec.agent, spec.risk, spec.total_timesteps) for spec in cells} == {
        ("qrsrm", "cvar(0.5)", 64),
        ("qrcvar", "cvar(0.1)", 96),
    }
    del table["study"]["total_timesteps"]
    assert read_study(table).runs[0].total_timesteps == 768_000  # the preset's


def test_a_value_is_wrong_only_together_with_another_is_told_at_one_of_them():
    table = study()
    table["environments"] = [{**ENV, "initial_inventory": 5.0, "inventory_limit": 2.0}]
    with pytest.raises(StudyError, match=r"environments\[0\]\.initial_inventory|inventory_limit"):
        read_study(table)


def test_a_callback_is_part_of_the_key_and_each_run_has_its_own():
    plain, called = (
        read_study(study(**more)).runs[0] for more in ({}, {"callback": "downside:Callback"})
    )
    assert plain.make_callback() is None
    assert isinstance(called.make_callback(), ds.Callback)
    assert called.make_callback() is not called.make_callback()
    assert plain.key != called.key


def test_runs_that_differ_in_their_seed_alone_share_a_group():
    first, second = read_study(study()).runs
    assert first.key != second.key
    assert (first.group, first.group_key) == (second.group, second.group_key)
    other = read_study(study(risks=["cvar(0.4)"])).runs[0]
    assert first.group_key != other.group_key
