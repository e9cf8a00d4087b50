"""How the pages become a site: `make docs`."""

import re
from typing import Any

import downside

project = "Downside"
author = "The Downside authors"
release = version = downside.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_show_copyright = False
html_title = f"Downside {version}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]

myst_enable_extensions = ["attrs_block", "dollarmath"]
myst_heading_anchors = 3

# Our docstrings are Google's style with Markdown's backticks and dollars.
default_role = "code"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = False
napoleon_custom_sections = ["Differs"]
autodoc_typehints = "none"  # shapes are strings, which are no names to look up
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}

_PART = re.compile(r"`[^`]*`|\$([^$]+)\$|\|")
_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


def _keep_colons(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Napoleon takes what stands before a colon in the first line of a property for its type."""
    del app, name, obj, options
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment


def _as_restructured_text(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Markdown's $equations$ and ## headings, in the language of autodoc."""
    del app, what, name, obj, options

    def translate(part: re.Match[str]) -> str:
        if part[1] is not None:  # an equation; it may touch the words around it
            return rf"\ :math:`{' '.join(part[1].split())}`\ "
        return r"\|" if part[0] == "|" else part[0]

    text = _HEADING.sub(r"**\1**", _PART.sub(translate, "\n".join(lines)))
    lines[:] = text.split("\n")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _keep_colons, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", _as_restructured_text)
