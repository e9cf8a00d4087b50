"""What `explain` returns: what the policy is optimising at every step of some episodes."""

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
from downside.explanation.narrative import effective_level, number, percent
from downside.explanation.trajectory import Action
from downside.risk import AbstractSpectralRisk, Distribution

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ExplainedStep:
    """One step of an episode, and what the policy optimises there."""

    time: int
    """Number of decisions before it."""
    observation: Float[np.ndarray, " d"]
    """What the environment shows, flattened."""
    named_observation: dict[str, float]
    """The same by name."""
    action: Action | None
    """What the policy does: the number of an action, or the coordinates of a continuous one. None
    at the end."""
    action_name: str
    """The same in words."""
    reward: float | None
    """The reward of that action; None at the end."""
    accumulated: float
    """s: the discounted reward so far."""
    discount_so_far: float
    """c: the discount of the next reward."""
    returns: Distribution
    """G_t: the return to come, of the action that is taken."""
    risk: ConditionalRisk
    """ξ for each level, the levels and weights from here, the value of `returns` (Theorem 2)."""
    actions: tuple[Action, ...]
    """The actions that are allowed; of continuous ones, a grid through the action that is taken."""
    action_names: tuple[str, ...]
    """The same in words."""
    alternatives: Distribution | None
    """The return to come of each of them: a batch."""
    action_values: Float[np.ndarray, " a"]
    """The value of each by `risk`, the measure that holds here."""
    action_utilities: Float[np.ndarray, " a"]
    """E[h(s + c G)] of each, with the utility h of the start, whose lines never move. An action
    with more of it than the one that is taken would raise the value of the policy."""
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
    def best_action(self) -> Action | None:
        """The action that the risk measure of this step ranks first; None where there is none."""
        if not self.actions:
            return None
        values = dict(zip(self.actions, self.action_values, strict=True))
        best = max(values, key=values.__getitem__)
        tied = [action for action in values if values[action] >= values[best] - 1e-12]
        return self.action if self.action in tied else best


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Episode:
    """One episode, step by step."""

    seed: int
    """Of its noise."""
    steps: tuple[ExplainedStep, ...]
    """Every decision, and the end."""

    @property
    def total(self) -> float:
        """Its discounted return."""
        return self.steps[-1].accumulated


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """How the risk preference of a policy evolves, and whether that can be believed."""

    label: str
    """What is explained."""
    risk: AbstractSpectralRisk
    """The measure that the policy is meant to optimise."""
    gamma: float
    """The discount factor."""
    kind: str
    """Where the distributions come from: "learned", "simulated" or "exact"."""
    start: Distribution
    """G: the return of an episode, seen from the start."""
    episodes: tuple[Episode, ...]
    """The episodes that are explained step by step."""
    calibration: Calibration | None
    """Checks over many more episodes, and the spread of the level in them; None without checks."""
    names: Names
    """The names of observations and actions."""
    note: str
    """A warning for the reader; empty if there is none."""
    timesteps: int | None = None
    """Environment steps that the agent has lived through; None for a plan."""
    simulated_steps: int | None = None
    """Steps that were simulated beside them for learning; None for a plan."""

    @property
    def title(self) -> str:
        """What is explained, with its measure."""
        measure = str(self.risk)
        return self.label if measure in self.label else f"{self.label}, {measure}"

    @property
    def steps(self) -> tuple[ExplainedStep, ...]:
        """The steps of the first episode."""
        return self.episodes[0].steps

    @property
    def words(self) -> str:
        """The first episode in words, and whether the explanation can be trusted."""
        checks = "" if self.calibration is None else self.calibration.words
        head = [self.title, self.experience, self.note, checks]
        lines = [f"{step.time:>3}  {step.words}" for step in self.steps]
        return "\n".join([*filter(None, head), *lines])

    @property
    def experience(self) -> str:
        """How much the agent has learned from, in words; empty for a plan."""
        if self.timesteps is None:
            return ""
        simulated = f"{self.simulated_steps or 0:,} simulated ones"
        return f"It has learned from {self.timesteps:,} environment steps and {simulated}."

    def table(self, episode: int = 0) -> Table:
        """Example 3's table, for the terminal: `rich.print(explanation.table())`."""
        steps = self.episodes[episode].steps
        title = f"{escape(self.title)}, episode {self.episodes[episode].seed}"
        table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        observed = list(steps[0].named_observation)[:4]
        for name in ("t", *observed, "s", "c", "action", "reward", "matters from here", "ξ"):
            table.add_column(escape(name), justify="right")
        for step in steps:
            table.add_row(
                str(step.time),
                *(f"{step.named_observation.get(name, np.nan):.3f}" for name in observed),
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
                **step.named_observation,
                "s": step.accumulated,
                "c": step.discount_so_far,
                "action": list(step.action) if isinstance(step.action, tuple) else step.action,
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
        from downside.explanation.plotting import draw

        return draw(self, self.episodes[episode])

    def __repr__(self) -> str:
        count = len(self.episodes)
        ends = ", ".join(number(episode.total) for episode in self.episodes[:3])
        verdict = "unchecked" if self.calibration is None else self.calibration.verdict
        return (
            f"Explanation({self.title!r}, {count} episode{'s' * (count > 1)} with total "
            f"{ends}; {self.kind} distributions, {verdict})"
        )
