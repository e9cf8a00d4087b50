"""The American put: when do CVaR 0.2, 0.6 and 1.0 exercise? The agents beside the planner.

Writes `results/american-put.csv` (a row for each level and seed, with the boundary) and draws
`results/american-put.png`.
"""

import json
from pathlib import Path

import numpy as np
from jaxtyping import Float

from downside._files import whole_file
from downside.envs import AmericanPut
from downside.envs.american_put import EXERCISE
from downside.exact import Plan, solve
from downside.experiments._options import Options
from downside.experiments._study import (
    EPISODES,
    Cell,
    Row,
    read_rows,
    select,
    train_cells,
    values,
    write_about,
    write_rows,
)
from downside.experiments._tables import show, terminal
from downside.train import Agent

ENVIRONMENT = "downside/AmericanPut-v0"
GAMMA = 1.0
RISKS = ("cvar(0.2)", "cvar(0.6)", "cvar(1.0)")
COLOURS = ("#0072B2", "#009E73", "#D55E00")
TIMESTEPS = 512_000
_PRICES = np.linspace(0.3, 1.0, 701)


def main(options: Options) -> bool:
    """Trains, solves, writes, draws; says whether the boundaries are ordered as in the paper."""
    results = options.folder
    path = results / "american-put.csv"
    rows = read_rows(path)
    for one in train_cells(ENVIRONMENT, missing(options), "put", options):
        edge = json.dumps([_rounded(price) for price in boundary(one.agent)])
        for row in one.rows(*RISKS):
            del row["algorithm"]
            rows.append({**row, "boundary": edge})
        rows.sort(key=lambda row: (RISKS.index(row["objective"]), int(row["seed"])))
        write_rows(path, rows)
        write_about(
            path.with_suffix(".json"),
            "downside reproduce put",
            environment=ENVIRONMENT,
            gamma=GAMMA,
            seeds=sorted({int(row["seed"]) for row in rows}),
            episodes=EPISODES,
            total_timesteps=TIMESTEPS,
        )
    plans = {risk: solve(ENVIRONMENT, risk, gamma=GAMMA, episodes=100_000) for risk in RISKS}
    _draw(rows, plans, results / "american-put.png")
    return _show(rows, plans) or options.quick


def remaining(options: Options) -> int:
    """How many agents are still to be trained."""
    return len(missing(options))


def missing(options: Options) -> list[Cell]:
    """The agents that are not in the file."""
    rows = read_rows(options.folder / "american-put.csv")
    settings = {"gamma": GAMMA, "total_timesteps": TIMESTEPS}
    return [
        Cell("QR-SRM", risk, seed, settings)
        for seed in options.seeds_or()
        for risk in RISKS
        if options.only in risk and not select(rows, objective=risk, seed=seed)
    ]


def boundary(agent: Agent) -> Float[np.ndarray, " periods"]:
    """The highest price below the strike at which the agent exercises, at each time; NaN: none."""
    env = agent.env
    assert isinstance(env, AmericanPut)
    edge = np.full(env.periods, np.nan)
    for t in range(env.periods):
        discount = agent.settings.gamma**t
        seen = np.stack(
            [
                _PRICES,
                np.full_like(_PRICES, t / env.periods),
                np.zeros_like(_PRICES),
                np.full_like(_PRICES, discount),
            ],
            axis=1,
        )
        actions, _ = agent.predict(seen)
        exercised = _PRICES[(actions == EXERCISE) & (env.strike > _PRICES)]
        if exercised.size:
            edge[t] = exercised.max()
    return edge


def _rounded(price: float) -> float | None:
    return None if np.isnan(price) else round(float(price), 4)


def boundaries(rows: list[Row], risk: str) -> Float[np.ndarray, "seeds periods"]:
    """The boundaries of each seed's agent."""
    own = [
        json.loads(row["boundary"])
        for row in rows
        if row["objective"] == risk and row["measure"] == risk
    ]
    return np.array([[np.nan if p is None else p for p in one] for one in own], dtype=float)


def _show(rows: list[Row], plans: dict[str, Plan]) -> bool:
    console = terminal()
    shown, middles = [], []
    for risk, plan in plans.items():
        own = values(rows, objective=risk, measure=risk)
        edges = boundaries(rows, risk)
        middle = _median(edges)
        middles.append(middle)
        exact = plan.boundary
        assert exact is not None
        gap = np.abs(middle - exact)
        shown.append(
            [
                risk,
                f"{own.mean():.4f}",
                f"{plan.value:.4f}",
                f"{own.mean() / plan.value:.1%}",
                "-" if np.isnan(gap).all() else f"{np.nanmax(gap):.3f}",
            ]
        )
    header = ("risk", "QR-SRM", "optimum", "share", "largest gap of the boundary")
    show(
        console,
        f"American put, γ = {GAMMA:g}, {len({row['seed'] for row in rows})} seeds",
        header,
        shown,
    )
    # A more risk-averse agent exercises sooner: at a higher price.
    filled = [np.where(np.isnan(middle), -np.inf, middle) for middle in middles]
    return bool(np.all(filled[0] >= filled[1]) and np.all(filled[1] >= filled[2]))


def _median(edges: Float[np.ndarray, "seeds periods"]) -> Float[np.ndarray, " periods"]:
    """The middle seed at each time; NaN where most seeds never exercise."""
    filled = np.median(np.where(np.isnan(edges), -np.inf, edges), axis=0)
    return np.where(np.isfinite(filled), filled, np.nan)


def _draw(rows: list[Row], plans: dict[str, Plan], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axis = figure.subplots()
    for (risk, plan), colour in zip(plans.items(), COLOURS, strict=True):
        edges = boundaries(rows, risk)
        times = np.arange(edges.shape[1])
        for edge in edges:
            axis.plot(times, edge, color=colour, alpha=0.25, linewidth=1)
        middle, exact = _median(edges), plan.boundary
        assert exact is not None
        for edge, who, style in ((middle, "agents", "o-"), (exact, "planner", "--")):
            said = f"{risk}, {who}{': never' if np.isnan(edge).all() else ''}"
            axis.plot(times, edge, style, color=colour, markersize=4, label=said)
    axis.set(
        title="Exercise the put at this price or below it",
        xlabel="decision time",
        ylabel="price (strike 1)",
    )
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, ncols=3, fontsize=8)
    with whole_file(path) as temporary:
        figure.savefig(temporary, dpi=150)
