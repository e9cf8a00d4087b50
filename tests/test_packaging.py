"""What is published: wheel and sdist, and the wheel in an empty environment."""

import re
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

import downside as ds

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*command, cwd=None):
    """Runs a command; what it printed."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def new_environment(folder, *packages):
    """An empty environment with these packages; its Python."""
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", *packages)
    return python


def test_the_versions_that_are_promised_are_those_that_are_tried():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    tried = re.search(r"python: (\[.*\])", workflow)
    assert tried is not None
    classifiers = [text.rpartition(" :: ")[2] for text in PROJECT["classifiers"]]
    promised = [text for text in classifiers if re.fullmatch(r"3\.\d+", text)]
    assert promised == re.findall(r"3\.\d+", tried[1]) == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={promised[0]}"


def test_all_files_have_the_same_version():
    version = PROJECT["version"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^version: {re.escape(version)}$", citation, re.MULTILINE)
    assert re.search(
        rf"^## {re.escape(version)}$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert ds.__version__ == version


@pytest.mark.long
def test_the_wheel_in_an_empty_environment_runs_the_first_example(tmp_path, capsys):
    python = new_environment(tmp_path / "build", "hatchling>=1.27,<2")
    run(python, "-m", "hatchling", "build", "-d", tmp_path / "dist", cwd=ROOT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (source,) = (tmp_path / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "downside/py.typed" in names
    assert "downside/reporting/assets/report.html.j2" in names
    assert {name.split("/")[0] for name in names} == {
        "downside",
        f"downside-{PROJECT['version']}.dist-info",
    }
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/downside/__init__.py"} <= inside
    assert not [name for name in inside if name.startswith((".venv", "build/", "runs/"))]

    begin = time.monotonic()
    python = new_environment(tmp_path / "empty", wheel)
    installed = time.monotonic() - begin
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    begin = time.monotonic()
    run(python, "-c", blocks[0], cwd=tmp_path)
    took = time.monotonic() - begin
    printed = run(tmp_path / "empty" / "bin" / "downside", "risks", cwd=tmp_path)
    assert "cvar(0.2)" in printed
    with capsys.disabled():
        print(  # noqa: T201
            f"\nthe wheel: installed in {installed:.0f} s, first example in {took:.0f} s"
        )
