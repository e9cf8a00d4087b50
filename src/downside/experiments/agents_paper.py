"""QR-SRM on mean reversion with the settings of the paper: are its figures reproducible?"""

from pathlib import Path

from downside.experiments import agents


def main(results: Path = Path("results"), seeds: tuple[int, ...] = (0, 1)) -> bool:
    """As `agents`, with the preset `paper` and fewer seeds: a run takes longer."""
    return agents.main(results, seeds, preset="paper")
