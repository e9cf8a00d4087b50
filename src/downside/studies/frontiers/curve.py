r"""The frontier: its points, their intervals, the knee, and what is dominated.

A point is the mixture $(1 - w)\,\rho_0 + w\,\rho_1$ of `start` $\rho_0$ and `end` $\rho_1$, with
the policies that maximise it. Its coordinates are their values by $\rho_0$ (horizontal) and by
$\rho_1$ (vertical). An optimal policy for the mixture lies on a line of slope $-(1 - w) / w$ that
no policy is beyond; so along exact optima the first value never rises and the second never falls.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from rich import box
from rich.markup import escape
from rich.table import Table

from downside.evaluation import Evaluation, Interval
from downside.evaluation.seeds import (
    Estimate,
    difference_error,
    estimate_mean,
    estimate_value,
)
from downside.risk import AbstractSpectralRisk
from downside.studies.engines.in_process import Trained
from downside.train import Agent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MIN_DISTANCE = 0.02
"""A point nearer to the chord, in units of the ranges, is no knee."""


class Optimum(NamedTuple):
    """The best policy for a point's measure, by the planner."""

    value: float
    """Its value by its own measure: no policy has more."""
    start: float
    """Its value by the frontier's `start`, in fresh episodes."""
    end: float
    """Its value by the frontier's `end`, in fresh episodes."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """One mixture of the two measures, and the agents that maximise it."""

    weight: float
    """The weight of `end`: 0 at the start, 1 at the end."""
    risk: AbstractSpectralRisk
    """The mixture."""
    trained: tuple[Trained, ...] = dataclasses.field(repr=False)
    """An agent for each seed."""
    by_start: Estimate
    """Their value by the frontier's `start`."""
    by_end: Estimate
    """Their value by the frontier's `end`."""
    by_own: Estimate
    """Their value by the mixture that they maximise."""
    optimum: Optimum | None = None
    """The exact optimum of the mixture, where it is known."""

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """Fresh episodes of each seed's agent."""
        return tuple(member.evaluation for member in self.trained)

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The agent of each seed."""
        return tuple(member.agent for member in self.trained)

    @property
    def typical(self) -> Trained:
        """The median seed by the point's measure (of an even number, the lower of two)."""
        ranked = sorted(zip(self.by_own.values, range(len(self.trained)), strict=True))
        return self.trained[ranked[(len(ranked) - 1) // 2][1]]

    @property
    def gap(self) -> float | None:
        """The optimum of its measure minus its value, where the optimum is known."""
        return None if self.optimum is None else self.optimum.value - self.by_own.value


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Frontier:
    """Policies between two risk measures, and their values by both."""

    env: str
    """The name of the environment."""
    agent: str
    """The name of the algorithm."""
    gamma: float
    """The discount factor."""
    start: AbstractSpectralRisk
    """The measure at one end, and the horizontal axis."""
    end: AbstractSpectralRisk
    """The measure at the other end, and the vertical axis."""
    confidence: float
    """Of the intervals."""
    points: tuple[Point, ...] = dataclasses.field(repr=False)
    """From `start` to `end`."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The training seeds of each point."""
        return tuple(member.seed for member in self.points[0].trained)

    # --- relations between points -------------------------------------------------------------

    def difference(self, first: Point, second: Point, axis: str) -> Interval:
        """The interval of the value of `first` minus that of `second`, seed by seed.

        Arguments:
            first: a point.
            second: another.
            axis: "start" or "end", the measure to compare by.
        """
        apart = np.subtract(*(getattr(point, f"by_{axis}").values for point in (first, second)))
        errors = []
        if len(apart) == 1:
            pair = first.evaluations[0], second.evaluations[0]
            errors = [difference_error(*pair, getattr(self, axis))]
        return self._interval(apart, errors)

    def _interval(
        self, values: Float[np.ndarray, " seeds"], errors: Sequence[float] = ()
    ) -> Interval:
        estimate = estimate_mean(values, errors, confidence=self.confidence, resamples=None)
        return Interval(estimate.low, estimate.high)

    def dominates(self, first: Point, second: Point) -> bool:
        """Whether one point is significantly as good as another by both measures, or better.

        The intervals of both differences must lie at or above 0, and one of them above it. They
        are not corrected for the number of pairs.
        """
        pairs = (first.by_start, second.by_start), (first.by_end, second.by_end)
        if any(a.value < b.value for a, b in pairs):
            return False
        lows = [self.difference(first, second, axis).low for axis in ("start", "end")]
        return min(lows) >= 0 and max(lows) > 0

    @functools.cached_property
    def dominated(self) -> tuple[Point, ...]:
        """The points that another point dominates."""
        return tuple(
            point
            for point in self.points
            if any(other is not point and self.dominates(other, point) for other in self.points)
        )

    @functools.cached_property
    def knee(self) -> Point | None:
        r"""The point where the trade-off turns: the farthest beyond the chord between the ends.

        Each axis is in units of its range: with $u$ and $v$ the share that a point keeps of `start`
        and gains of `end` (1 and 0 at the start, 0 and 1 at the end), the largest
        $(u + v - 1) / \sqrt2$. Dominated points do not count. None if no point lies more than 0.02
        and significantly beyond the chord, or if an end is not significantly better than the other
        by its own measure.
        """
        first, last = self.points[0], self.points[-1]
        across, up = self.difference(first, last, "start"), self.difference(last, first, "end")
        if across.low <= 0 or up.low <= 0:
            return None
        best, farthest = None, _MIN_DISTANCE
        for point in self.points[1:-1]:
            distance = self.beyond_chord(point)
            if distance is None or distance <= farthest or point in self.dominated:
                continue
            if self._interval(self._beyond_chord_by_seed(point)).low > 0:
                best, farthest = point, distance
        return best

    def beyond_chord(self, point: Point) -> float | None:
        """The distance of a point beyond the chord between the ends; see `knee`."""
        first, last = self.points[0], self.points[-1]
        if first.by_start.value <= last.by_start.value or last.by_end.value <= first.by_end.value:
            return None
        return float(self._beyond_chord_by_seed(point).mean())

    def _beyond_chord_by_seed(self, point: Point) -> Float[np.ndarray, " seeds"]:
        """`beyond_chord` for the agents of each seed, in units of the mean ranges."""
        first, last = self.points[0], self.points[-1]
        across = first.by_start.value - last.by_start.value
        up = last.by_end.value - first.by_end.value
        kept = np.subtract(point.by_start.values, last.by_start.values) / across
        gained = np.subtract(point.by_end.values, first.by_end.values) / up
        return (kept + gained - 1) / math.sqrt(2)

    @functools.cached_property
    def monotone(self) -> bool:
        """Whether no value goes the wrong way significantly from one point to the next."""
        return all(
            self.difference(after, before, "start").low <= 0
            and self.difference(after, before, "end").high >= 0
            for before, after in zip(self.points, self.points[1:], strict=False)
        )

    # --- output -------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """A row for each point; plain types, for JSON and CSV."""
        rows = []
        for point in self.points:
            optimum = point.optimum
            row: dict[str, Any] = {"weight": point.weight, "risk": str(point.risk)}
            for name in ("start", "end", "own"):
                estimate: Estimate = getattr(point, f"by_{name}")
                row |= {
                    name: estimate.value,
                    f"{name}_low": estimate.low,
                    f"{name}_high": estimate.high,
                }
            row |= {
                "optimum": None if optimum is None else optimum.value,
                "gap": point.gap,
                "optimum_start": None if optimum is None else optimum.start,
                "optimum_end": None if optimum is None else optimum.end,
                "knee": point is self.knee,
                "dominated": point in self.dominated,
            }
            rows.append(row)
        return rows

    def summary(self) -> dict[str, Any]:
        """Everything in numbers; plain types, for JSON."""
        return {
            "env": self.env,
            "agent": self.agent,
            "gamma": self.gamma,
            "start": str(self.start),
            "end": str(self.end),
            "confidence": self.confidence,
            "seeds": list(self.seeds),
            "episodes": len(self.points[0].evaluations[0]),
            "monotone": self.monotone,
            "knee": None if self.knee is None else str(self.knee.risk),
            "dominated": [str(point.risk) for point in self.dominated],
            "points": self.rows(),
        }

    def note(self, point: Point) -> str:
        """A word on a point, if there is one."""
        notes = ("knee", point is self.knee), ("dominated", point in self.dominated)
        return ", ".join(word for word, holds in notes if holds)

    def table(self) -> Table:
        """The points for the terminal: `rich.print(frontier.table())`."""
        many = f"{len(self.seeds)} seeds" if len(self.seeds) > 1 else "one seed"
        title = f"{escape(self.env)}: {self.agent}, {many}"
        table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        table.add_column("trained for", overflow="fold")
        for name in (str(self.start), str(self.end), "own value", "optimum", "short of it"):
            table.add_column(name, justify="right", no_wrap=name != "short of it")
        table.add_column("")
        for point in self.points:
            known = point.optimum is not None
            table.add_row(
                escape(str(point.risk)),
                str(point.by_start),
                str(point.by_end),
                str(point.by_own),
                f"{point.optimum.value:.4f}" if point.optimum is not None else "-",
                f"{point.gap:.4f}" if known else "-",
                self.note(point),
            )
        return table

    def plot(self) -> "Figure":
        """The curve with its intervals, and the exact curve: for papers."""
        from downside.studies.frontiers.plotting import draw

        return draw(self)

    def report(self, out: str | Path = "frontier.html", **options: Any) -> Path:
        """Writes one HTML file with the curve; a click on a point explains its policy.

        Arguments:
            out: where to write it.
            **options: `title`; and `explained_episodes`, `checks` and `episode_seed` as for
                `ds.report`.
        """
        from downside.studies.frontiers.page import write

        return write(self, out, **options)

    def __repr__(self) -> str:
        return (
            f"Frontier({self.env}: {len(self.points)} points from {self.start} to {self.end}, "
            f"seeds {list(self.seeds)})"
        )


def make_frontier(
    agent: Agent,
    start: AbstractSpectralRisk,
    end: AbstractSpectralRisk,
    between: Sequence[tuple[float, AbstractSpectralRisk]],
    trained: Sequence[Trained],
    optima: Sequence[Optimum | None],
    *,
    confidence: float,
) -> Frontier:
    """The frontier of agents that are trained and evaluated.

    Arguments:
        agent: any of them.
        start: the measure at one end.
        end: the measure at the other end.
        between: weight and measure of each point.
        trained: the agents, seed by seed within a point.
        optima: the optimum of each point, where it is known.
        confidence: of the intervals.
    """
    seeds, points = len(trained) // len(between), []
    for i, (weight, risk) in enumerate(between):
        members = tuple(trained[i * seeds : (i + 1) * seeds])
        evaluations = [member.evaluation for member in members]
        by_start, by_end, by_own = (
            estimate_value(evaluations, measure, confidence=confidence, resamples=None)
            for measure in (start, end, risk)
        )
        points.append(
            Point(
                weight=weight,
                risk=risk,
                trained=members,
                by_start=by_start,
                by_end=by_end,
                by_own=by_own,
                optimum=optima[i],
            )
        )
    return Frontier(
        env=str(agent.env_spec),
        agent=agent.name if agent.family is None else f"{agent.name} dial",
        gamma=agent.settings.gamma,
        start=start,
        end=end,
        confidence=confidence,
        points=tuple(points),
    )
