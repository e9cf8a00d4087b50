"""A frontier as one HTML file: the curve, and a section of the report for each point."""

from pathlib import Path
from typing import Any

from downside._files import write_text
from downside.explanation.narrative import number, percent
from downside.reporting import make_section, render
from downside.reporting.deeds import deeds_data
from downside.studies.frontiers.curve import Frontier, Point


def write(
    frontier: Frontier,
    out: str | Path = "frontier.html",
    *,
    title: str | None = None,
    explained_episodes: int = 2,
    checks: int = 300,
    episode_seed: int = 0,
) -> Path:
    """Explains the typical agent of each point, writes the page, and returns its path."""
    sections = [
        make_section(
            point.typical.agent,
            label=str(point.risk),
            evaluation=point.typical.evaluation,
            explained_episodes=explained_episodes,
            checks=checks,
            episode_seed=episode_seed,
            optimum=None if point.optimum is None else point.optimum.value,
        )
        for point in frontier.points
    ]
    name = title or f"{frontier.start} against {frontier.end}: {frontier.env}"
    path = Path(out)
    agents = [point.typical.agent for point in frontier.points]
    curve = page_data(frontier, deeds=deeds_data(agents), dial=agents[0].family is not None)
    write_text(path, render(sections, title=name, frontier=curve))
    return path


def page_data(
    frontier: Frontier, *, deeds: list[dict[str, Any]] | None = None, dial: bool = False
) -> dict[str, Any]:
    """The data of the curve for the page; plain types.

    Arguments:
        frontier: the curve.
        deeds: what the policy of each point does (`deeds_data`).
        dial: whether all points are one policy.
    """
    rows = frontier.rows()
    for row, point in zip(rows, frontier.points, strict=True):
        row["note"] = frontier.note(point)
        row["seed"] = point.typical.seed
        row["seeds"] = {
            "start": list(point.by_start.values),
            "end": list(point.by_end.values),
            "own": list(point.by_own.values),
        }
    over = "training seeds" if len(frontier.seeds) > 1 else "the episodes of one training seed"
    return {
        "start": str(frontier.start),
        "end": str(frontier.end),
        "interval": f"{frontier.confidence * 100:g}% intervals over {over}",
        "dial": dial,
        "deeds": deeds,
        "points": rows,
        "cards": cards(frontier),
        "about": (
            f"{frontier.env}; {frontier.agent}, {len(frontier.points)} measures, "
            f"{'seeds' if len(frontier.seeds) > 1 else 'seed'} "
            f"{', '.join(map(str, frontier.seeds))}; discount {frontier.gamma:g}"
        ),
    }


def cards(frontier: Frontier) -> list[dict[str, str]]:
    """The curve in a few words: the knee, dominated points, the distance to the optimum."""
    return [_knee(frontier), _dominated(frontier), _distance(frontier), _order(frontier)]


def _knee(frontier: Frontier) -> dict[str, str]:
    name, knee = "The knee", frontier.knee
    if knee is None:
        more = "no point lies significantly beyond the straight line between the two ends"
        return {"name": name, "value": "none", "more": more}
    return {"name": name, "value": str(knee.risk), "more": trade(frontier, knee)}


def trade(frontier: Frontier, point: Point) -> str:
    """What a point loses of one measure and gains of the other."""
    first, last = frontier.points[0], frontier.points[-1]
    across = first.by_start.value - last.by_start.value
    up = last.by_end.value - first.by_end.value
    lost = first.by_start.value - point.by_start.value
    gained = point.by_end.value - first.by_end.value
    if lost < 0 or gained < 0:
        return f"as good as the ends by {frontier.start} or by {frontier.end}"
    terms = f"{number(lost)} less of {frontier.start} for {number(gained)} more of {frontier.end}"
    return f"{terms}: {percent(lost / across)} of the price for {percent(gained / up)} of the gain"


def _dominated(frontier: Frontier) -> dict[str, str]:
    dominated = frontier.dominated
    if not dominated:
        more = "no point is significantly worse than another by both measures"
        return {"name": "Dominated", "value": "none", "more": more}
    more = "worse than another point by both measures: " + "; ".join(
        str(point.risk) for point in dominated
    )
    return {
        "name": "Dominated",
        "value": f"{len(dominated)} of {len(frontier.points)}",
        "more": more,
    }


def _distance(frontier: Frontier) -> dict[str, str]:
    name = "Distance to the exact frontier"
    gaps = [(point.gap, point) for point in frontier.points if point.gap is not None]
    if not gaps:
        return {"name": name, "value": "not known", "more": "no exact frontier was computed"}
    mean = sum(gap for gap, _ in gaps) / len(gaps)
    most, where = max(gaps, key=lambda pair: pair[0])
    more = f"on average, each by its own measure; at most {number(most)}, for {where.risk}"
    return {"name": name, "value": number(mean), "more": more}


def _order(frontier: Frontier) -> dict[str, str]:
    right = "no step along the curve goes significantly the wrong way"
    wrong = "a step towards one measure makes that measure significantly worse"
    more = right if frontier.monotone else wrong
    return {"name": "In order", "value": "yes" if frontier.monotone else "no", "more": more}
