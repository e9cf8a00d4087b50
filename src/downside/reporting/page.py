"""`report`: from agents and plans to one self-contained HTML file."""

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from downside._files import check_writable, write_text
from downside.exact import Plan
from downside.reporting.data import MAX_STEPS, TAIL, section_data, strip_data
from downside.reporting.sections import ReportSection, Subject, make_section

_MAX_MEASURES = 6


def report(
    *subjects: Subject | ReportSection | Sequence[Subject | ReportSection],
    out: str | Path = "report.html",
    labels: Sequence[str] | None = None,
    title: str | None = None,
    episodes: int | None = None,
    explained_episodes: int = 3,
    checks: int = 500,
    episode_seed: int = 0,
    optimum: float | bool | None = None,
) -> Path:
    """Writes one HTML file that shows what each policy does and what it optimises.

    The file needs no network.

    Arguments:
        *subjects: agents, plans, or sections that were made before; or a list of them.
        out: the file to write.
        labels: their names.
        title: of the page.
        episodes: fresh episodes to evaluate each in; by default 20,000, or 1,000 where they are
            slow.
        explained_episodes: episodes that are explained step by step.
        checks: episodes that the calibration is measured in.
        episode_seed: of the first episode that is explained.
        optimum: the optimum of the measure, or True to compute it where possible. The value of a
            plan among the subjects is the optimum of its measure for all of them.

    Returns:
        The path of the file.
    """
    subjects = _flat(subjects)
    if not subjects:
        raise ValueError("`subjects` must name at least one agent or plan, got none.")
    check_writable(out)
    if labels is not None and len(labels) != len(subjects):
        raise ValueError(
            f"`labels` must have one entry for each of the {len(subjects)} subjects, got "
            f"{len(labels)}."
        )
    plans = [subject for subject in subjects if isinstance(subject, Plan)]
    optima = {str(plan.risk): plan.value for plan in plans}
    sections = []
    for i, subject in enumerate(subjects):
        if isinstance(subject, ReportSection):
            sections.append(subject)
            continue
        sections.append(
            make_section(
                subject,
                label=None if labels is None else labels[i],
                episodes=episodes,
                explained_episodes=explained_episodes,
                checks=checks,
                episode_seed=episode_seed,
                optimum=optima.get(str(subject.risk), optimum),
            )
        )
    path = Path(out)
    write_text(path, render(sections, title=title))
    return path


def _flat(subjects: Sequence[Any]) -> tuple[Subject | ReportSection, ...]:
    """The subjects one by one, whether they came so or in lists."""
    flat: list[Any] = []
    for subject in subjects:
        if isinstance(subject, list | tuple):
            flat += subject
        else:
            flat.append(subject)
    for subject in flat:
        if isinstance(subject, ReportSection) or hasattr(subject, "risk"):
            continue
        remedy = " Load it first: ds.load(path)." if isinstance(subject, str | Path) else ""
        raise TypeError(
            "`subjects` must be agents, plans or sections, or a list of them, got "
            f"{subject!r}.{remedy}"
        )
    return tuple(flat)


def render(
    sections: Sequence[ReportSection],
    *,
    title: str | None = None,
    frontier: Mapping[str, Any] | None = None,
) -> str:
    """The page itself.

    Arguments:
        sections: one for each agent or plan.
        title: of the page.
        frontier: if the sections are the points of a frontier, the data of the curve.
    """
    optimised = [str(section.explanation.risk) for section in sections]
    if frontier is not None:
        optimised = [frontier["start"], frontier["end"]]
    measures = list(dict.fromkeys(optimised))[:_MAX_MEASURES]
    measures = list(dict.fromkeys([*measures, "mean", TAIL]))
    max_steps = MAX_STEPS // len(sections)
    data = [section_data(section, measures, max_steps) for section in sections]
    return fill(
        "report.html.j2",
        title=title or (sections[0].label if len(sections) == 1 else "Risk report"),
        sections=data,
        measures=measures,
        tail=TAIL,
        strips=[(section.label, strip_data(section)) for section in sections if section.strips],
        frontier=frontier,
        data={"sections": data, "measures": measures, "tail": TAIL, "frontier": frontier},
        **_allowed("script", _asset("report.js")),
    )


def fill(template: str, *, styles: Sequence[str] = ("report.css",), **values: Any) -> str:
    """A template among our assets, with its styles and with its values, which are escaped."""
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
    """A style or script and its hash, by which the page's security policy allows it."""
    digest: Any = hashlib.sha256(text.encode()).digest()
    return {name: text, f"{name}_hash": "sha256-" + base64.b64encode(digest).decode()}
