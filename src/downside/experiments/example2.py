"""Example 2 (appendix H): the risk measure at a later state, from two quantile representations."""

import numpy as np

from downside.decompose import conditional_risk
from downside.experiments._options import Options
from downside.experiments._tables import Comparison, show, terminal
from downside.risk import Distribution, parse, point_masses

RISK = "0.6*cvar(0.25) + 0.4*cvar(0.8)"
THETA = np.array([7, 9, 12, 20, 21, 27, 30, 32, 39, 46.0])
THETA_LATER = np.array([5, 6, 8, 14, 15, 17, 21, 25, 28, 35.0])
ACCUMULATED = 5.0
DISCOUNT_SO_FAR = 0.8


def comparison() -> Comparison:
    """Every figure of the example, ours beside the paper's."""
    here = conditional_risk(RISK, THETA, THETA_LATER, s=ACCUMULATED, c=DISCOUNT_SO_FAR)
    tail, out = Distribution.from_quantiles(THETA).tail_mean(np.array([0.25, 0.8])), Comparison()
    out.add("CVaR(0.25)", "8.8", float(tail[0]))
    out.add("CVaR(0.8)", "19.75", float(tail[1]))
    out.add("λ(0.25)", "12", float(here.thresholds[0]))
    out.add("λ(0.8)", "39", float(here.thresholds[1]))
    out.add("level of CVaR(0.25) from here", "0.3", float(here.levels[0]))
    out.add("level of CVaR(0.8) from here", "1.0", float(here.levels[1]))
    out.add("weight of CVaR(0.25) from here", "0.59", float(here.weights[0]))
    out.add("weight of CVaR(0.8) from here", "0.41", float(here.weights[1]))
    out.add("ξ", "1.22", float(here.xi))
    return out


def main(options: Options) -> bool:
    """Prints the example and returns whether every figure agrees with the paper's."""
    del options
    console = terminal()
    risk = parse(RISK)
    start = Distribution.from_quantiles(THETA)
    dual = conditional_risk(risk, start, point_masses(THETA)).xi_per_level
    rows = [
        (
            f"{(2 * i + 1) / (2 * len(THETA)):.0%}",
            f"{THETA[i]:g}",
            *(f"{x:.4g}" for x in dual[i]),
            f"{THETA_LATER[i]:g}",
        )
        for i in range(len(THETA))
    ]
    title = f"Example 2: {RISK}, s = {ACCUMULATED:g}, c = {DISCOUNT_SO_FAR}"
    show(console, title, ("τ̂", "θ", "ξ⁰·²⁵", "ξ⁰·⁸", "θ_t"), rows)

    figures = comparison()
    figures.show(console)
    return figures.agree
