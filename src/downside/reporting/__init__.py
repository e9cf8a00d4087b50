"""Explanation and evaluation -> one self-contained HTML file.

The package is called `reporting` because `downside.report` is the function.
"""

from downside.reporting.chapters import Chapter, make_chapter
from downside.reporting.page import render, report

__all__ = ["Chapter", "make_chapter", "render", "report"]
