"""The windy lunar lander (table 3 of the paper): every row that is asked for, several seeds.

Each cell is a run folder under `runs/lunar/` that is resumed if it was interrupted; what is in
`results/lunar-lander.csv` is not trained again. With another number of steps than usual, folder and
table have it in their names.
"""

from pathlib import Path
from typing import Any

import numpy as np

from downside.evaluation import evaluate
from downside.experiments._options import Options
from downside.experiments._paper import paper_table
from downside.experiments._study import Row, read_rows, write_about, write_rows
from downside.experiments._tables import show, terminal
from downside.runs import check_same_run, resume_run, train_run
from downside.train import QRDQN, QRSRM, Agent, QRCVaR, QRiCVaR, load
from downside.train.callbacks import saved_in

ENVIRONMENT = "downside/WindyLunarLander-v0"
GAMMA, TIMESTEPS, EPISODES, EVALUATION_SEED = 0.99, 500_000, 1_000, 5_000
MIXTURE = "0.5*cvar(0.2)+0.5*cvar(1.0)"
MEASURES = ("cvar(1.0)", "cvar(0.5)", "cvar(0.2)", MIXTURE)
ROWS: dict[str, tuple[type[Agent], str | None]] = {
    "QR-DQN": (QRDQN, None),
    f"QR-SRM {MIXTURE}": (QRSRM, MIXTURE),
    "QR-SRM cvar(0.2)": (QRSRM, "cvar(0.2)"),
    "QR-SRM cvar(0.5)": (QRSRM, "cvar(0.5)"),
    "QR-SRM cvar(1.0)": (QRSRM, "cvar(1.0)"),
    "QR-iCVaR 0.5": (QRiCVaR, "cvar(0.5)"),
    "QR-iCVaR 0.2": (QRiCVaR, "cvar(0.2)"),
    "QR-CVaR 1.0": (QRCVaR, "cvar(1.0)"),
    "QR-CVaR 0.5": (QRCVaR, "cvar(0.5)"),
    "QR-CVaR 0.2": (QRCVaR, "cvar(0.2)"),
}
"""The paper's rows, the ones that matter most first."""
PAPER = paper_table("windy_lunar_lander").figures
SB3_TIMESTEPS = 300_000
SB3 = dict(zip(MEASURES, (43.6, 20.1, 4.2, 23.9), strict=True))
"""What QR-DQN of stable-baselines3-contrib reached in one run of so many steps: layers of 3 x 128,
50 quantiles, batches of 128, learning rate 1.5e-3 decaying to 0, an update for four steps."""


def main(options: Options) -> bool:
    """Trains, values, writes and prints; there is no optimum to agree with."""
    rows = tuple(name for name in ROWS if options.only in name)
    timesteps = options.timesteps or TIMESTEPS
    unusual = "" if timesteps == TIMESTEPS else f"-{timesteps}"
    folder, path = Path(f"runs/lunar{unusual}"), options.folder / f"lunar-lander{unusual}.csv"
    seeds = options.seeds_or((0, 1, 2))
    if options.quick:
        rows, timesteps, folder = rows[:1], 3_000, options.folder / "lunar"
    found = read_rows(path)
    for seed in seeds:
        for name in rows:
            if any(row["row"] == name and int(row["seed"]) == seed for row in found):
                continue
            own = _cell(name, seed, timesteps, folder)
            found = read_rows(path) + own  # another command may have written others meanwhile
            write_rows(path, found)
            write_about(
                path.with_suffix(".json"),
                "downside reproduce lunar" + (f" --timesteps {timesteps}" if unusual else ""),
                environment=ENVIRONMENT,
                gamma=GAMMA,
                total_timesteps=timesteps,
                seeds=sorted({int(row["seed"]) for row in found}),
                episodes=EPISODES,
            )
    _show(found)
    return True


def _cell(name: str, seed: int, timesteps: int, folder: Path) -> list[Row]:
    """One agent: trained, or gone on with, and valued."""
    kind, risk = ROWS[name]
    own = folder / f"{name.replace(' ', '_').replace('*', '')}__{seed}"
    agent = kind(ENVIRONMENT, risk=risk, seed=seed, gamma=GAMMA)
    if saved_in(own):
        check_same_run(agent, own, timesteps)
        agent = resume_run(own, progress_bar=True)[0]
    else:
        train_run(agent, own, total_timesteps=timesteps, episodes=100, progress_bar=True)
        agent = load(own)
    valued = evaluate(agent, episodes=EPISODES, seed=EVALUATION_SEED + seed)
    return [
        {
            "row": name,
            "seed": seed,
            "measure": measure,
            "value": round(valued.value(measure), 4),
            "standard_error": round(valued.standard_error(measure), 4),
            "timesteps": agent.num_timesteps,
            "seconds": round(float(agent.history[-1]["seconds"]), 1),
        }
        for measure in MEASURES
    ]


def _show(rows: list[Row]) -> None:
    shown: list[list[Any]] = []
    for name in ROWS:
        line, own = [name], []
        for measure in MEASURES:
            own = [
                float(row["value"])
                for row in rows
                if row["row"] == name and row["measure"] == measure
            ]
            if own:
                spread = f" ± {np.std(own, ddof=1):.1f}" if len(own) > 1 else ""
                line.append(f"{np.mean(own):.1f}{spread} ({PAPER[name, measure].mean:.1f})")
        if len(line) > 1:
            shown.append([*line, str(len(own))])
    header = ("agent", *MEASURES[:3], "half and half", "seeds")
    title = "Windy lunar lander: ours, mean ± sd of seeds (the paper's)"
    show(terminal(), title, header, shown)
