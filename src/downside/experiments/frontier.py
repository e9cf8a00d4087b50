"""The frontier of mean reversion, from the mean to the worst tenth, beside the exact one.

Nine mixtures and three seeds, in the folder that `downside frontier downside/MeanReversion-v0` has
too; `results/frontier.csv` has the points, `figures/frontier` the picture.
"""

from downside.experiments._figures import save
from downside.experiments._options import Options
from downside.experiments._rows import write_about, write_rows
from downside.experiments._tables import terminal
from downside.experiments._training import QUICK, QUICK_EPISODES
from downside.experiments.optimum import ENVIRONMENT, GAMMA
from downside.frontiers import frontier
from downside.frontiers.folder import frontier_folder, write_folder

START, END, POINTS = "mean", "cvar(0.1)", 9


def main(options: Options) -> bool:
    """Trains what is missing, writes and prints; says whether the points are in order."""
    folder = frontier_folder(ENVIRONMENT, "qrsrm", START, END)
    if options.quick:
        folder = options.folder / folder.name
    found = frontier(
        ENVIRONMENT,
        start=START,
        end=END,
        points=3 if options.quick else POINTS,
        seeds=options.seeds_or((0, 1, 2)),
        episodes=QUICK_EPISODES if options.quick else None,
        exact=not options.quick,
        folder=folder,
        progress_bar=True,
        gamma=GAMMA,
        **(QUICK if options.quick else {}),
    )
    page = write_folder(found, folder)
    summary = found.summary()
    path = options.folder / "frontier.csv"
    write_rows(path, summary.pop("points"))
    write_about(path.with_suffix(".json"), "downside reproduce frontier", **summary)
    save(found.plot(), options.folder, "frontier")
    console = terminal(130)
    console.print(found.table())
    console.print(f"Points: {path}. Page: {page}", highlight=False, soft_wrap=True)
    return found.monotone or options.quick
