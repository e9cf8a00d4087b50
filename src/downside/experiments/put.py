"""The American put (figure 2 of the paper): payoffs and exercise boundaries of CVaR 0.2, 0.6, 1.0.

Writes `results/american-put-PRESET.csv` (each agent by each measure, with its boundary) and
`american-put-PRESET-returns.csv` (quantiles of the payoffs), the planner's in
`american-put-optimum.csv`, and draws `figures/american-put-PRESET`.
"""

import functools
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from downside.envs import AmericanPut
from downside.envs.problems.finance.american_put import EXERCISE
from downside.exact import Plan
from downside.experiments._experiment import Experiment, Run, entry
from downside.experiments._figures import agent_words, colour, figure, words
from downside.experiments._options import Options
from downside.experiments._paper import agent_label
from downside.experiments._rows import Row, read_rows, select, values
from downside.experiments._tables import show, terminal
from downside.experiments.optimum import optimum, solve_all
from downside.train import Agent

ENVIRONMENT = "downside/AmericanPut-v0"
GAMMA = 1.0
RISKS = ("cvar(0.2)", "cvar(0.6)", "cvar(1.0)")
LINES = (":", "--", "-")
"""Line styles of the measures, as in the paper."""
TIMESTEPS = {"default": 512_000, "paper": 500_000}
TIME = "time of exercise"
"""Not a risk measure: a claim is about it."""
_PRICES = np.linspace(0.3, 1.0, 701)
_EPISODES = 20_000


def main(options: Options) -> bool:
    """Trains, solves, writes, draws; returns whether the boundaries are ordered as in the paper."""
    plans = solve_all(
        options.folder / "american-put-optimum.csv",
        "downside reproduce put",
        ENVIRONMENT,
        GAMMA,
        RISKS,
        options,
        _edge_of_plan,
    )
    ordered = True
    for preset in options.presets:
        study = experiment(options, preset)
        rows = study.train()
        if rows:
            best = optimum(options.folder / "american-put-optimum.csv")
            ordered &= _show(rows, plans, best, preset) or preset == "paper"
            with figure(options.folder, study.name, 1, 2, (10.0, 4.0)) as (_, axes):
                _draw_payoffs(axes[0, 0], rows, study.rows("-returns"), preset)
                _draw_boundaries(axes[0, 1], rows, plans)
    return ordered or options.quick


def experiments(options: Options) -> list[Experiment]:
    """One for each preset."""
    return [experiment(options, preset) for preset in options.presets]


def experiment(options: Options, preset: str) -> Experiment:
    """QR-SRM for each level."""
    timesteps = TIMESTEPS[preset]
    settings = {"gamma": GAMMA, "total_timesteps": timesteps, "evaluation_fraction": 0.0}
    return Experiment(
        name=f"american-put-{preset}",
        command=f"downside reproduce put --preset {preset}",
        env=ENVIRONMENT,
        entries=[
            entry("QR-SRM", risk, preset=preset, **settings)
            for risk in RISKS
            if options.wants(agent_label("QR-SRM", risk))
        ],
        seeds=options.seeds_or(),
        measures=RISKS,
        order=lambda row: (RISKS.index(row["objective"]), int(row["seed"])),
        options=options,
        parts={"-returns": Run.returns},
        extra=boundary_column,
        facts={"gamma": GAMMA, "preset": preset, "total_timesteps": timesteps},
    )


# --- boundaries -------------------------------------------------------------------------------


def boundary(agent: Agent) -> Float[np.ndarray, " periods"]:
    """The highest price below the strike at which the agent exercises, at each time; NaN: none."""
    env = agent.env
    assert isinstance(env, AmericanPut)
    edge = np.full(env.periods, np.nan)
    for t in range(env.periods):
        discount = agent.settings.gamma**t
        observations = np.stack(
            [
                _PRICES,
                np.full_like(_PRICES, t / env.periods),
                np.zeros_like(_PRICES),
                np.full_like(_PRICES, discount),
            ],
            axis=1,
        )
        actions, _ = agent.predict(observations)
        exercised = _PRICES[(actions == EXERCISE) & (env.strike > _PRICES)]
        if exercised.size:
            edge[t] = exercised.max()
    return edge


def boundary_column(run: Run) -> Row:
    """The boundary of a run's agent."""
    return {"boundary": _written(boundary(run.agent))}


def plans(folder: Path) -> list[Row]:
    """The planner's rows."""
    return read_rows(folder / "american-put-optimum.csv")


def _written(prices: Sequence[float] | Float[np.ndarray, " periods"]) -> str:
    return json.dumps([None if np.isnan(price) else round(float(price), 4) for price in prices])


def _edge_of_plan(plan: Plan) -> Row:
    assert plan.boundary is not None
    return {"boundary": _written(plan.boundary)}


def edge(text: str) -> Float[np.ndarray, " periods"]:
    """A boundary from its text: NaN where there is no exercise."""
    return np.array([np.nan if price is None else price for price in json.loads(text)], dtype=float)


def exercise_time(edge: Float[np.ndarray, " periods"]) -> float:
    """The mean time of exercise, as a share of the put's life: when the price is first at or below
    the boundary `edge`, otherwise maturity. Always under the same prices."""
    prices = _prices()[:, : len(edge)]
    now = (prices <= np.where(np.isnan(edge), -np.inf, edge)) & (prices < AmericanPut().strike)
    first = np.where(now.any(axis=1), now.argmax(axis=1), len(edge))
    return float(first.mean() / len(edge))


@functools.cache
def _prices() -> Float[np.ndarray, "episodes periods"]:
    """Simulated prices at the decision times."""
    env, draws = AmericanPut(), np.random.default_rng(0)
    prices = [np.full(_EPISODES, env.initial_price)]
    for _ in range(env.periods - 1):
        noise = draws.standard_normal(_EPISODES)
        prices.append(np.asarray(env.next_price(jnp.asarray(prices[-1]), noise)))
    return np.stack(prices, axis=1)


def planned(plans: Sequence[Row], risk: str, periods: int) -> Float[np.ndarray, " periods"]:
    """The planner's boundary, if it is solved."""
    rows = select(plans, plan=risk)
    return edge(rows[0]["boundary"]) if rows else np.full(periods, np.nan)


def boundaries(rows: Sequence[Row], risk: str) -> Float[np.ndarray, "seeds periods"]:
    """The boundaries of each seed's agent."""
    edges = [edge(row["boundary"]) for row in select(rows, objective=risk, measure=risk)]
    return np.stack(edges) if edges else np.zeros((0, 0))


def median(edges: Float[np.ndarray, "seeds periods"]) -> Float[np.ndarray, " periods"]:
    """The middle seed at each time; NaN where most seeds never exercise."""
    filled = np.median(np.where(np.isnan(edges), -np.inf, edges), axis=0)
    return np.where(np.isfinite(filled), filled, np.nan)


# --- table and figure -------------------------------------------------------------------------


def _show(rows: list[Row], plans: list[Row], best: dict[str, float], preset: str) -> bool:
    shown, middles = [], []
    for risk in RISKS:
        seeds = values(rows, objective=risk, measure=risk)
        if not seeds.size:
            continue
        middle = median(boundaries(rows, risk))
        middles.append(np.where(np.isnan(middle), -np.inf, middle))
        gap = np.abs(middle - planned(plans, risk, len(middle)))
        shown.append(
            [
                risk,
                f"{seeds.mean():.4f}",
                f"{best[risk]:.4f}" if risk in best else "-",
                f"{seeds.mean() / best[risk]:.1%}" if risk in best else "-",
                "-" if np.isnan(gap).all() else f"{np.nanmax(gap):.3f}",
                str(seeds.size),
            ]
        )
    header = ("risk", "QR-SRM", "optimum", "share", "largest gap of the boundary", "seeds")
    show(terminal(), f"American put, γ = {GAMMA:g}, preset {preset}", header, shown)
    # A more risk-averse agent exercises sooner: at a higher price.
    return all(bool(np.all(a >= b)) for a, b in itertools.pairwise(middles))


def _draw_boundaries(axis: Any, rows: list[Row], plans: list[Row]) -> None:
    for risk in RISKS:
        label, edges = f"QR-SRM {risk}", boundaries(rows, risk)
        if not len(edges):
            continue
        times = np.arange(edges.shape[1])
        for boundary_of_seed in edges:
            axis.plot(times, boundary_of_seed, color=colour(label), alpha=0.25, linewidth=1)
        never = ": never" if np.isnan(median(edges)).all() else ""
        axis.plot(
            times,
            median(edges),
            "o-",
            color=colour(label),
            markersize=4,
            label=f"{agent_words(label)}{never}",
        )
        axis.plot(times, planned(plans, risk, len(times)), "--", color=colour(label))
    axis.plot([], [], "--", color="#777777", label="the optimum (mean: never)")
    axis.plot([], [], color="#777777", alpha=0.4, linewidth=1, label="each seed; dots: the median")
    low, high = axis.get_ylim()
    axis.set(
        title="Exercise at this price or below it",
        xlabel="decision time",
        ylabel="price of the asset (strike 1)",
        ylim=(low, high + 0.3 * (high - low)),
    )
    axis.legend(ncols=2, loc="upper center")


def _draw_payoffs(axis: Any, rows: list[Row], returns: list[Row], preset: str) -> None:
    every = [float(row["value"]) for row in returns] or [0.0, 1.0]
    bins = np.linspace(0, np.quantile(every, 0.998), 45)
    if not returns:
        axis.text(0.5, 0.5, "not yet run", transform=axis.transAxes, ha="center")
    for risk in RISKS:
        label = f"QR-SRM {risk}"
        payoffs = [float(row["value"]) for row in select(returns, objective=risk)]
        if not payoffs:
            continue
        heights, _ = np.histogram(payoffs, bins)
        axis.stairs(heights / len(payoffs), bins, color=colour(label), label=agent_words(label))
        for measure, line in zip(RISKS, LINES, strict=True):
            value = values(rows, objective=risk, measure=measure).mean()
            axis.axvline(value, color=colour(label), linestyle=line, linewidth=1)
    for measure, line in zip(RISKS, LINES, strict=True):
        axis.plot([], [], color="#777777", linestyle=line, label=f"value by {words(measure)}")
    axis.set(
        title=f"Payoffs of QR-SRM, preset {preset}",
        xlabel="payoff of an episode",
        ylabel="share of episodes",
        ylim=(0, None),
    )
    axis.legend(loc="upper right")
