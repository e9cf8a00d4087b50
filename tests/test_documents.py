"""Every Python block of the documents runs, page by page, from top to bottom; the site builds."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import downside as ds

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
CACHE = {  # what is compiled is kept between runs, as in the other tests
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
}
KINDS = (
    "tutorials",
    "how-to",
    "reference",
    "algorithms",
    "explanation",
    "gallery",
    "evidence",
    "research-notes",
)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def name(page):
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=name
)
def test_the_code_on_the_page_runs(page, tmp_path):
    code = "\n".join(BLOCK.findall(page.read_text()))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **CACHE, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path):
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(tmp_path / "doctrees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(tmp_path / "site")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").exists()


def test_the_reference_of_settings_is_made_from_the_code():
    module = runpy.run_path(str(ROOT / "docs" / "settings.py"))
    assert module["PAGE"].read_text() == module["page"](), "run `python docs/settings.py`"


def test_the_figures_of_the_readme_are_those_of_the_results():
    module = runpy.run_path(str(ROOT / "docs" / "readme.py"))
    assert module["shown_table"]() == module["table"](), "run `python docs/readme.py`"


def test_the_readme_is_short_enough_to_be_read():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90


def test_every_page_is_in_the_contents_and_in_a_folder_of_its_kind():
    contents = (ROOT / "docs" / "index.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT / "docs").with_suffix("")
        if path.name == "index":
            continue
        if path.parts[0] == "gallery":  # it has contents of its own
            listed = (ROOT / "docs" / "gallery" / "index.md").read_text()
            assert re.search(rf"^{path.name}$", listed, re.MULTILINE), path
        else:
            assert re.search(rf"^{path}$", contents, re.MULTILINE), path
        assert path.parts[0] in KINDS, path


def test_the_public_names_are_in_the_reference():
    reference = (ROOT / "docs" / "reference" / "api.md").read_text()
    for public in ds.__all__:
        assert re.search(rf":: downside\.{public}$", reference, re.MULTILINE), public
