"""The story of an episode: what the policy was optimising at every step."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from rich import box
from rich.markup import escape
from rich.table import Table

from downside.decompose import ConditionalRisk
from downside.explanation.calibration import Calibration
from downside.explanation.names import Names
from downside.explanation.words import effective_level, number, percent
from downside.risk import AbstractSpectralRisk, Distribution

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """One time in an episode, and what the policy optimises there."""

    time: int
    """Number of decisions before it."""
    observation: Float[np.ndarray, " d"]
    """What the environment shows, flattened."""
    seen: dict[str, float]
    """The same by name, as far as there are names."""
    action: int | None
    """What the policy does; None at the end."""
    action_name: str
    """The same in words."""
    reward: float | None
    """What that paid; None at the end."""
    accumulated: float
    """s: the discounted reward so far."""
    discount_so_far: float
    """c: what a reward counts from here on."""
    returns: Distribution
    """G_t: the return to come, of the action that is taken."""
    risk: ConditionalRisk
    """ξ for each level, the levels and weights from here, the value of `returns` (Theorem 2)."""
    actions: tuple[int, ...]
    """The actions that are allowed."""
    action_names: tuple[str, ...]
    """The same in words."""
    alternatives: Distribution | None
    """The return to come of each of them: a batch."""
    action_values: Float[np.ndarray, " a"]
    """The value of each, by the risk measure that holds here."""
    words: str
    """What changed, and what it means for this decision."""

    @property
    def level(self) -> float:
        """The share of outcomes that matters from here on, in one number."""
        return effective_level(self.risk)

    @property
    def total(self) -> Distribution:
        """S + c G_t: the return of the whole episode, seen from here."""
        return self.returns.affine(self.accumulated, self.discount_so_far)

    @property
    def best_action(self) -> int | None:
        """The action that the risk measure of this step ranks first; None where there is none."""
        if not self.actions:
            return None
        taken = (
            self.action_values[self.actions.index(self.action)]
            if self.action in self.actions
            else -np.inf
        )
        if taken >= self.action_values.max() - 1e-12:
            return self.action
        return self.actions[int(np.argmax(self.action_values))]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Episode:
    """One episode, step by step."""

    seed: int
    """Of its noise."""
    steps: tuple[Step, ...]
    """Every decision, and the end."""

    @property
    def total(self) -> float:
        """Its discounted return."""
        return self.steps[-1].accumulated


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Story:
    """How the risk preference of a policy evolves, and whether that can be believed."""

    label: str
    """What is explained."""
    risk: AbstractSpectralRisk
    """The measure that it is meant to optimise."""
    gamma: float
    """The discount factor."""
    kind: str
    """Where the distributions come from: "learned", "simulated" or "exact"."""
    start: Distribution
    """G: the return of an episode, seen from the start."""
    episodes: tuple[Episode, ...]
    """The episodes that are told in full."""
    calibration: Calibration | None
    """Checks over many more episodes, and how the level spreads in them; None if not asked for."""
    names: Names
    """What observations and actions are called."""
    note: str
    """What a reader must know beforehand; empty if nothing."""

    @property
    def title(self) -> str:
        """What is explained, with its measure."""
        measure = str(self.risk)
        return self.label if measure in self.label else f"{self.label}, {measure}"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the first episode."""
        return self.episodes[0].steps

    @property
    def words(self) -> str:
        """The first episode in words, and whether the explanation can be relied on."""
        lines = [f"{step.time:>3}  {step.words}" for step in self.steps]
        head = [self.title]
        if self.note:
            head.append(self.note)
        if self.calibration is not None:
            head.append(self.calibration.words)
        return "\n".join([*head, *lines])

    def table(self, episode: int = 0) -> Table:
        """Example 3's table, for the terminal: `rich.print(story.table())`."""
        told = self.episodes[episode]
        title = f"{escape(self.title)}, episode {told.seed}"
        table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        seen = list(told.steps[0].seen)[:4]
        for name in ("t", *seen, "s", "c", "action", "reward", "matters from here", "ξ"):
            table.add_column(escape(name), justify="right")
        for step in told.steps:
            table.add_row(
                str(step.time),
                *(f"{step.seen.get(name, np.nan):.3f}" for name in seen),
                f"{step.accumulated:.3f}",
                f"{step.discount_so_far:.3f}",
                escape(step.action_name),
                "" if step.reward is None else f"{step.reward:.3f}",
                percent(step.level) if step.actions else "",
                f"{float(step.risk.xi):.2f}",
            )
        return table

    def rows(self, episode: int = 0) -> list[dict[str, Any]]:
        """The table as plain types, for CSV and JSON."""
        return [
            {
                "t": step.time,
                **step.seen,
                "s": step.accumulated,
                "c": step.discount_so_far,
                "action": step.action,
                "action_name": step.action_name,
                "reward": step.reward,
                "level": step.level,
                "levels": [float(x) for x in np.asarray(step.risk.levels)],
                "weights": [float(x) for x in np.asarray(step.risk.weights)],
                "xi_per_level": [float(x) for x in np.asarray(step.risk.xi_per_level)],
                "xi": float(step.risk.xi),
                "value": float(step.risk.value),
                "words": step.words,
            }
            for step in self.episodes[episode].steps
        ]

    def plot(self, episode: int = 0) -> "Figure":
        """The two CDF figures of Example 3, the level over time and the weights: for papers."""
        from downside.explanation.picture import draw

        return draw(self, self.episodes[episode])

    def __repr__(self) -> str:
        count = len(self.episodes)
        ends = ", ".join(number(one.total) for one in self.episodes[:3])
        verdict = "unchecked" if self.calibration is None else self.calibration.verdict
        return (
            f"Story({self.title!r}, {count} episode{'s' * (count > 1)} with total "
            f"{ends}; {self.kind} distributions, {verdict})"
        )
