"""Shared by all figures: colours of agents, marks of algorithms, and saving."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from downside._files import atomic_write
from downside.experiments._paper import agent_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    "cvar(1.0)": "#D55E00",
    "cvar(0.6)": "#009E73",
    "cvar(0.5)": "#0072B2",
    "cvar(0.2)": "#332288",
    "exponential(4)": "#E69F00",
    "exponential(12)": "#A65628",
    "dual_power(2)": "#CC79A7",
    "dual_power(4)": "#882255",
    "0.2*cvar(0.1)+0.3*cvar(0.6)+0.5*cvar(1.0)": "#117733",
    "0.5*cvar(0.2)+0.5*cvar(1.0)": "#56B4E9",
}
"""By objective. Algorithms with the same objective have different marks."""
MARKS = {"QR-SRM": "o", "QR-CVaR": "s", "QR-iCVaR": "^", "QR-DQN": "D"}
_NEUTRAL = "#222222"
_WORDS = {
    "cvar(1.0)": "mean",
    "0.2*cvar(0.1)+0.3*cvar(0.6)+0.5*cvar(1.0)": "three levels",
    "0.5*cvar(0.2)+0.5*cvar(1.0)": "½ mean, ½ worst 20%",
    "exponential(4)": "exponential 4",
    "exponential(12)": "exponential 12",
    "dual_power(2)": "dual power 2",
    "dual_power(4)": "dual power 4",
}
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "downside",
}


def colour(label: str) -> str:
    """The colour of an agent, the same in every figure."""
    algorithm, objective = agent_of(label)
    return _NEUTRAL if algorithm == "QR-DQN" else COLOURS.get(objective, _NEUTRAL)


def words(measure: str) -> str:
    """A measure in words."""
    if measure in _WORDS:
        return _WORDS[measure]
    level = measure.removeprefix("cvar(").removesuffix(")")
    return f"worst {float(level):.0%}" if measure.startswith("cvar(") else measure


def agent_words(label: str) -> str:
    """An agent in words."""
    algorithm, objective = agent_of(label)
    return algorithm if algorithm == "QR-DQN" else f"{algorithm}, {words(objective)}"


@contextlib.contextmanager
def figure(
    folder: Path, name: str, rows: int, columns: int, size: tuple[float, float], **more: Any
) -> Iterator[tuple["Figure", Any]]:
    """A figure and its axes to draw on; `figures/NAME.svg` and `.png` when the block ends."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=size, layout="constrained")
        yield drawn, drawn.subplots(rows, columns, squeeze=False, **more)
        save(drawn, folder, name)


def save(figure: "Figure", folder: Path, name: str) -> None:
    """Writes `figures/NAME.svg` and `figures/NAME.png`."""
    for suffix in ("svg", "png"):
        metadata = {"Date": None} if suffix == "svg" else None
        with atomic_write(folder / "figures" / f"{name}.{suffix}") as temporary:
            figure.savefig(temporary, dpi=150, metadata=metadata)


def density(quantiles: Iterable[float], grid: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """A smooth density of equally likely values, by Gaussian kernels (Silverman's width)."""
    points = np.asarray(list(quantiles), dtype=float)
    low, high = np.quantile(points, [0.25, 0.75])
    spread = min(points.std(), (high - low) / 1.34) or points.std() or 1e-3
    width = max(0.9 * spread * min(len(points), 1000) ** -0.2, 1e-3)
    kernel = np.exp(-0.5 * ((grid[:, None] - points) / width) ** 2)
    return kernel.mean(axis=1) / (width * np.sqrt(2 * np.pi))
