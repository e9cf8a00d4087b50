r"""The frontier: its points, their intervals, the knee, and what is dominated.

A point is the mixture $(1 - w)\,\rho_0 + w\,\rho_1$ of `start` $\rho_0$ and `end` $\rho_1$, with
the policies that were trained for it. It stands where its policies are worth $\rho_0$ (across) and
$\rho_1$ (up). An optimal policy for the mixture lies on a line of slope $-(1 - w) / w$ that no
policy is beyond; so along exact optima the first value never rises and the second never falls.
"""

import dataclasses
import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from rich import box
from rich.markup import escape
from rich.table import Table

from downside.evaluation import Evaluation, Interval
from downside.frontiers.intervals import Valued, difference, middle_interval
from downside.risk import AbstractSpectralRisk
from downside.train import Agent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ON_THE_CHORD = 0.02
"""What is nearer to the chord, in units of the ranges, is no knee."""


class Optimum(NamedTuple):
    """The best policy for a point's measure, by the planner."""

    value: float
    """What it is worth by its own measure: no policy is worth more."""
    start: float
    """What it is worth by the frontier's `start`, in fresh episodes."""
    end: float
    """What it is worth by the frontier's `end`, in fresh episodes."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """One agent of a frontier: its seed and what its fresh episodes returned."""

    seed: int
    """Of its training."""
    evaluation: Evaluation
    """What fresh episodes returned."""
    folder: Path | None = None
    """The run folder, if there is one."""
    source: Any = dataclasses.field(repr=False)
    """The agent, or a function that loads it."""

    @functools.cached_property
    def agent(self) -> Agent:
        """The agent; from its run folder when it is first asked for, if it was trained before."""
        return self.source if isinstance(self.source, Agent) else self.source()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """One mixture of the two measures, and the agents that were trained for it."""

    weight: float
    """The weight of `end`: 0 at the start, 1 at the end."""
    risk: AbstractSpectralRisk
    """The mixture."""
    trained: tuple[Trained, ...] = dataclasses.field(repr=False)
    """An agent for each seed."""
    by_start: Valued
    """What they are worth by the frontier's `start`."""
    by_end: Valued
    """What they are worth by the frontier's `end`."""
    by_own: Valued
    """What they are worth by the mixture that they were trained for."""
    optimum: Optimum | None = None
    """The exact optimum of the mixture, where it is known."""

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """Fresh episodes of each seed's agent."""
        return tuple(one.evaluation for one in self.trained)

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The agent of each seed."""
        return tuple(one.agent for one in self.trained)

    @property
    def typical(self) -> Trained:
        """The seed in the middle (of an even number, the lower of two), by the point's measure."""
        ranked = sorted(zip(self.by_own.seeds, range(len(self.trained)), strict=True))
        return self.trained[ranked[(len(ranked) - 1) // 2][1]]

    @property
    def gap(self) -> float | None:
        """How far the point's value is from the optimum of its measure, where that is known."""
        return None if self.optimum is None else self.optimum.value - self.by_own.value


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Frontier:
    """Policies between two risk measures, and what each is worth by both."""

    env: str
    """What the environment is called."""
    agent: str
    """What the algorithm is called."""
    gamma: float
    """The discount factor."""
    start: AbstractSpectralRisk
    """The measure at one end, and the axis across."""
    end: AbstractSpectralRisk
    """The measure at the other end, and the axis up."""
    confidence: float
    """Of the intervals."""
    points: tuple[Point, ...] = dataclasses.field(repr=False)
    """From `start` to `end`."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The training seeds of each point."""
        return tuple(one.seed for one in self.points[0].trained)

    # --- what the points are to each other ----------------------------------------------------

    def difference(self, first: Point, second: Point, axis: str) -> Interval:
        """The interval of what `first` is worth more than `second`, seed by seed.

        Arguments:
            first: a point.
            second: another.
            axis: "start" or "end", the measure to compare by.
        """
        return difference(
            (getattr(first, f"by_{axis}"), first.evaluations),
            (getattr(second, f"by_{axis}"), second.evaluations),
            getattr(self, axis),
            self.confidence,
        )

    def dominates(self, first: Point, second: Point) -> bool:
        """Whether one point is at least as good as another by both measures, beyond doubt.

        The intervals of both differences must lie at or above 0, and one of them above it. Each
        has the frontier's confidence; nothing is corrected for the number of pairs.
        """
        pairs = (first.by_start, second.by_start), (first.by_end, second.by_end)
        if any(one.value < other.value for one, other in pairs):
            return False
        found = [self.difference(first, second, axis) for axis in ("start", "end")]
        return all(one.low >= 0 for one in found) and any(one.low > 0 for one in found)

    @functools.cached_property
    def dominated(self) -> tuple[Point, ...]:
        """The points that another point dominates: nobody should want them."""
        return tuple(
            one
            for one in self.points
            if any(other is not one and self.dominates(other, one) for other in self.points)
        )

    @functools.cached_property
    def knee(self) -> Point | None:
        r"""The point beyond which more of one measure costs most of the other.

        The one that lies farthest beyond the chord between the two ends, each axis in units of its
        range: with $u$ and $v$ the share of the way that a point keeps of `start` and has gained of
        `end` (1 and 0 at the start, 0 and 1 at the end), the largest $(u + v - 1) / \sqrt2$.
        Dominated points do not count. None if no point lies beyond the chord by 0.02 or more, and
        beyond doubt, or if the ends are not the better ones each by its own measure beyond doubt.
        """
        first, last = self.points[0], self.points[-1]
        across, up = self.difference(first, last, "start"), self.difference(last, first, "end")
        if across.low <= 0 or up.low <= 0:
            return None
        best, farthest = None, _ON_THE_CHORD
        for point in self.points[1:-1]:
            distance = self.beyond_chord(point)
            if distance is None or distance <= farthest or point in self.dominated:
                continue
            if middle_interval(self._beyond_chord_by_seed(point), self.confidence).low > 0:
                best, farthest = point, distance
        return best

    def beyond_chord(self, point: Point) -> float | None:
        """How far a point lies beyond the chord between the ends; see `knee`."""
        first, last = self.points[0], self.points[-1]
        if first.by_start.value <= last.by_start.value or last.by_end.value <= first.by_end.value:
            return None
        return float(self._beyond_chord_by_seed(point).mean())

    def _beyond_chord_by_seed(self, point: Point) -> Float[np.ndarray, " seeds"]:
        """`beyond_chord` for the agents of each seed, in units of the mean ranges."""
        first, last = self.points[0], self.points[-1]
        across = first.by_start.value - last.by_start.value
        up = last.by_end.value - first.by_end.value
        kept = np.subtract(point.by_start.seeds, last.by_start.seeds) / across
        gained = np.subtract(point.by_end.seeds, first.by_end.seeds) / up
        return (kept + gained - 1) / math.sqrt(2)

    @functools.cached_property
    def monotone(self) -> bool:
        """Whether from each point to the next no value goes the wrong way beyond doubt."""
        return all(
            self.difference(after, before, "start").low <= 0
            and self.difference(after, before, "end").high >= 0
            for before, after in zip(self.points, self.points[1:], strict=False)
        )

    # --- for eyes and files -------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """A row for each point; plain types, for JSON and CSV."""
        out = []
        for point in self.points:
            optimum = point.optimum
            row: dict[str, Any] = {"weight": point.weight, "risk": str(point.risk)}
            for name in ("start", "end", "own"):
                found: Valued = getattr(point, f"by_{name}")
                row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
            row |= {
                "optimum": None if optimum is None else optimum.value,
                "gap": point.gap,
                "optimum_start": None if optimum is None else optimum.start,
                "optimum_end": None if optimum is None else optimum.end,
                "knee": point is self.knee,
                "dominated": point in self.dominated,
            }
            out.append(row)
        return out

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
            "dominated": [str(one.risk) for one in self.dominated],
            "points": self.rows(),
        }

    def note(self, point: Point) -> str:
        """What there is to say of a point in a word."""
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
        """The curve with its intervals, and the exact one beside it: for papers."""
        from downside.frontiers.picture import draw

        return draw(self)

    def report(self, out: str | Path = "frontier.html", **options: Any) -> Path:
        """Writes one HTML file with the curve; a click on a point shows what its policy does.

        Arguments:
            out: where to write it.
            **options: `title`; and `told`, `checks` and `episode_seed` as for `ds.report`.
        """
        from downside.frontiers.page import write

        return write(self, out, **options)

    def __repr__(self) -> str:
        return (
            f"Frontier({self.env}: {len(self.points)} points from {self.start} to {self.end}, "
            f"seeds {list(self.seeds)})"
        )
