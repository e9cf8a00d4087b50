"""Hedging an option that was sold: PG-SRM beside hedges from textbooks, and prices.

Writes `results/hedging.csv` (a call with costs: each agent beside the Black-Scholes delta and the
best band, with intervals of the differences), `hedging-heston.csv` (the prices of Deep Hedging's
problem, with a million paths) and `hedging-convergence.csv` (prices without costs as steps grow).
"""

import dataclasses
import functools
import time
from typing import Any

import numpy as np

from downside.baselines import BlackScholesDelta, DeltaBand
from downside.envs import Hedging
from downside.evaluation import Evaluation, compare, evaluate
from downside.experiments._experiment import (
    EPISODES,
    QUICK_ACTOR,
    QUICK_SHARE,
    Experiment,
    Run,
    entry,
)
from downside.experiments._options import Options
from downside.experiments._paper import agent_label
from downside.experiments._rows import Row, add_rows, read_rows, select
from downside.experiments._tables import show, terminal
from downside.risk import parse
from downside.train import PGSRM

ENVIRONMENT = "downside/Hedging-v0"
RISKS = ("cvar(0.05)", "cvar(0.2)")
MEASURES = ("mean", "cvar(0.2)", "cvar(0.05)")
HESTON = {"model": "heston", "swap": True, "maturity": 30 / 365, "cost": 0.0}
"""Section 5.2 of Deep Hedging (Buehler, Gonon, Teichmann and Wood, 2019)."""
HESTON_RISKS, HESTON_EPISODES, HESTON_SEEDS = ("cvar(0.5)", "cvar(0.01)"), 1_000_000, (0, 1, 2)
HESTON_PUBLISHED = {"cvar(0.5)": 1.94, "cvar(0.01)": 3.49}
"""Prices of that section (arXiv:1802.03042, page 23). It charges the mean of the worst half and of
the worst hundredth; the price without aversion to risk is 1.69."""
UPDATES = 2000
"""Of agents here: an episode has three times the steps of mean reversion."""
PERIODS, CONVERGENCE_RISK, CONVERGENCE_UPDATES = (4, 8, 16, 32, 64), "cvar(0.5)", 1500
WIDTHS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08)
"""Half-widths of bands, of which the best one for a measure is chosen in other episodes."""
_TUNING_SEED = 7


def main(options: Options) -> bool:
    """Trains the missing agents, writes and prints; there is nothing to agree with."""
    for experiment in experiments(options):
        experiment.train()
    if options.wants("convergence"):
        _converge(options)
    console = terminal(130)
    show(console, "A call with costs", HEADER, lines(options))
    show(console, "Prices in Heston's model", HESTON_HEADER, heston_lines(options))
    show(console, "Prices without costs", CONVERGENCE_HEADER, convergence_lines(options))
    return True


def experiments(options: Options) -> list[Experiment]:
    """With costs, and in Heston's model."""
    changes: dict[str, Any] = {"updates": UPDATES}
    return [
        Experiment(
            name="hedging",
            command="downside reproduce hedging",
            env=ENVIRONMENT,
            entries=[
                entry("PG-SRM", risk, **changes)
                for risk in RISKS
                if options.wants(f"hedging {agent_label('PG-SRM', risk)}")
            ],
            seeds=options.seeds_or((0, 1, 2)),
            measures=MEASURES,
            order=lambda row: (
                RISKS.index(row["objective"]),
                int(row["seed"]),
                MEASURES.index(row["measure"]),
            ),
            options=options,
            extra=_beside_textbooks,
            facts={"changes": changes},
            quick=QUICK_ACTOR,
        ),
        Experiment(
            name="hedging-heston",
            command="downside reproduce hedging",
            env=ENVIRONMENT,
            parameters=HESTON,
            entries=[
                entry("PG-SRM", risk, **changes)
                for risk in HESTON_RISKS
                if options.wants(f"heston {agent_label('PG-SRM', risk)}")
            ],
            seeds=options.seeds_or(HESTON_SEEDS),
            measures=(),
            order=lambda row: (HESTON_RISKS.index(row["objective"]), int(row["seed"])),
            options=options,
            episodes=HESTON_EPISODES,
            extra=_price,
            facts={"parameters": HESTON, "changes": changes},
            quick=QUICK_ACTOR,
        ),
    ]


# --- with costs ---------------------------------------------------------------------------------


def _beside_textbooks(run: Run) -> Row:
    """The best band for the measure of the run, and the differences from it and from the delta, in
    the same episodes."""
    risk, mine = run.columns["objective"], run.evaluation
    width = _best_band(risk, len(mine))
    hedges = {"delta": BlackScholesDelta(Hedging()), "band": DeltaBand(Hedging(), half_width=width)}
    row: Row = {"half_width": width}
    for name, hedge in hedges.items():
        theirs = evaluate(hedge, episodes=len(mine), seed=mine.seed or 0)
        gap = compare(mine, theirs, risk)
        row |= {
            f"{name}_value": round(theirs.value(risk), 6),
            f"{name}_difference": round(gap.value, 6),
            f"{name}_low": round(gap.low, 6),
            f"{name}_high": round(gap.high, 6),
        }
    return row


@functools.cache
def _best_band(risk: str, episodes: int) -> float:
    """The half-width with the highest value, in episodes of another seed."""

    def value(width: float) -> float:
        band = DeltaBand(Hedging(), half_width=width)
        return evaluate(band, episodes=episodes, seed=_TUNING_SEED).value(risk)

    return max(WIDTHS, key=value)


HEADER = ("PG-SRM for", "value", "delta", "best band", "more than delta", "more than band", "seeds")


def lines(options: Options) -> list[list[str]]:
    """PG-SRM by its own measure beside the delta and the best band; mean over seeds, and the widest
    interval of the differences."""
    rows, out = experiments(options)[0].rows(), []
    for risk in RISKS:
        chosen = select(rows, objective=risk, measure=risk)
        if not chosen:
            continue

        def mean(name: str, chosen: list[Row] = chosen) -> float:
            return float(np.mean([float(row[name]) for row in chosen]))

        def gap(name: str, chosen: list[Row] = chosen) -> str:
            low = min(float(row[f"{name}_low"]) for row in chosen)
            high = max(float(row[f"{name}_high"]) for row in chosen)
            return f"{mean(f'{name}_difference'):+.4f} [{low:.4f}, {high:.4f}]"

        width = float(chosen[0]["half_width"])
        out.append(
            [
                risk,
                f"{mean('value'):.4f}",
                f"{mean('delta_value'):.4f}",
                f"{mean('band_value'):.4f} (± {width:g})",
                gap("delta"),
                gap("band"),
                str(len(chosen)),
            ]
        )
    return out


# --- Heston -------------------------------------------------------------------------------------


def _price(run: Run) -> Row:
    env = run.agent.jax_env
    assert isinstance(env, Hedging)
    price = env.indifference_price(run.evaluation.returns, run.columns["objective"])
    return {"price": round(price, 6)}


HESTON_HEADER = (
    "seller's measure",
    "price",
    "published",
    "of each seed",
    "standard error",
    "paths",
    "seeds",
)


def heston_lines(options: Options) -> list[list[str]]:
    """The price by each measure."""
    experiment, out = experiments(options)[1], []
    for risk in HESTON_RISKS:
        chosen = select(experiment.rows(), objective=risk)
        if chosen:
            prices = [float(row["price"]) for row in chosen]
            error = max(float(row["standard_error"]) for row in chosen)
            each = ", ".join(f"{price:.4f}" for price in prices)
            paths = f"{experiment.episodes:,}"
            known = f"{HESTON_PUBLISHED[risk]:.2f}"
            price, seeds = f"{np.mean(prices):.4f}", str(len(prices))
            out.append([risk, price, known, each, f"{error:.4f}", paths, seeds])
    return out


# --- without costs ------------------------------------------------------------------------------


def _converge(options: Options) -> None:
    """Trains an agent for each number of steps that is not in the table."""
    path = options.folder / "hedging-convergence.csv"
    rows = read_rows(path)
    episodes = EPISODES // QUICK_SHARE if options.quick else EPISODES
    for periods in PERIODS[: 2 if options.quick else None]:
        if select(rows, periods=periods):
            continue
        env = dataclasses.replace(Hedging(), cost=0.0, periods=periods)
        settings = QUICK_ACTOR if options.quick else {"updates": CONVERGENCE_UPDATES}
        begin = time.perf_counter()
        agent = PGSRM(env, risk=CONVERGENCE_RISK, seed=0, **settings)
        agent.learn()
        seconds = time.perf_counter() - begin
        mine: Evaluation = evaluate(agent, episodes=episodes)
        row = {
            "periods": periods,
            "seed": 0,
            "price": round(env.indifference_price(mine.returns, CONVERGENCE_RISK), 6),
            "standard_error": round(mine.standard_error(CONVERGENCE_RISK), 6),
            "mean": round(mine.mean, 6),
            "delta": round(BlackScholesDelta(env).price(CONVERGENCE_RISK, episodes=episodes), 6),
            "black_scholes": round(env.received_premium, 6),
            "seconds": round(seconds, 1),
        }
        facts: Row = {"environment": ENVIRONMENT, "parameters": {"cost": 0.0}, "seeds": [0]}
        facts |= {"risk": str(parse(CONVERGENCE_RISK)), "episodes": episodes, "changes": settings}
        command = "downside reproduce hedging"
        add_rows(path, rows, [row], ("periods",), command, facts, lambda r: int(r["periods"]))


CONVERGENCE_HEADER = (
    "steps",
    "price by PG-SRM",
    "by the delta",
    "Black-Scholes",
    "more than Black-Scholes",
    "times √steps",
)


def convergence_lines(options: Options) -> list[list[str]]:
    """Prices by CVaR at level 1/2 without costs: they tend to that of Black and Scholes."""
    out = []
    for row in read_rows(options.folder / "hedging-convergence.csv"):
        periods, price, limit = (
            int(row["periods"]),
            float(row["price"]),
            float(row["black_scholes"]),
        )
        more = price - limit
        out.append(
            [
                str(periods),
                f"{price:.4f} ± {1.96 * float(row['standard_error']):.4f}",
                f"{float(row['delta']):.4f}",
                f"{limit:.4f}",
                f"{more:.4f}",
                f"{more * periods**0.5:.3f}",
            ]
        )
    return out
