"""Checkpoints: whole, exact, and unable to run anything."""

import ast
import inspect
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import downside as ds
from downside.envs import MeanReversion
from downside.train.checkpoints import checkpoint, loading, schema
from downside.train.monitor import saved_in

from ..killed import CHUNKS
from ..tiny import (
    CHUNK,
    COMMON,
    ENV,
    PAPER,
    SMALL,
    TINY,
    TWO,
    all_equal,
    experience_of,
    make,
    same,
    weights,
)
from ..toys import Noisy

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def trained():
    return make().learn(TWO)


@pytest.fixture
def saved(trained, tmp_path):
    return trained.save(tmp_path / "agent")


# --- exactness --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_loaded_agent_is_the_one_that_was_saved(trained, saved):
    agent = ds.load(saved)
    assert same(agent, trained)
    assert isinstance(agent, ds.QRSRM)
    assert agent.history == trained.history
    assert agent.settings == trained.settings
    assert agent.risk == trained.risk
    assert agent.env == trained.env
    assert agent.simulate_returns(20, seed=3).tolist() == trained.simulate_returns(20, 3).tolist()


def test_the_suffix_may_be_left_out(trained, tmp_path):
    path = trained.save(tmp_path / "agent.v1")
    assert path.name == "agent.v1.safetensors"
    assert same(ds.load(tmp_path / "agent.v1"), ds.load(path))


@pytest.mark.slow
@pytest.mark.parametrize("evaluation_fraction", [0.0, 0.5])
def test_training_in_two_parts_is_training_in_one(tmp_path, evaluation_fraction):
    whole = make(evaluation_fraction=evaluation_fraction).learn(3 * CHUNK)
    stopped = make(evaluation_fraction=evaluation_fraction)
    next(stopped.training(3 * CHUNK))
    path = stopped.save(tmp_path / "part")
    loaded = ds.load(path)
    assert (loaded.num_timesteps, loaded._driver.fitted) == (CHUNK, 0)
    loaded.resume()
    assert same(loaded, whole)
    assert loaded.simulated_steps == whole.simulated_steps
    assert loaded._driver.fitted == whole._driver.fitted == (1 if evaluation_fraction else 0)


@pytest.mark.slow
def test_the_paper_preset_and_other_agents_come_back_too(tmp_path):
    agent = ds.QRiCVaR(ENV, risk="dual_power(2)", **COMMON).learn(CHUNK)
    assert same(ds.load(agent.save(tmp_path / "icvar")), agent)
    paper = ds.QRSRM(ENV, risk="cvar(0.5)", **PAPER).learn(400)
    again = ds.load(paper.save(tmp_path / "paper"))
    assert same(again, paper)
    assert again.preset == "paper"
    assert again.settings == paper.settings


@pytest.mark.slow
def test_what_no_id_makes_again_must_be_handed_over(tmp_path):
    class Own(MeanReversion):
        pass

    agent = ds.QRSRM(Own(periods=3), risk="cvar(0.5)", **TINY).learn(CHUNK)
    path = agent.save(tmp_path / "own")
    with pytest.raises(ValueError, match=r"`env` must be given: .* was trained in Own"):
        ds.load(path)
    assert same(ds.load(path, Own(periods=3)), agent)


def test_an_agent_that_has_not_learned_cannot_be_saved(tmp_path):
    with pytest.raises(RuntimeError, match="has not learned anything yet"):
        make().save(tmp_path / "nothing")


def test_loading_as_another_class_is_refused(saved):
    with pytest.raises(ValueError, match=r"holds a QRSRM, not a QRDQN\. Use ds\.load"):
        ds.QRDQN.load(saved)


# --- Gymnasium environments -------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_in_gymnasium_is_restored_with_all_it_lived_through(tmp_path):
    agent = ds.QRSRM(Noisy(), risk="cvar(0.5)", averaging=0.5, **SMALL).learn(200)
    path = agent.save(tmp_path / "gymnasium")
    loaded = ds.load(path, Noisy())
    assert same(loaded, agent)
    experience, restored = map(experience_of, (agent, loaded))
    # 50 steps of warm-up and 200 of training, in episodes of four steps.
    assert int(restored.replay.added) == 250
    assert restored.replay.filled().reward.std() > 0.0
    assert (restored.replay.successor >= 0).sum() > 50
    assert len(restored.episodes.filled()) == 62
    assert len(restored.starts.filled()) == 63
    for name in ("episodes", "starts", "start_masks"):
        ring, other = getattr(experience, name), getattr(restored, name)
        np.testing.assert_array_equal(ring.filled(), other.filled())
        assert other.rows is not ring.rows
    average = loaded._driver.state.average
    assert int(average.count) == 4
    assert all_equal(weights(average.networks), weights(agent._driver.state.average.networks))
    # The steps of the loaded agent are not written into the memory of the first.
    loaded.learn(25, reset_num_timesteps=False)
    assert (int(experience.replay.added), int(restored.replay.added)) == (250, 275)


@pytest.mark.slow
def test_a_run_in_gymnasium_goes_on_from_its_checkpoint_with_new_episodes(tmp_path):
    # What follows a checkpoint depends on it alone: whoever goes on from it gets the same agent,
    # be it the process that wrote it or another one, now or later.
    first = ds.QRSRM(Noisy(), risk="cvar(0.5)", **SMALL).learn(200)
    path = first.save(tmp_path / "gymnasium")
    first.learn(200, reset_num_timesteps=False)
    second = ds.load(path, Noisy()).learn(200, reset_num_timesteps=False)
    assert not same(ds.load(path, Noisy()), second)
    assert same(first, second)


@pytest.mark.slow
def test_a_registered_environment_is_made_again_with_its_parameters(tmp_path):
    agent = ds.QRDQN("FrozenLake-v1", env_kwargs={"is_slippery": False}, **SMALL).learn(200)
    again = ds.load(agent.save(tmp_path / "lake"))
    assert again.env_spec.parameters == {"is_slippery": False}
    assert same(again, agent)


# --- kill -9 ----------------------------------------------------------------------------------


def start(folder, cache, *arguments):
    command = [sys.executable, "-m", "tests.train.killed", str(folder), str(cache), *arguments]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
    )


@pytest.mark.slow
def test_killed_at_any_point_and_resumed_it_is_the_run_that_was_never_killed(tmp_path):
    whole = make().learn(CHUNKS * CHUNK)
    draws, cache = np.random.default_rng(0), tmp_path / "cache"
    folder, kills, resumed = tmp_path / "run", 0, []
    while True:
        with start(folder, cache, *resumed) as process:
            assert process.stdout is not None
            lines = int(draws.integers(1, 5))  # outer steps until it is killed, wherever it is then
            output = [process.stdout.readline() for _ in range(lines)]
            if "done\n" in output or "" in output:
                _, error = process.communicate()
                assert process.returncode == 0, error
                break
            process.send_signal(signal.SIGKILL)
        kills, resumed = kills + 1, ["resume"]
    assert kills >= CHUNKS // 6
    agent = ds.load(folder)
    assert same(agent, whole)
    for name in ("timesteps", "simulated_steps", "value"):
        assert [record[name] for record in agent.history] == [
            record[name] for record in whole.history
        ]


def test_killed_while_saving_the_checkpoint_before_is_still_there(trained, saved, monkeypatch):
    before = saved.read_bytes()

    whole = safetensors.numpy.save_file

    def half(tensors, path, metadata=None):
        whole(tensors, path, metadata=metadata)
        os.truncate(path, 1000)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.safetensors.numpy, "save_file", half)
    with pytest.raises(KeyboardInterrupt):
        trained.save(saved)
    assert saved.read_bytes() == before
    assert sorted(path.name for path in saved.parent.iterdir()) == [saved.name]


@pytest.mark.slow
def test_a_full_disk_is_an_error_that_says_so_and_loses_nothing(saved):
    # A limit on the size of files does to a write what a full disk does.
    program = (
        "import resource, downside as ds\n"
        f"agent = ds.load({str(saved)!r})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        f"agent.save({str(saved)!r})\n"
    )
    before = saved.read_bytes()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode != 0
    assert "could not be written" in done.stderr
    assert "Make room on the disk" in done.stderr
    assert saved.read_bytes() == before


# --- files that are damaged, or meant to do damage ------------------------------------------------


def rewrite(path, change):
    """The file with its header changed by `change(header)`; the tensors stay as they are."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    text = json.dumps(change(header) or header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


def set_about(header, **changes):
    about = json.loads(header["__metadata__"]["about"])
    header["__metadata__"]["about"] = json.dumps({**about, **changes})


def resign(path):
    """Gives a changed file a digest that fits, as somebody who knows the format could."""
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = dict(file.metadata())
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    metadata["sha256"] = checkpoint._digest(arrays, metadata["about"])
    safetensors.numpy.save_file(arrays, path, metadata=metadata)


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def empty(path):
    path.write_bytes(b"")


def endless_header(path):
    path.write_bytes(struct.pack("<Q", 2**62) + path.read_bytes()[8:])


def pickled(path):
    path.write_bytes(b"\x80\x04\x95cposix\nsystem\n(S'touch /tmp/owned'\ntR.")


def one_bit(path):
    raw = bytearray(path.read_bytes())
    raw[-1000] ^= 1
    path.write_bytes(bytes(raw))


def foreign(path):
    safetensors.numpy.save_file({"weight": np.zeros(3, np.float32)}, path)


def text_changed(path):
    rewrite(path, lambda header: set_about(header, seed=7))


def newer(path):
    rewrite(path, lambda header: set_about(header, schema=99))
    resign(path)


def no_schema(path):
    rewrite(path, lambda header: set_about(header, schema="import os"))
    resign(path)


def no_json(path):
    rewrite(path, lambda header: header["__metadata__"].update(about="{'a': __import__('os')}"))
    resign(path)


def another_class(path):
    rewrite(path, lambda header: set_about(header, agent="os.system"))
    resign(path)


def class_that_is_no_text(path):
    rewrite(path, lambda header: set_about(header, agent=["QRSRM"]))
    resign(path)


def missing(path):
    def change(header):
        about = json.loads(header["__metadata__"]["about"])
        del about["settings"]
        header["__metadata__"]["about"] = json.dumps(about)

    rewrite(path, change)
    resign(path)


def enormous(path):
    settings = {**make().settings.__dict__, "buffer_size": 2 * 10**9}
    rewrite(path, lambda header: set_about(header, settings=settings))
    resign(path)


def other_network(path):
    settings = {**make().settings.__dict__, "hidden_sizes": [32, 32]}
    rewrite(path, lambda header: set_about(header, settings=settings))
    resign(path)


def code_as_setting(path):
    settings = {**make().settings.__dict__, "__class__": "os.system"}
    rewrite(path, lambda header: set_about(header, settings=settings))
    resign(path)


def code_as_risk(path):
    rewrite(path, lambda header: set_about(header, risk="__import__('os').system('true')"))
    resign(path)


def module_as_environment(path):
    spec = {"description": "", "id": "antigravity:CartPole-v1", "parameters": {}, "num_envs": None}
    rewrite(path, lambda header: set_about(header, env=spec))
    resign(path)


DAMAGE = [
    (cut, "is no whole safetensors file"),
    (empty, "is no whole safetensors file"),
    (endless_header, "is no whole safetensors file"),
    (pickled, "is no whole safetensors file"),
    (one_bit, "its digest does not match"),
    (foreign, "not one that Downside wrote"),
    (text_changed, "its digest does not match"),
    (newer, r"has schema 99; this version of Downside reads up to 1\. Upgrade"),
    (no_schema, "does not say which schema it has, got 'import os'"),
    (no_json, "is no JSON"),
    (another_class, "an agent of class 'os.system', which is none of QRSRM, QRCVaR"),
    (class_that_is_no_text, r"`agent` must be a text of at most 500 characters, got \['QRSRM'\]"),
    (missing, "it does not say `settings`"),
    (enormous, "it must be .*It belongs to another environment or other settings"),
    (other_network, "it must be .*It belongs to another environment or other settings"),
    (code_as_setting, "cannot be made again: There is no setting `__class__`"),
    (module_as_environment, "Nothing is imported because a file says so: import it yourself"),
    (code_as_risk, "`risk` must be given: .* which no text makes again"),
]


@pytest.mark.parametrize(
    ("damage", "reason"), DAMAGE, ids=[damage.__name__ for damage, _ in DAMAGE]
)
def test_a_file_that_is_not_what_it_was_is_refused_with_a_reason(saved, damage, reason):
    damage(saved)
    with pytest.raises(ValueError, match=reason):
        ds.load(saved)
    assert not Path("/tmp/owned").exists()
    assert "antigravity" not in sys.modules


def test_a_file_that_is_not_there_is_told_with_those_that_are(saved):
    with pytest.raises(FileNotFoundError, match=r"There is no checkpoint .*agnet.*agent\.safe"):
        ds.load(saved.with_name("agnet"))


def test_nothing_on_the_way_in_can_run_code():
    for module in (checkpoint, loading, schema):
        tree = ast.parse(inspect.getsource(module))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        forbidden = {"pickle", "eval", "exec", "compile", "allow_pickle", "__import__", "marshal"}
        forbidden |= {"dill", "cloudpickle", "joblib", "shelve", "import_module", "getattr"}
        assert not forbidden & (names | imported)


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path):
    agent = make()
    agent.learn(3 * CHUNK, callback=ds.Checkpoints(tmp_path, every_steps=1, keep=2))
    latest, before = saved_in(tmp_path)
    cut(latest)
    with pytest.warns(UserWarning, match="Taking the one before it"):
        loaded = ds.load(tmp_path)
    assert loaded.num_timesteps == 2 * CHUNK
    assert same(loaded, ds.load(before))


def test_a_folder_without_a_checkpoint_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no checkpoint in"):
        ds.load(tmp_path)


@pytest.mark.slow
def test_another_environment_is_named_before_its_arrays(tmp_path):
    path = make().learn(CHUNK).save(tmp_path / "agent")
    other = MeanReversion(periods=3, num_trades=9, inventory_limit=2.0)
    with pytest.raises(
        ds.CheckpointError,
        match=r"^`env` must be an environment like the one that the agent in .* was trained in, "
        r"downside/MeanReversion-v0, got downside/MeanReversion-v0, with 3 numbers to see and 9 "
        r"actions\. In detail: .*it must be",
    ):
        ds.load(path, env=other)
