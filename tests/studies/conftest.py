"""A finished study, and an engine that a test can look into."""

import shutil

import pytest

import downside as ds
from downside.studies import driver
from downside.studies.engines import AbstractEngine, Report
from downside.studies.work import work

from .tiny import SPEED, study


class Inline(AbstractEngine):
    """Runs every task at once, in this process, after what `fate` has to say about it."""

    def __init__(self, fate=lambda key, task: None):
        self.fate, self.reports, self.submitted, self.stopped = fate, [], [], False

    @property
    def room(self):
        return 1 - len(self.reports)

    def submit(self, key, task):
        self.submitted.append(key)
        self.reports.append(self.fate(key, task) or Report(key, **work(**task)))

    def poll(self, seconds):
        reports, self.reports = self.reports, []
        return reports

    def end(self, key, *, at_once):
        pass

    def stop(self, patience):
        self.stopped = True

    def close(self):
        pass


@pytest.fixture
def inline(monkeypatch):
    """`ds.sweep` with an engine that a test can look into."""
    engine = Inline()
    monkeypatch.setattr(driver, "make_engine", lambda *_, **__: engine)
    monkeypatch.setattr(driver, "_TICK", 0.0)
    return engine


@pytest.fixture(scope="session")
def done(tmp_path_factory):
    """A study of two measures and two seeds, run by two processes."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SPEED.items():
            patch.setenv(name, value)
        return ds.sweep(study(risks=["cvar(0.5)", "cvar(0.2)"]), folder=folder, workers=2)


@pytest.fixture
def copied(done, tmp_path):
    """Its folder again, to change something in."""
    return shutil.copytree(done.folder, tmp_path / "copy")
