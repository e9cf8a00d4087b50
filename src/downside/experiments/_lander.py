"""What the page of the reproduction says of landers beside their table."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from downside.experiments import _md
from downside.experiments._book import Book, Range, difference, mean_range
from downside.experiments._rows import Row, read_rows, select
from downside.experiments.lunar import MEASURES, ROWS, SB3, SB3_TIMESTEPS


def what_caution_does(book: Book) -> list[str]:
    """The landers for the tail, together and each, less QR-DQN of the same seed."""
    careful, seeds, lines = MEASURES[1:], 0, []
    for some in (careful, *((one,) for one in careful)):
        found = [_less_neutral(book, some, measure) for measure in MEASURES]
        there = [one for one in found if one is not None]
        if len(there) < len(found):
            return []
        said = "the mean of all three" if some == careful else f"QR-SRM {some[0]}"
        lines.append([said.replace("*", r"\*"), *(_md.signed(one, 1) for one in there)])
        seeds = there[0].seeds
    return [
        "",
        "What caution does: the three landers that look at the tail (`cvar(0.5)`, `cvar(0.2)`, "
        "half and half), less QR-DQN, which starts as the same run:",
        "",
        _md.table((f"less QR-DQN, {seeds} seeds", *(f"`{one}`" for one in MEASURES)), lines),
    ]


def _less_neutral(book: Book, careful: Sequence[str], measure: str) -> Range | None:
    """The mean of QR-SRM for some measures, less QR-DQN of the same seed."""
    agents = [book.by_seed("lunar", "default", f"QR-SRM {one}", measure) for one in careful]
    neutral = book.by_seed("lunar", "default", "QR-DQN", measure)
    shared = sorted(set(neutral).intersection(*agents))
    ours = {seed: fmean(one[seed] for one in agents) for seed in shared}
    return difference(ours, neutral) if ours else None


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
