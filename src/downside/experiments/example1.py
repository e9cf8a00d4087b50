"""Example 1 (section 5): a two-step Markov process and the risk measures at its second step."""

import numpy as np

from downside.decompose import ConditionalRisk, conditional_risk
from downside.experiments._options import Options
from downside.experiments._tables import Comparison, show, terminal
from downside.risk import Distribution, parse, point_masses

GAMMA = 0.5
RISK = "0.7*cvar(0.4) + 0.3*cvar(0.8)"
START_REWARD = 2.0
BRANCHES = {
    # state: (probability, reward, [(probability, reward) of the states after it])
    "x1¹": (0.6, 4.0, [(0.5, 4.0), (0.3, 16.0), (0.2, 20.0)]),
    "x1²": (0.4, 6.0, [(0.4, 4.0), (0.3, 8.0), (0.3, 20.0)]),
}


def later_returns() -> dict[str, Distribution]:
    """The distribution of the return still to come at each state of step 1."""
    return {
        name: Distribution(
            [reward + GAMMA * last for _, last in ends], [chance for chance, _ in ends]
        )
        for name, (_, reward, ends) in BRANCHES.items()
    }


def start_return() -> Distribution:
    """The distribution of the whole episode's return, s + c G_t over the states of step 1."""
    parts = [later.affine(START_REWARD, GAMMA) for later in later_returns().values()]
    return Distribution.mixture(parts, [chance for chance, _, _ in BRANCHES.values()])


def later_risks() -> dict[str, ConditionalRisk]:
    """The risk measure at each state of step 1."""
    risk, start = parse(RISK), start_return()
    return {
        name: conditional_risk(risk, start, branch, s=START_REWARD, c=GAMMA)
        for name, branch in later_returns().items()
    }


def value_from_step_1() -> float:
    """ρ(G) put together from the risk measures at step 1: E[ξ (s + c ρ_ξ(G₁))]."""
    return sum(
        chance * float(risk.xi) * (START_REWARD + GAMMA * float(risk.value))
        for (chance, _, _), risk in zip(BRANCHES.values(), later_risks().values(), strict=True)
    )


def comparison() -> Comparison:
    """Every figure of the example, ours beside the paper's."""
    start, out = start_return(), Comparison()
    tail = start.tail_mean(np.array([0.4, 0.8]))
    out.add("CVaR(0.4) of G", "5.25", float(tail[0]))
    out.add("CVaR(0.8) of G", "6.375", float(tail[1]))
    out.add("ρ(G)", "5.5875", float(parse(RISK)(start.values, start.probabilities)))
    out.add("ρ(G) from step 1", "5.5875", value_from_step_1())
    printed = {
        "x1¹": ("1.25", "1.0833", "1.2", "0.5", "0.86", "6.73"),
        "x1²": ("0.625", "0.875", "0.7", "0.25", "0.7", "8.32"),
    }
    labels = ("ξ(0.4)", "ξ(0.8)", "ξ", "level of CVaR(0.4)", "level of CVaR(0.8)", "ρ_ξ(G₁)")
    for name, risk in later_risks().items():
        ours = (*risk.xi_per_level, risk.xi, *risk.levels, risk.value)
        for label, paper, figure in zip(labels, printed[name], ours, strict=True):
            out.add(f"{label} at {name}", paper, float(figure))
    return out


def main(options: Options) -> bool:
    """Prints the example and returns whether every figure agrees with the paper's."""
    del options
    console = terminal()
    risk, start, later, conditionals = parse(RISK), start_return(), later_returns(), later_risks()
    rows, ends = [], set()
    for name, (chance, _, _) in BRANCHES.items():
        branch, conditional = later[name], conditionals[name]
        whole = branch.affine(START_REWARD, GAMMA)
        dual = conditional_risk(risk, start, point_masses(whole.values)).xi_per_level
        for i, (share, value) in enumerate(zip(branch.probabilities, branch.values, strict=True)):
            state = [name, *(f"{x:.5g}" for x in (*conditional.xi_per_level, conditional.xi))]
            rows.append(
                [
                    f"{chance * share:.0%}",
                    f"{whole.values[i]:g}",
                    *(f"{x:.5g}" for x in dual[i]),
                    state[0] if i == 0 else "",
                    f"{share:.0%}",
                    f"{value:g}",
                    *(state[1:] if i == 0 else [""] * 3),
                ]
            )
        ends.add(len(rows) - 1)
    header = ("p(G)", "G", "ξ⁰·⁴", "ξ⁰·⁸", "state", "p(G₁)", "G₁", "ξ₁⁰·⁴", "ξ₁⁰·⁸", "ξ")
    show(console, f"Example 1: {RISK}, γ = {GAMMA}", header, rows, frozenset(ends))

    for name, conditional in conditionals.items():
        terms = " + ".join(
            f"{weight:.3f}·CVaR({level:.3f})"
            for weight, level in zip(conditional.weights, conditional.levels, strict=True)
        )
        console.print(f"At {name} the measure has become  {terms}  =  {conditional.value:.4f}")

    value = float(risk(start.values, start.probabilities))
    tower = value_from_step_1()
    console.print(f"E[ξ (s + c ρ_ξ(G₁))] = {tower:.4f}, and ρ(G) = {value:.4f} directly.\n")
    figures = comparison()
    figures.show(console)
    return figures.agree
