"""`report`: agents and plans -> one self-contained HTML file."""

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from downside._files import write_text
from downside.exact import Plan
from downside.reporting.chapters import Chapter, Subject, make_chapter
from downside.reporting.data import MOST_STEPS, TAIL, chapter_data, strip_data

_MOST_MEASURES = 6


def report(
    *subjects: Subject | Chapter,
    out: str | Path = "report.html",
    labels: Sequence[str] | None = None,
    title: str | None = None,
    episodes: int | None = None,
    told: int = 3,
    checks: int = 500,
    episode_seed: int = 0,
    optimum: float | bool | None = None,
) -> Path:
    """Writes one HTML file that says what each policy does and what it is optimising, and gives its
    path. The file needs no network.

    Arguments:
        *subjects: agents, plans, or chapters that were made before.
        out: where to write it.
        labels: what to call them.
        title: of the page.
        episodes: fresh episodes that each is valued in; by default 20,000, or 1,000 where they are
            slow.
        told: episodes that are told step by step.
        checks: episodes that the calibration is measured in.
        episode_seed: of the first episode that is told.
        optimum: the optimum of the measure, or True to compute it where that can be done. A plan
            among the subjects is the optimum of its measure for all of them.
    """
    if not subjects:
        raise ValueError("`subjects` must name at least one agent or plan, got none.")
    if labels is not None and len(labels) != len(subjects):
        raise ValueError(
            f"`labels` must have one entry for each of the {len(subjects)} subjects, got "
            f"{len(labels)}."
        )
    known = {str(one.risk): one.value for one in subjects if isinstance(one, Plan)}
    chapters = []
    for i, subject in enumerate(subjects):
        if isinstance(subject, Chapter):
            chapters.append(subject)
            continue
        chapters.append(
            make_chapter(
                subject,
                label=None if labels is None else labels[i],
                episodes=episodes,
                told=told,
                checks=checks,
                episode_seed=episode_seed,
                optimum=known.get(str(subject.risk), optimum),
            )
        )
    path = Path(out)
    write_text(path, render(chapters, title=title))
    return path


def render(
    chapters: Sequence[Chapter],
    *,
    title: str | None = None,
    frontier: Mapping[str, Any] | None = None,
) -> str:
    """The page itself.

    Arguments:
        chapters: what it is about.
        title: of the page.
        frontier: if the chapters are the points of a frontier, what to show of the curve, as
            `downside.frontiers.page` makes it.
    """
    own = list(dict.fromkeys(str(one.story.risk) for one in chapters))[:_MOST_MEASURES]
    if frontier is not None:
        own = [frontier["start"], frontier["end"]]
    measures = list(dict.fromkeys([*own, "mean", TAIL]))
    most = MOST_STEPS // len(chapters)
    data = [chapter_data(one, measures, most) for one in chapters]
    return fill(
        "report.html.j2",
        title=title or (chapters[0].label if len(chapters) == 1 else "Risk report"),
        chapters=data,
        measures=measures,
        tail=TAIL,
        strips=[(one.label, strip_data(one)) for one in chapters if one.strips],
        frontier=frontier,
        data={"chapters": data, "measures": measures, "tail": TAIL, "frontier": frontier},
        **_allowed("script", _asset("report.js")),
    )


def fill(template: str, *, styles: Sequence[str] = ("report.css",), **values: Any) -> str:
    """A template among our assets with its values, which are escaped, and its styles in it."""
    style = "\n".join(_asset(name) for name in styles)
    return _environment().get_template(template).render(**values, **_allowed("style", style))


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("downside.reporting", "assets"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@functools.cache
def _asset(name: str) -> str:
    return (files("downside.reporting") / "assets" / name).read_text(encoding="utf-8").strip()


def _allowed(name: str, text: str) -> dict[str, str]:
    """A style or script, and what the page's security policy knows it by: nothing else may run."""
    digest: Any = hashlib.sha256(text.encode()).digest()
    return {name: text, f"{name}_hash": "sha256-" + base64.b64encode(digest).decode()}
