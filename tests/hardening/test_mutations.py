"""Whatever is done to a checkpoint, loading it gives an agent or a `CheckpointError`: soon, in
little memory, and without running anything."""

import os
import random
import sys

import numpy as np
import pytest

import downside as ds
from downside.train.monitor import saved_in

from ..train.tiny import CHUNK, SMALL, TWO, make, same
from .mutations import (
    Attempts,
    altered,
    altered_arrays,
    read_parts,
    scrambled,
    write_signed,
    write_text,
)
from .victim import actor_agent, dial_agent, lived_agent

CANARY = "import pathlib\npathlib.Path(__file__).with_suffix('.sang').touch()\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A checkpoint of a run in JAX, one in Gymnasium, one of PG-SRM, a dial, and AC-SRM."""
    folder = tmp_path_factory.mktemp("checkpoints")
    agents = [
        make().learn(TWO),
        ds.QRSRM("CartPole-v1", risk="cvar(0.5)", **SMALL).learn(50),
        actor_agent().learn(96),
        dial_agent().learn(96),
        lived_agent().learn(64),
    ]
    return [agent.save(folder / str(number)) for number, agent in enumerate(agents)]


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """A module that leaves a trace if it is imported, because a file names it."""
    (tmp_path / "canary.py").write_text(CANARY)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "canary.sang"
    sys.modules.pop("canary", None)


def try_scrambled(files, path, count, seed):
    draws, attempts = random.Random(seed), Attempts()
    originals = [file.read_bytes() for file in files]
    for _ in range(count):
        original = draws.choice(originals)
        data, what = original, ""
        while data == original:  # zeros over zeros
            data, what = scrambled(original, draws)
        path.write_bytes(data)
        attempts.load(path, what)
    return attempts


def try_altered(files, path, count, seed):
    draws, attempts = random.Random(seed), Attempts()
    originals = [read_parts(file) for file in files]
    for _ in range(count):
        about, arrays = draws.choice(originals)
        what = []
        if draws.random() < 0.2:
            arrays, change = altered_arrays(arrays, draws)
            what.append(change)
        for _ in range(draws.choice((1, 1, 1, 2)) if not what else 0):
            about, change = altered(about, draws)
            what.append(change)
        write_signed(path, about, arrays)
        attempts.load(path, "; ".join(what))
    return attempts


@pytest.mark.slow
def test_files_that_were_changed_at_random_are_refused(files, tmp_path):
    attempts = try_scrambled(files, tmp_path / "agent.safetensors", 100, seed=0)
    # A space in the header that has become another one changes nothing.
    assert attempts.refused >= 99


@pytest.mark.slow
def test_files_that_were_changed_on_purpose_are_refused_or_harmless(files, tmp_path, canary):
    path = tmp_path / "agent.safetensors"
    for file in files:  # a file that is only signed again is the same agent
        write_signed(path, *read_parts(file))
        assert same(ds.load(path), ds.load(file))
    attempts = try_altered(files, path, 100, seed=0)
    # Some changes are harmless, as another seed or version.
    assert attempts.refused >= 50
    assert attempts.loaded >= 5
    assert not canary.exists()


@pytest.mark.long
def test_a_thousand_files_changed_at_random(files, tmp_path, capsys):
    attempts = try_scrambled(files, tmp_path / "agent.safetensors", 1000, seed=1)
    assert attempts.refused >= 990
    with capsys.disabled():
        print(f"\nchanged at random, {attempts}")  # noqa: T201


@pytest.mark.long
def test_a_thousand_files_changed_on_purpose(files, tmp_path, canary, capsys):
    attempts = try_altered(files, tmp_path / "agent.safetensors", 1000, seed=1)
    assert attempts.loaded >= 50
    assert not canary.exists()
    with capsys.disabled():
        print(f"\nchanged on purpose, {attempts}")  # noqa: T201


HOSTILE = [
    (0, ("agent",), [], "`agent` must be a text"),
    (0, ("fitted",), None, r"`fitted` must be a whole number in \[0, 2147483647\], got None"),
    (0, ("env",), None, "`env` must be a JSON object"),
    (1, ("env", "num_envs"), -1, r"`env.num_envs` must be a whole number in \[1, 1024\], got -1"),
    (1, ("env", "num_envs"), "x", "`env.num_envs` must be a whole number"),
    (1, ("env", "num_envs"), 10**7, "`env.num_envs` must be a whole number"),
    (1, ("settings", "num_envs"), 10**7, "at most 1,024 are made because a file says so"),
    (1, ("settings", "buffer_size"), 2**31 - 1, "`buffer_size` must fit into memory"),
    (1, ("settings", "hidden_sizes"), [2**20] * 64, "It belongs to another environment or other"),
    (0, ("settings", "num_envs"), 2**24, "must hold at least one step of all 16777216 env"),
    (0, ("settings", "quantiles"), 2**20, "It belongs to another environment or other settings"),
    (0, ("env", "parameters", "periods"), 10**12, r"1000000000000, must be at most 10,000,000"),
    (0, ("env", "parameters", "num_trades"), 10**9 + 1, r"must be at most 10,000,000"),
    (0, ("env", "parameters", "num_trades"), 9_001, "It belongs to another environment or other"),
    (0, ("risk",), 5, "`risk` must be a text"),
    (0, ("risk",), "mean + " * 9_000 + "mean", "`risk` must be given"),
    (0, ("settings", "hidden_sizes"), None, "cannot be made again: .*hidden_sizes"),
    (0, ("settings", "tensorboard_log"), "/tmp", "There is no setting `tensorboard_log`"),
    (0, ("settings", "kappa"), float("nan"), "`settings.kappa` must be a finite number, got nan"),
    (0, ("history", 0, "timesteps"), -1, r"`history\[0\].timesteps` must be a number in \[0, 1e15"),
    (0, ("history", 0, "timesteps"), 10**6, "steps that fall"),
    (0, ("chunks",), 1, "at most `chunks` "),
    (0, ("levels",), 0, "has a measure of 0 levels, but it has 1"),
    (0, ("seed",), 2**63, "`seed` must be a whole number"),
    (0, ("env", "parameters", "sigma"), [[[[[[[[[1]]]]]]]]], "nested at most 8 deep"),
    (0, ("env", "parameters", "sigma"), [0] * 200_000, "must have at most 100,000 parts"),
    (0, ("env", "id"), "canary:Id-v0", r"Nothing is imported because a file says so: .*--import"),
    (0, ("env", "id"), "Nowhere-v0", "is not registered here. Import the module"),
    (2, ("settings", "step_networks"), 2**31, "`settings.step_networks` must be a whole number"),
    (2, ("settings", "step_networks"), 0, "It belongs to other settings|another environment or"),
    (2, ("settings", "step_networks"), "x", "cannot be made again: .*step_networks"),
    (2, ("settings", "batch_size"), 1, "cannot be made again: .*batch_size"),
    (2, ("settings", "hidden_sizes"), [2**20] * 64, "It belongs to another environment or other"),
    (2, ("settings", "total_timesteps"), -1, "cannot be made again: .*total_timesteps"),
    (2, ("settings", "updates"), None, "cannot be made again: .*updates"),
    (2, ("settings", "max_grad_norm"), float("inf"), "`settings.max_grad_norm` must be a finite"),
    (2, ("settings", "averaging"), 2.0, r"cannot be made again: .*averaging"),
    (2, ("env", "parameters", "periods"), 10**12, "must be at most 10,000,000"),
    (2, ("agent",), "QRSRM", "cannot be made again"),
    (3, ("dial", "levels"), [1.0], r"`dial.levels` must be a list of 2 to 2 entries"),
    (3, ("dial", "levels"), [0.5, 0.1], "holds a dial that is none: `levels` must be two numbers"),
    (3, ("dial", "start"), "exponential(4)", "holds a dial that is none"),
    (3, ("dial", "targets"), {"mean": [float("nan"), 0.0]}, "must be a finite number, got nan"),
    (3, ("dial", "targets"), {"mean": [0.0]}, "must be a list of 2 to 2 entries"),
    (3, ("risk",), "exponential(4)", "cannot be made again"),
    (4, ("settings", "n_steps"), 2**31, "`settings.n_steps` must be a whole number|made again"),
    (4, ("settings", "epochs"), 0, "cannot be made again: .*epochs"),
    (4, ("settings", "num_envs"), 10**7, "at most 1,024 are made because a file says so"),
    (4, ("settings", "hidden_sizes"), [2**20] * 64, "It belongs to another environment or other"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "place", "value", "message"), HOSTILE)
def test_a_header_that_lies_is_refused_before_anything_is_built(
    files, tmp_path, canary, number, place, value, message
):
    about, arrays = read_parts(files[number])
    parent = about
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    path = tmp_path / "agent.safetensors"
    write_signed(path, about, arrays)
    with pytest.raises(ds.CheckpointError, match=f"(?s){message}"):
        ds.load(path)
    Attempts().load(path, message)
    assert not canary.exists()


def test_a_class_that_a_header_names_has_the_same_limits(files, tmp_path):
    about, arrays = read_parts(files[0])
    about["env"]["id"] = "downside.envs:MeanReversion"
    path = tmp_path / "agent.safetensors"
    write_signed(path, about, arrays)
    assert same(ds.load(path), ds.load(files[0]))
    about["env"]["parameters"]["periods"] = 10**12
    write_signed(path, about, arrays)
    with pytest.raises(ds.CheckpointError, match=r"1000000000000, must be at most 10,000,000"):
        ds.load(path)


def test_a_description_that_no_parser_survives_is_refused(files, tmp_path):
    _, arrays = read_parts(files[0])
    path = tmp_path / "agent.safetensors"
    for text, message in (
        ("[" * 400_000, "is no JSON"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "is no JSON"),
        ("[" * 600_000, "more parts than any checkpoint"),
        ("9" * 10_000, "is no JSON"),
        ('{"schema": 1e400}', "does not say which schema it has, got inf"),
        ('{"schema": ' + "9" * 4_000 + "}", "has schema 9999"),
        ("", "is no JSON"),
    ):
        write_text(path, text, arrays)
        with pytest.raises(ds.CheckpointError, match=message):
            ds.load(path)


@pytest.mark.parametrize("number", [0, 1])
def test_weights_that_are_not_finite_are_refused(files, tmp_path, number):
    about, arrays = read_parts(files[number])
    name = next(name for name in arrays if name.endswith("best.networks.quantiles.head.bias"))
    changed = arrays[name].copy()
    changed[0] = np.nan
    path = tmp_path / "agent.safetensors"
    write_signed(path, about, arrays | {name: changed})
    with pytest.raises(ds.CheckpointError, match=r"numbers that are not finite, in .*head"):
        ds.load(path)


@pytest.mark.slow
def test_no_array_of_an_actor_may_be_nan(files, tmp_path):
    about, arrays = read_parts(files[2])
    path = tmp_path / "agent.safetensors"
    numbers = [name for name, array in arrays.items() if array.dtype.kind == "f" and array.size]
    assert len(numbers) > 20
    for name in numbers:
        changed = np.full_like(arrays[name], np.nan)
        write_signed(path, about, arrays | {name: changed})
        with pytest.raises(ds.CheckpointError, match="holds numbers that are not finite"):
            ds.load(path)


# --- what is no file at all -------------------------------------------------------------------


def as_pipe(path):
    os.mkfifo(path)


def as_folder(path):
    path.mkdir()


def as_loop(path):
    path.symlink_to(path)


def as_device(path):
    path.symlink_to("/dev/zero")


def as_nothing(path):
    path.symlink_to(path.with_name("gone"))


def as_zeros(path):
    path.write_bytes(bytes(1000))


@pytest.mark.parametrize(
    ("unreadable", "message"),
    [
        (as_pipe, "got a pipe"),
        (as_device, "got a device"),
        (as_zeros, "no whole safetensors"),
        (as_nothing, "is a link that leads to no file"),
        (as_loop, "is a link that leads to no file"),
    ],
)
def test_only_a_regular_file_is_read(tmp_path, unreadable, message):
    path = tmp_path / "agent.safetensors"
    unreadable(path)
    with pytest.raises(ds.CheckpointError, match=message):
        ds.load(path)


UNREADABLE = [as_pipe, as_folder, as_loop, as_device, as_nothing, as_zeros]


@pytest.mark.slow
@pytest.mark.parametrize("unreadable", UNREADABLE, ids=lambda kind: kind.__name__)
def test_any_unreadable_checkpoint_is_passed_over_and_set_aside_when_training_goes_on(
    tmp_path, unreadable
):
    agent = make().learn(3 * CHUNK, callback=ds.Checkpoints(tmp_path, every_steps=1, keep=2))
    latest, before = saved_in(tmp_path)
    latest.unlink()
    unreadable(latest)
    with pytest.warns(UserWarning, match="Taking the one before it"):
        loaded = ds.load(tmp_path)
    assert loaded.num_timesteps == TWO
    loaded.resume(callback=ds.Checkpoints(tmp_path, every_steps=1))
    assert same(loaded, agent)
    assert [path.name for path in saved_in(tmp_path)] == [latest.name, before.name]
    assert same(ds.load(tmp_path), agent)
    assert os.path.lexists(f"{latest}.aside-1")
