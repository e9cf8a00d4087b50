"""The page `docs/evidence/reproduction.md`, and the figures that are made from tables."""

from pathlib import Path

from downside._files import write_text
from downside.experiments._comparison_figure import draw_comparison
from downside.experiments._options import Options
from downside.experiments._page import PRESETS, Page
from downside.experiments._paper import paper_table
from downside.experiments._results import Results
from downside.experiments._tables import terminal

PAGE = Path("docs/evidence/reproduction.md")


def main(options: Options) -> bool:
    """Draws and writes; there is nothing to agree with."""
    folder, results = options.folder, Results(options.folder)
    if any(results.rows("mean-reversion", preset) for preset in PRESETS):
        draw_comparison(results, "mean-reversion", paper_table("mean_reversion"), PRESETS, folder)
    if any(results.rows("lunar", preset) for preset in PRESETS):
        draw_comparison(results, "lunar", paper_table("windy_lunar_lander"), PRESETS, folder)
    in_repository = folder == Path("results") and PAGE.parent.is_dir()
    path = PAGE if in_repository else folder / PAGE.name
    write_text(path, Page(folder, path).text())
    terminal().print(f"Written: {path}", highlight=False, markup=False)
    return True
