"""`solve`: the optimum of a static spectral risk measure, and the plan that attains it."""

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from downside._arrays import real
from downside.envs import AbstractJaxEnv, AmericanPut, CliffWalk, MeanReversion, Tabular, make_jax
from downside.envs.problems.finite.tabulated import AbstractTabulated
from downside.exact.finite_plan import finite_problem, plan_finite
from downside.exact.mdp import FiniteMDP
from downside.exact.option import OptionProblem
from downside.exact.outer import Round, polish, search
from downside.exact.problem import AbstractProblem
from downside.exact.refinement import Limits
from downside.exact.trading import TradingProblem
from downside.risk import AbstractSpectralRisk, Utility, as_risk

_MOST_WIDENINGS = 3
_EPISODES, _FINITE_EPISODES = 500_000, 100_000
SOLVABLE = (
    "downside/AmericanPut-v0 and downside/MeanReversion-v0 with any parameters, the finite "
    "environments of this package, finite MDPs (ds.FiniteMDP or downside.envs.Tabular), files with "
    "their transitions (FiniteMDP.from_csv), and Gymnasium environments with a table (toy text)"
)


class Estimate(NamedTuple):
    """A risk value of simulated returns."""

    value: float
    """The value."""
    standard_error: float
    """Its standard error, from the spread of h over the episodes."""

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {self.standard_error:.4f}"


def estimate(risk: AbstractSpectralRisk, returns: Float[np.ndarray, " episodes"]) -> Estimate:
    r"""The value of simulated returns; to first order it varies as the mean of h(G) does."""
    worth = np.asarray(risk.utility(np.sort(returns))(returns))
    if len(returns) < 2:
        return Estimate(float(risk(returns)), math.inf)
    return Estimate(float(risk(returns)), float(worth.std(ddof=1)) / math.sqrt(len(returns)))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The optimum of a risk measure, and the policy that attains it."""

    problem: AbstractProblem
    """What was solved."""
    risk: AbstractSpectralRisk
    """The measure that is optimised."""
    gamma: float
    """The discount factor."""
    value: float
    """What the policy earns. In a finite problem evaluated exactly, or from below where paths are
    put together; otherwise as the recursion on the grid computes it (see `simulated`)."""
    bounds: tuple[float, float] | None
    """In a finite problem, an interval that is certain to hold the optimum: from `value` to what no
    policy exceeds. Otherwise None; then `simulated` and `standard_error` say what is known."""
    note: str
    """What stopped the planner before the bounds were as close as asked for; empty otherwise."""
    returns: Float[np.ndarray, " episodes"]
    """Discounted returns of the policy under fresh noise."""
    utility: Utility
    """The utility h that the policy is optimal for."""
    policy: Any
    """The policy: (state, accumulated reward, discount so far) -> action."""
    start: str
    """The start of the outer search that won."""
    alternation: float
    """What at most 20 rounds of the paper's alternation reach from the risk-neutral policy."""
    trace: tuple[Round, ...]
    """Every inner solution of the search: its start, its J, its utility."""

    @functools.cached_property
    def estimate(self) -> Estimate:
        """`simulated` with its standard error."""
        return estimate(self.risk, self.returns)

    @property
    def simulated(self) -> float:
        """The measure's value of the policy run on fresh noise."""
        return self.estimate.value

    @property
    def standard_error(self) -> float:
        """The standard error of `simulated`."""
        return self.estimate.standard_error

    def evaluate(
        self,
        risks: Iterable[AbstractSpectralRisk | str] | AbstractSpectralRisk | str,
        *,
        episodes: int | None = None,
        seed: int = 1,
    ) -> dict[str, Estimate]:
        """The policy valued by other measures, on the same returns or on `episodes` new ones."""
        if isinstance(risks, str | AbstractSpectralRisk):
            risks = [risks]
        returns = self.returns
        if episodes is not None:
            returns = self.problem.simulate(self.policy, _whole(episodes, "episodes"), seed)
        return {str(risk): estimate(as_risk(risk), returns) for risk in risks}

    @property
    def words(self) -> str:
        """How sure the value is, in a sentence or two."""
        run = f"{self.estimate} in {len(self.returns):,} simulated episodes"
        if self.bounds is not None:
            low, high = self.bounds
            first = (
                f"The policy earns {low:.6g}; no policy earns more than {high:.6g} (certified). "
                f"It earned {run}."
            )
        else:
            first = f"The recursion computes {self.value:.6g} for the best policy; it earned {run}."
        if self.disagrees:
            first += " The two do not agree: raise `refine`, or trust the simulation."
        return f"{first} {self.note}".strip()

    @property
    def disagrees(self) -> bool:
        """Whether `value` and `simulated` differ by more than chance and one percent."""
        slack = (
            4 * self.standard_error + 0.01 * abs(self.value) + 1e-6 * float(np.ptp(self.returns))
        )
        return abs(self.value - self.simulated) > slack

    def summary(self) -> dict[str, Any]:
        """What there is to say in numbers; plain types, for JSON."""
        boundary = self.boundary
        prices = None
        if boundary is not None:
            prices = [None if np.isnan(price) else float(price) for price in boundary]
        return {
            "risk": str(self.risk),
            "gamma": self.gamma,
            "value": self.value,
            "simulated": self.simulated,
            "standard_error": self.standard_error if np.isfinite(self.standard_error) else None,
            "bounds": self.bounds,
            "words": self.words,
            "episodes": len(self.returns),
            "alternation": self.alternation,
            "start": self.start,
            "inner_problems": len(self.trace),
            "knots": [float(knot) for knot in self.utility.knots],
            "boundary": prices,
        }

    @property
    def boundary(self) -> Float[np.ndarray, " periods"] | None:
        """For an option: the price at which exercise begins at each time; otherwise None."""
        if isinstance(self.problem, OptionProblem):
            return self.problem.boundary(self.policy)
        return None


def solve(
    env: "AbstractJaxEnv | FiniteMDP | gym.Env | str",
    risk: AbstractSpectralRisk | str,
    *,
    gamma: float | None = None,
    refine: float = 1.0,
    tolerance: float | None = None,
    time_limit: float = 40.0,
    memory_limit: float = 2.0,
    episodes: int | None = None,
    seed: int = 0,
    progress_bar: bool = False,
    **parameters: Any,
) -> Plan:
    """The optimum of `risk` over all history-dependent policies, by dynamic programming.

    A finite problem is solved until the bounds of its optimum are `tolerance` apart or a limit is
    reached; `Plan.note` then says what is missing.

    Arguments:
        env: an id such as "downside/MeanReversion-v0", the environment itself, or a `FiniteMDP`.
        risk: the measure to optimise, or its text.
        gamma: the discount factor, 0.99 unless given; a `FiniteMDP` brings its own.
        refine: resolution of the grids relative to the default, for continuous problems.
        tolerance: for finite problems, how far apart the bounds may be; by default half a percent
            of the standard deviation of the risk-neutral policy's returns.
        time_limit: for finite problems, about how many seconds to refine.
        memory_limit: for finite problems, GiB for tables.
        episodes: how many fresh episodes `Plan.simulated` is estimated from; by default 500,000,
            and 100,000 for a finite problem.
        seed: of their noise.
        progress_bar: whether to show what the search is doing.
        **parameters: with an id, the environment's parameters, e.g. `sigma=0.5`.
    """
    risk = as_risk(risk)
    refine = real(refine, "refine")
    gamma = None if gamma is None else real(gamma, "gamma")
    if isinstance(env, FiniteMDP) and parameters:
        raise TypeError(f"A FiniteMDP has no parameters to set, got {sorted(parameters)}.")
    if isinstance(env, FiniteMDP) and gamma is not None and gamma != env.gamma:
        raise ValueError(
            f"`gamma` is part of a FiniteMDP, here {env.gamma}; got {gamma} as well. Leave it out, "
            "or build the FiniteMDP with it."
        )
    discount = env.gamma if isinstance(env, FiniteMDP) else 0.99 if gamma is None else gamma
    limits = _limits(tolerance, time_limit, memory_limit)
    _check_resolution(discount, refine)
    core = as_finite(env, gamma=discount, **parameters)
    finite = isinstance(core, FiniteMDP)
    if episodes is None:
        episodes = _FINITE_EPISODES if finite else _EPISODES
    episodes = _whole(episodes, "episodes")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(
        *columns, console=Console(stderr=True), transient=True, disable=not progress_bar
    ) as bar:
        task = bar.add_task(f"solving for {risk}")
        done: list[float] = []

        def report(start: str, value: float) -> None:
            done.append(value)
            description = f"{risk}: {len(done)} inner problems, best J {max(done):.4f} ({start})"
            bar.update(task, description=description)

        if isinstance(core, FiniteMDP):
            result = plan_finite(core, risk, limits, report)
            bar.update(task, description=f"{risk}: {episodes:,} fresh episodes")
            return Plan(
                problem=result.problem,
                risk=risk,
                gamma=discount,
                value=result.value,
                bounds=(result.value, result.upper),
                note=result.note,
                returns=result.problem.simulate(result.policy, episodes, seed + 1),
                utility=result.utility,
                policy=result.policy,
                start=result.start,
                alternation=result.alternation,
                trace=result.trace,
            )
        # What is no core stays what the user passed, so that the error names it.
        solvable = env if core is None else core
        problem = as_problem(solvable, gamma=discount, refine=refine, seed=seed)
        coarse = problem.coarse()
        rough = search(coarse, risk, progress=report)
        for _ in range(_MOST_WIDENINGS):
            if coarse.covers(rough.solution.policy):
                break
            problem = problem.widened()
            coarse = problem.coarse()
            rough = search(coarse, risk, progress=report)
        solution, utility, start = rough.solution, rough.utility, rough.start
        alternation = rough.alternation.value
        if coarse is not problem:
            bar.update(task, description=f"{risk}: the best utilities at full resolution")
            final = polish(problem, risk, (rough.alternation, Round(start, 0.0, utility)))
            alternation = final.trace[0].value
            solution, utility, start = final.solution, final.utility, final.start
        bar.update(task, description=f"{risk}: {episodes:,} fresh episodes")
        fresh = problem.simulate(solution.policy, episodes, seed + 1)
    return Plan(
        problem=problem,
        risk=risk,
        gamma=discount,
        value=solution.value,
        bounds=None,
        note="",
        returns=fresh,
        utility=utility,
        policy=solution.policy,
        start=start,
        alternation=alternation,
        trace=rough.trace,
    )


def as_problem(
    env: Any, *, gamma: float, refine: float = 1.0, seed: int = 0, **parameters: Any
) -> AbstractProblem:
    """The planner's view of an environment; an error that names the solvable ones otherwise."""
    _check_resolution(gamma, refine)
    core = as_finite(env, gamma=gamma, **parameters)
    if isinstance(core, FiniteMDP):
        return finite_problem(core)
    if isinstance(core, AmericanPut):
        return OptionProblem(core, gamma=gamma, nodes=2 * round(400 * refine) + 1)
    if isinstance(core, MeanReversion):
        return TradingProblem(core, gamma=gamma, refine=refine, seed=seed)
    raise ValueError(
        f"`env` must be a problem that the planner can solve, got {env!r}. It solves {SOLVABLE}: "
        "dynamic programming needs the transition probabilities, and a state small enough for a "
        "grid. For anything else, train an agent."
    )


def as_finite(env: Any, *, gamma: float, **parameters: Any) -> Any:
    """The tables of a finite environment; the JAX environment itself of any other."""
    if isinstance(env, FiniteMDP):
        return env
    if hasattr(getattr(env, "unwrapped", None), "P"):  # a toy-text table
        return FiniteMDP.from_gymnasium(env, gamma=gamma)
    core = make_jax(env, **parameters)
    if isinstance(core, CliffWalk):
        return FiniteMDP.from_tables(core.tables(), gamma=gamma, horizon=core.horizon)
    if isinstance(core, AbstractTabulated):
        core = core.tables
    if isinstance(core, Tabular):
        return FiniteMDP.from_environment(core, gamma=gamma)
    return core


def _check_resolution(gamma: float, refine: float) -> None:
    if not 0.0 < gamma <= 1.0:
        raise ValueError(f"`gamma` must be in (0, 1], got {gamma}. The paper uses 0.99.")
    if not 0.1 <= refine <= 10.0:
        raise ValueError(f"`refine` must be in [0.1, 10], got {refine}. 1 is converged by default.")


def _limits(tolerance: Any, time_limit: Any, memory_limit: Any) -> Limits:
    if tolerance is not None:
        tolerance = real(tolerance, "tolerance")
        if not tolerance >= 0.0:
            raise ValueError(
                f"`tolerance` must be at least 0, got {tolerance}. It is how far apart the bounds "
                "may be, in units of the return."
            )
    for name, limit in (("time_limit", time_limit), ("memory_limit", memory_limit)):
        if not real(limit, name) > 0.0:
            raise ValueError(f"`{name}` must be positive, got {limit}.")
    return Limits(tolerance, float(time_limit), float(memory_limit))


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"`{name}` must be a whole number of at least 1, got {value!r}.")
    return int(value)
