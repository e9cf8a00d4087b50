"""What the page of the reproduction says of landers beside their table."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from downside.experiments import _md
from downside.experiments._book import Book, difference, mean_range
from downside.experiments._rows import Row, read_rows, select
from downside.experiments.lunar import MEASURES, ROWS, SB3, SB3_TIMESTEPS


def what_caution_does(book: Book) -> list[str]:
    """The landers for the tail, together and each, less QR-DQN of the same seed."""
    careful, lines = [f"QR-SRM {one}" for one in MEASURES[1:]], []
    values = {
        (row, measure): book.by_seed("lunar", "default", row, measure)
        for row in ("QR-DQN", *careful)
        for measure in MEASURES
    }
    seeds = sorted(set.intersection(*map(set, values.values())))
    if not seeds:
        return []
    for some in (careful, *([one] for one in careful)):
        cells = []
        for measure in MEASURES:
            ours = {seed: fmean(values[one, measure][seed] for one in some) for seed in seeds}
            cells.append(_md.signed(difference(ours, values["QR-DQN", measure]), 1))
        said = "the mean of all three" if len(some) > 1 else some[0]
        lines.append([said.replace("*", r"\*"), *cells])
    return [
        "",
        "What caution does: the three landers that look at the tail (`cvar(0.5)`, `cvar(0.2)`, "
        "half and half), less QR-DQN, which starts as the same run:",
        "",
        _md.table((f"less QR-DQN, {len(seeds)} seeds", *(f"`{one}`" for one in MEASURES)), lines),
    ]


def beside_sb3(book: Book, folder: Path) -> list[str]:
    """QR-DQN at the number of steps at which there is something to compare it with."""
    rows = book.rows("lunar", "default", f"-{SB3_TIMESTEPS}")
    peers = select(read_rows(folder / "lunar-lander-sb3.csv"), timesteps=SB3_TIMESTEPS)
    there = {row["row"] for row in rows}
    lines = [
        [name.replace("*", r"\*"), *(_mean(rows, row=name, measure=one) for one in SB3)]
        for name in ROWS
        if name == "QR-DQN" or name in there
    ]
    if peers:
        name = "stable-baselines3-contrib (`make peers-lander`)"
        lines.append([name, *(_mean(peers, measure=one) for one in SB3)])
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
    own = select(rows, **wanted)
    if not own:
        return "not yet run"
    errors = [float(row["standard_error"]) for row in own if row.get("standard_error")]
    return _md.interval(mean_range([float(row["value"]) for row in own], errors), 1, seeds=3)
