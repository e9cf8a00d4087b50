"""The lander section of the page, beside its table."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from downside.evaluation.seeds import estimate_mean
from downside.experiments import _md
from downside.experiments._results import RESAMPLES, Results, difference
from downside.experiments._rows import Row, read_rows, select
from downside.experiments.lunar import MEASURES, ROWS, SB3, SB3_TIMESTEPS


def what_caution_does(results: Results) -> list[str]:
    """Landers for the tail minus QR-DQN of the same seed: together, and each."""
    careful, lines = [f"QR-SRM {risk}" for risk in MEASURES[1:]], []
    values = {
        (row, measure): results.by_seed("lunar", "default", row, measure)
        for row in ("QR-DQN", *careful)
        for measure in MEASURES
    }
    seeds = sorted(set.intersection(*map(set, values.values())))
    if not seeds:
        return []
    for agents in (careful, *([agent] for agent in careful)):
        cells = []
        for measure in MEASURES:
            ours = {seed: fmean(values[agent, measure][seed] for agent in agents) for seed in seeds}
            cells.append(_md.signed(difference(ours, values["QR-DQN", measure]), 1))
        label = "the mean of all three" if len(agents) > 1 else agents[0]
        lines.append([label.replace("*", r"\*"), *cells])
    return [
        "",
        "What caution does: the three landers that look at the tail (`cvar(0.5)`, `cvar(0.2)`, "
        "half and half), less QR-DQN, which starts as the same run:",
        "",
        _md.table(
            (f"less QR-DQN, {len(seeds)} seeds", *(f"`{measure}`" for measure in MEASURES)), lines
        ),
    ]


def beside_sb3(results: Results, folder: Path) -> list[str]:
    """QR-DQN beside that of stable-baselines3, at the same number of steps."""
    rows = results.rows("lunar", "default", f"-{SB3_TIMESTEPS}")
    peers = select(read_rows(folder / "lunar-lander-sb3.csv"), timesteps=SB3_TIMESTEPS)
    trained = {row["row"] for row in rows}
    lines = [
        [name.replace("*", r"\*"), *(_mean(rows, row=name, measure=measure) for measure in SB3)]
        for name in ROWS
        if name == "QR-DQN" or name in trained
    ]
    if peers:
        name = "stable-baselines3-contrib (`make peers-lander`)"
        lines.append([name, *(_mean(peers, measure=measure) for measure in SB3)])
    earlier = "stable-baselines3-contrib, an earlier run"
    lines.append([earlier, *(f"{value}" for value in SB3.values())])
    header = (f"{SB3_TIMESTEPS:,} steps", *(f"`{measure}`" for measure in SB3))
    seeds = len({row["seed"] for row in rows})
    return [
        "",
        "What a user would take instead is QR-DQN of stable-baselines3-contrib (three layers "
        "of 128, 50 quantiles, batches of 128, learning rate 1.5e-3 declining to 0, an update "
        "for four steps); the earlier run is not part of this repository. Ours "
        f"after as many steps, {seeds} seeds, with the preset as it comes (`downside reproduce "
        f"lunar --preset default --timesteps {SB3_TIMESTEPS}`):",
        "",
        _md.table(header, lines),
    ]


def _mean(rows: Sequence[Row], **wanted: str) -> str:
    """The mean of these rows over seeds, with its interval."""
    rows = select(rows, **wanted)
    if not rows:
        return "not yet run"
    values = [float(row["value"]) for row in rows]
    errors = [float(row["standard_error"]) for row in rows if row.get("standard_error")]
    return _md.interval(estimate_mean(values, errors, resamples=RESAMPLES), 1, seeds=3)
