"""The frontier of mean reversion, from the mean to the worst tenth, and the exact frontier.

Nine mixtures and three seeds, in the folder of `downside frontier downside/MeanReversion-v0`.
Writes the points to `results/frontier.csv` and draws `figures/frontier`.
"""

from downside._locks import lock
from downside.experiments._experiment import EPISODES, QUICK, QUICK_SHARE
from downside.experiments._figures import save
from downside.experiments._options import Options
from downside.experiments._rows import write_about, write_rows
from downside.experiments._tables import terminal
from downside.experiments.optimum import ENVIRONMENT, GAMMA
from downside.studies.frontiers import frontier
from downside.studies.frontiers.storage import frontier_folder, write_folder

START, END, POINTS = "mean", "cvar(0.1)", 9


def main(options: Options) -> bool:
    """Trains the missing agents, writes and prints; returns whether the points are in order."""
    folder = frontier_folder(ENVIRONMENT, "qrsrm", START, END)
    if options.quick:
        folder = options.folder / folder.name
    curve = frontier(
        ENVIRONMENT,
        start=START,
        end=END,
        points=3 if options.quick else POINTS,
        seeds=options.seeds_or((0, 1, 2)),
        episodes=EPISODES // QUICK_SHARE if options.quick else None,
        exact=not options.quick,
        folder=folder,
        progress_bar=True,
        gamma=GAMMA,
        **(QUICK if options.quick else {}),
    )
    with lock(folder, wait=True):
        page = write_folder(curve, folder)
    summary = curve.summary()
    path = options.folder / "frontier.csv"
    write_rows(path, summary.pop("points"))
    write_about(path.with_suffix(".json"), "downside reproduce frontier", **summary)
    save(curve.plot(), options.folder, "frontier")
    console = terminal(130)
    console.print(curve.table())
    console.print(f"Points: {path}. Page: {page}", highlight=False, markup=False, soft_wrap=True)
    return curve.monotone or options.quick
