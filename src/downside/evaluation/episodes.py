"""From a policy to episode returns, and to risk values with confidence intervals."""

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from rich import box
from rich.markup import escape
from rich.table import Table

from downside._arrays import as_floats, check_values
from downside.evaluation.bootstrap import (
    RankedReturns,
    check_confidence,
    check_enough_episodes,
    check_resamples,
    middle,
    resample,
    stream,
    whole_number,
)
from downside.exact import OptionProblem, Plan, TradingProblem, estimate
from downside.risk import AbstractSpectralRisk, as_risk

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EPISODES = 100_000


@runtime_checkable
class Simulated(Protocol):
    """What can be evaluated: anything that can simulate the returns of its episodes.

    If it has an attribute `aligned` that is True, the noise of episode i depends on the seed and i
    alone, not on other episodes; see `Evaluation.aligned`.
    """

    def simulate_returns(self, episodes: int, seed: int) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of so many independent episodes, under the noise of `seed`."""
        ...


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    """Its lower end."""
    high: float
    """Its upper end."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The returns of one policy's episodes, and their value by any risk measure."""

    returns: Float[np.ndarray, " episodes"]
    """The discounted return of each episode."""
    _: dataclasses.KW_ONLY
    seed: int | None = None
    """The seed of the noise, if there is one."""
    label: str = ""
    """What was evaluated."""
    aligned: bool = False
    """Whether the noise of episode i depends on `seed` and i alone. Two evaluations with the same
    seed then have the same noise, episode by episode, and `compare` makes use of it."""

    def __post_init__(self):
        returns = np.asarray(as_floats(self.returns, "returns"))
        check_values(returns, "returns")  # pyright: ignore[reportArgumentType]
        if returns.ndim != 1:
            raise ValueError(
                f"`returns` must be a vector with one return per episode, got shape "
                f"{returns.shape}. For several training seeds make one Evaluation of each."
            )
        returns.flags.writeable = False
        object.__setattr__(self, "returns", returns)

    def __len__(self) -> int:
        return len(self.returns)

    def __repr__(self) -> str:
        noise = "" if self.seed is None else f", seed {self.seed}"
        return f"Evaluation({self.label!r}: {len(self):,} episodes, mean {self.mean:.4g}{noise})"

    # --- values ---------------------------------------------------------------------------------

    @functools.cached_property
    def _ranked(self) -> RankedReturns:
        return RankedReturns(self.returns)

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())

    def quantiles(self, count: int) -> Float[np.ndarray, " count"]:
        r"""$F^{-1}$ of the returns at the middle ranks $(2i - 1) / 2N$ of N = `count` quantiles."""
        count = whole_number(count, "count")
        ranks = (np.arange(count) + 0.5) / count
        return np.quantile(self._ranked.sorted, ranks, method="inverted_cdf")

    def value(self, risk: AbstractSpectralRisk | str) -> float:
        """The measure's exact value of the empirical distribution of the returns."""
        once_each = np.arange(1, len(self) + 1)
        return float(self._ranked.values(self._ranked.table(as_risk(risk)), once_each))

    def standard_error(self, risk: AbstractSpectralRisk | str) -> float:
        """The standard error of `value`, from the spread of h over the episodes."""
        return estimate(as_risk(risk), self.returns).standard_error

    def interval(
        self,
        risk: AbstractSpectralRisk | str,
        confidence: float = 0.95,
        resamples: int = 1000,
        seed: int = 0,
    ) -> Interval:
        """The percentile bootstrap interval of `value`, over episodes.

        It contains no return below the worst episode, so it is too narrow where only a few
        episodes lie in the tail: see `tail_count`. It says nothing about other training seeds.

        Arguments:
            risk: the measure, or its text.
            confidence: the share of such intervals that hold the true value.
            resamples: how many times the episodes are resampled.
            seed: of these draws.
        """
        return self._intervals([as_risk(risk)], confidence, resamples, seed)[0]

    def _intervals(
        self, risks: list[AbstractSpectralRisk], confidence: float, resamples: int, seed: int
    ) -> list[Interval]:
        """One for each measure, all from the same resamples."""
        confidence, resamples = check_confidence(confidence), check_resamples(resamples)
        check_enough_episodes(len(self), "returns")
        tables = [self._ranked.table(risk) for risk in risks]
        values: list[list[np.ndarray]] = [[] for _ in risks]
        for counts in resample(len(self), resamples, stream(seed, "episodes")):
            drawn = np.cumsum(counts, axis=1)
            for column, table in zip(values, tables, strict=True):
                column.append(self._ranked.values(table, drawn))
        return [Interval(*middle(np.concatenate(column), confidence)) for column in values]

    def tail_count(self, risk: AbstractSpectralRisk | str) -> int:
        r"""How many episodes lie in the part of the distribution that matters most to the measure.

        For a finite sum of CVaRs this is the worst share of the smallest level $\alpha$:
        $\lceil \alpha n \rceil$ of n episodes. For any other spectrum it is Kish's effective number
        of episodes $1 / \sum_i w_i^2$ with the `quantile_weights` $w_i$, about
        $n / \int_0^1 \phi(u)^2\, du$ and never above n; of CVaR it would be $\alpha n$ too.
        """
        risk, episodes = as_risk(risk), len(self)
        if risk.is_finite_mixture:
            smallest = min(level for level, _ in risk.atoms)
            return math.ceil(smallest * episodes * (1 - 1e-12))  # 0.07 of 100 is 7, not 8
        return min(episodes, round(1.0 / float(np.sum(risk.quantile_weights(episodes) ** 2))))

    # --- many at once ---------------------------------------------------------------------------

    def summary(
        self,
        risks: Iterable[AbstractSpectralRisk | str] | AbstractSpectralRisk | str,
        *,
        confidence: float = 0.95,
        resamples: int = 1000,
        seed: int = 0,
    ) -> list[dict[str, Any]]:
        """For each measure its value, interval and number of episodes; plain types, for JSON."""
        if isinstance(risks, str | AbstractSpectralRisk):
            risks = [risks]
        measures = [as_risk(risk) for risk in risks]
        intervals = self._intervals(measures, confidence, resamples, seed)
        return [
            {
                "risk": str(risk),
                "value": self.value(risk),
                "low": interval.low,
                "high": interval.high,
                "episodes": len(self),
                "tail_episodes": self.tail_count(risk),
            }
            for risk, interval in zip(measures, intervals, strict=True)
        ]

    def plot(self, risk: AbstractSpectralRisk | str) -> "Figure":
        """The returns with the measure's value marked, and its spectrum beside them: for papers."""
        from downside.evaluation.plotting import draw

        return draw(self, as_risk(risk))

    def table(
        self, risks: Iterable[AbstractSpectralRisk | str] | AbstractSpectralRisk | str
    ) -> Table:
        """`summary` with 95% intervals, for the terminal: `rich.print(evaluation.table(risks))`."""
        title = f"{escape(self.label)}: {len(self):,} episodes".removeprefix(": ")
        table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        table.add_column("risk")
        for column in ("value", "95% interval", "episodes in the tail"):
            table.add_column(column, justify="right")
        for row in self.summary(risks):
            table.add_row(
                escape(row["risk"]),
                f"{row['value']:.4f}",
                f"{row['low']:.4f} to {row['high']:.4f}",
                f"{row['tail_episodes']:,}",
            )
        return table


def evaluate(
    subject: Simulated | Plan,
    *,
    episodes: int | None = None,
    seed: int = 1,
    label: str | None = None,
) -> Evaluation:
    """Plays many episodes of a policy under fresh noise.

    Arguments:
        subject: an agent, a plan made by `solve`, or anything with a method
            `simulate_returns(episodes, seed)`.
        episodes: how many; a measure that looks at the worst 1% sees one in a hundred of them. By
            default 100,000, and 1,000 for an agent whose environment is not written in JAX.
        seed: of the noise. Evaluate what you want to compare with one seed.
        label: its name; by default a description.
    """
    if episodes is None:
        episodes = getattr(subject, "default_episodes", _EPISODES)
    episodes, seed = whole_number(episodes, "episodes"), whole_number(seed, "seed", least=0)
    if isinstance(subject, Plan):
        returns = subject.problem.simulate(subject.policy, episodes, seed)
        # Finite problems draw noise for all running episodes at once, and the policy decides which
        # episodes run; on grids every episode has a separate key.
        aligned = isinstance(subject.problem, OptionProblem | TradingProblem)
        name = f"plan for {subject.risk}"
    elif isinstance(subject, Simulated) and not isinstance(subject, type):
        returns = subject.simulate_returns(episodes, seed)
        aligned = getattr(subject, "aligned", False) is True
        name = type(subject).__name__
    else:
        raise TypeError(
            f"`subject` must be an agent, a plan, or have a method `simulate_returns(episodes, "
            f"seed)`, got {subject!r}. For the optimum of an environment pass ds.solve(env, risk); "
            "for returns that you have already, make a ds.Evaluation(returns)."
        )
    if np.shape(returns) != (episodes,):
        raise ValueError(
            f"`simulate_returns` must give one return for each of the {episodes} episodes, got an "
            f"array of shape {np.shape(returns)} from {name}."
        )
    label = name if label is None else label
    return Evaluation(returns, seed=seed, label=label, aligned=aligned)
