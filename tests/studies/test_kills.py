"""Whatever is killed, nothing is lost and nothing is run twice."""

import pytest

from ..train.tiny import CHUNK
from .kills import check_alone, check_ledger, under_fire
from .tiny import as_toml, study

STEPS = 30 * CHUNK


@pytest.mark.long
def test_a_worker_and_the_driver_are_killed_and_nothing_is_lost(tmp_path):
    path, folder = tmp_path / "study.toml", tmp_path / "runs"
    path.write_text(as_toml(study(seeds=6, total_timesteps=STEPS)))
    hit = under_fire(path, folder, ["worker", "driver"], 0, "--workers", "1")
    assert len(hit) == 2
    check_ledger(path, folder, hit)
    check_alone(path, folder, sorted(hit[0]))


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_thirty_runs_under_fire(tmp_path, seed):
    path, folder = tmp_path / "study.toml", tmp_path / "runs"
    path.write_text(
        as_toml(study(risks=["cvar(0.5)", "cvar(0.2)"], seeds=15, total_timesteps=STEPS))
    )
    kinds = ["worker", "worker", "driver", "worker", "driver", "worker"]
    hit = under_fire(path, folder, kinds, seed, seconds=600.0)
    assert len(hit) == len(kinds)
    check_ledger(path, folder, hit)
    check_alone(path, folder, sorted(set.union(*hit)))
