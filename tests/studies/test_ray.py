"""The Ray engine: the same results, on a cluster that only this machine can reach."""

import importlib.util
import json
import os
import subprocess
import sys
import types
import warnings

import numpy as np
import pytest

import downside as ds
from downside.studies.engines.ray import RayEngine

from ..train.tiny import CHUNK
from .kills import check_alone, check_ledger, drive, under_fire
from .tiny import SPEED, as_toml, study

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="there is no Ray here: pip install ray"
)


def test_without_ray_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    with pytest.raises(RuntimeError, match=r"needs Ray: pip install 'downside\[ray\]'"):
        ds.sweep(study(), engine="ray", folder=tmp_path)


class _Cluster:
    """As much of Ray as the engine asks at its start: one machine with two cores."""

    def __init__(self, *, connected: bool):
        self.connected = connected

    def is_initialized(self):
        return self.connected

    def init(self, **_):
        self.connected = True

    def shutdown(self):
        self.connected = False

    def cluster_resources(self):
        return {"CPU": 4.0}

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": 2.0}}] * 2 + [
            {"Alive": False, "Resources": {"CPU": 64.0}}
        ]

    def remote(self, function):
        return types.SimpleNamespace(options=lambda **_: function)


@pytest.mark.parametrize(
    ("connected", "cpus", "message"),
    [
        (False, 2, None),
        (False, 3, "No machine of the cluster has 3 CPUs"),
        (True, 2, "connected to Ray already"),
    ],
)
def test_a_cluster_that_cannot_do_what_is_asked_is_not_waited_for_in_silence(
    monkeypatch, connected, cpus, message
):
    monkeypatch.setitem(sys.modules, "ray", _Cluster(connected=connected))
    monkeypatch.setitem(sys.modules, "ray.exceptions", types.ModuleType("ray.exceptions"))
    expected = (
        warnings.catch_warnings() if message is None else pytest.warns(UserWarning, match=message)
    )
    with expected:
        if message is None:
            warnings.simplefilter("error")
        RayEngine(address="auto", workers=None, cpus_per_cell=cpus, gpus_per_cell=0.0)


@needs_ray
@pytest.mark.long
def test_both_engines_give_the_same_results_bit_for_bit(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(as_toml(study(risks=["cvar(0.5)", "mean"])))
    for engine in ("local", "ray"):
        process = drive(path, tmp_path / engine, "--engine", engine)
        output, _ = process.communicate()
        assert process.returncode == 0, output
    names = sorted(local.parent.name for local in (tmp_path / "local").glob("*/returns.npy"))
    assert len(names) == 4
    for name in names:
        local, other = (np.load(tmp_path / at / name / "returns.npy") for at in ("local", "ray"))
        np.testing.assert_array_equal(local, other)
        files = [sorted((tmp_path / at / name).glob("checkpoint-*")) for at in ("local", "ray")]
        first, second = (ds.load(reported[-1]) for reported in files)
        np.testing.assert_array_equal(
            first.simulate_returns(50, seed=7), second.simulate_returns(50, seed=7)
        )
    assert (tmp_path / "local" / "summary.csv").read_text() == (
        tmp_path / "ray" / "summary.csv"
    ).read_text()


@needs_ray
@pytest.mark.long
def test_thirty_runs_under_fire_on_ray(tmp_path):
    path, folder = tmp_path / "study.toml", tmp_path / "runs"
    path.write_text(
        as_toml(study(risks=["cvar(0.5)", "cvar(0.2)"], seeds=15, total_timesteps=30 * CHUNK))
    )
    kinds = ["worker", "worker", "driver", "worker", "driver", "worker"]
    hit = under_fire(path, folder, kinds, 2, "--engine", "ray", seconds=600.0)
    assert len(hit) == len(kinds)
    check_ledger(path, folder, hit)
    check_alone(path, folder, sorted(set.union(*hit)))


LISTENING = """
import json, os, sys
from pathlib import Path
from downside.studies.engines.ray import RayEngine


def family(own):
    out = [own]
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == own:
            out += family(int(path.parent.name))
    return out


with RayEngine(address=None, workers=None, cpus_per_cell=1, gpus_per_cell=0.0) as engine:
    inodes = set()
    for process in family(os.getpid()):
        for one in Path(f"/proc/{process}/fd").glob("*"):
            try:
                inodes.add(os.readlink(one))
            except OSError:
                pass
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A" and f"socket:[{parts[9]}]" in inodes:
                found.append(parts[1].rpartition(":")[0])
    print(json.dumps({"addresses": found, "room": engine.room}))
"""


@needs_ray
@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="there is no /proc here")
def test_a_cluster_of_ours_listens_to_this_machine_alone():
    done = subprocess.run(
        [sys.executable, "-c", LISTENING],
        capture_output=True,
        text=True,
        env={**os.environ, **SPEED},
    )
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout.splitlines()[-1])
    assert len(reported["addresses"]) >= 3
    # 127.0.0.1 as /proc writes it, also as an address of version 6.
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "0" * 24 + "01000000"}
    assert set(reported["addresses"]) <= loopback
    assert reported["room"] == len(os.sched_getaffinity(0))
