"""Draws docs/images/spectra.png: what each risk measure looks at.

python docs/spectra.py
"""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from downside import parse

MEASURES = [  # (text, name, colour: Okabe and Ito's, which colour-blind readers can tell apart)
    ("mean", "mean", "#000000"),
    ("cvar(0.2)", "cvar(0.2)", "#D55E00"),
    ("0.5*mean + 0.5*cvar(0.2)", "½ mean + ½ cvar(0.2)", "#0072B2"),
    ("exponential(4)", "exponential(4)", "#009E73"),
    ("dual_power(2)", "dual_power(2)", "#CC79A7"),
]


def draw() -> None:
    """Two panels: the spectra, and what they make of one distribution of returns."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=[1, 1.15])
    u = np.linspace(0, 1, 2001)
    for text, name, colour in MEASURES:
        left.plot(u, parse(text).spectrum(u), color=colour, label=name, linewidth=2)
    left.set(
        xlabel="rank of the outcome: 0 the worst, 1 the best",
        ylabel="how much it counts, φ(u)",
        title="The spectrum",
        xlim=(0, 1),
        ylim=(0, 5.4),
    )
    left.legend(frameon=False)

    rng = np.random.default_rng(7)
    returns = np.where(rng.random(200_000) < 0.15, -1.5, 0.8) + 0.45 * rng.normal(size=200_000)
    right.hist(returns, bins=120, density=True, color="#BBBBBB")
    top = right.get_ylim()[1]
    for text, name, colour in sorted(MEASURES, key=lambda m: parse(m[0])(returns)):
        value = float(parse(text)(returns))
        right.plot(
            [value, value], [0, 0.9 * top], color=colour, linewidth=2, label=_label(value, name)
        )
    right.legend(frameon=False, loc="upper left", prop={"family": "monospace", "size": 9})
    right.set(
        xlabel="return (larger is better)",
        ylabel="density",
        title="The same returns, valued five ways",
        xlim=(-3, 3),
        ylim=(0, top * 1.5),
        yticks=[],
    )
    figure.tight_layout()
    target = Path(__file__).parent / "images" / "spectra.png"
    figure.savefig(target, dpi=150)


def _label(value: float, name: str) -> str:
    return f"{value:5.2f}  {name}".replace("-", "\N{MINUS SIGN}")


if __name__ == "__main__":
    draw()
