"""Tables on the terminal."""

import math
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table


def terminal(width: int = 80) -> Console:
    """The terminal; a narrow one wraps lines instead of cutting numbers."""
    console = Console()
    console.width = max(console.width, width)
    return console


def show(
    console: Console,
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    ends: frozenset[int] = frozenset(),
) -> None:
    """Prints a table; `ends` are the rows after which a line is drawn."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i == 0 else "right")
    for i, row in enumerate(rows):
        table.add_row(*row, end_section=i in ends)
    console.print(table)


class Comparison:
    """Figures of the paper beside ours, compared in the digits that the paper prints."""

    def __init__(self):
        self.rows: list[tuple[str, str, str, str]] = []
        self.agree = True

    def add(self, name: str, paper: str, ours: float) -> None:
        """Adds a figure; `paper` is the text in the paper."""
        decimals = len(paper.partition(".")[2])
        rounded, cut_off = round(ours, decimals), math.floor(ours * 10**decimals + 1e-9)
        same = float(paper) in (rounded, cut_off / 10**decimals)  # the paper does both
        self.agree &= same
        self.rows.append((name, paper, f"{ours:.{max(decimals, 4)}f}", "yes" if same else "NO"))

    def show(self, console: Console) -> None:
        """Prints the comparison."""
        show(console, "Beside the paper", ("figure", "paper", "ours", "agree"), self.rows)
