"""Claims of the paper, and hopes of its readers, judged by our results."""

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple

from downside.evaluation.seeds import Estimate
from downside.experiments import put
from downside.experiments._paper import PaperTable, paper_table
from downside.experiments._results import Results, difference

MIN_SEEDS = 3
"""Fewer seeds decide nothing."""
TABLES: Mapping[str, str] = {"mean-reversion": "mean_reversion", "lunar": "windy_lunar_lander"}
MEAN, HALF, FIFTH = "cvar(1.0)", "cvar(0.5)", "cvar(0.2)"
THREE = "0.2*cvar(0.1)+0.3*cvar(0.6)+0.5*cvar(1.0)"
MIXED = "0.5*cvar(0.2)+0.5*cvar(1.0)"


class Pair(NamedTuple):
    """Two agents and the measure that they are compared by."""

    first: str
    second: str
    measure: str


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence of the paper, or a similar one, as comparisons of agents.

    "better": the first of every pair is better. "alike": no pair differs by more than the paper's
    seeds do. "leads": the second of no pair is surely better, nor may be by more than those differ.
    """

    says: str
    study: str
    rule: Literal["better", "alike", "leads"]
    pairs: tuple[Pair, ...]
    hoped: bool = False
    """Whether readers would only hope for it: the paper does not say it."""
    margin: float | None = None
    """The tolerance; if None, the deviations of the paper's table, or 0 without a table."""


class Verdict(NamedTuple):
    """The judgement of a claim."""

    word: str
    """"holds", "does not hold", "undecided" or "not yet run"."""
    pair: Pair
    """The comparison that decides: the least favourable to the claim."""
    estimate: Estimate | None
    """Its difference."""
    paper: float | None
    """The same difference in the paper's table, if it has one."""


def judge(claim: Claim, results: Results, preset: str) -> Verdict:
    """Compares the agents of a claim."""
    judged: list[tuple[int, float, Pair, Estimate]] = []
    missing: list[Pair] = []
    for pair in claim.pairs:
        ours = results.by_seed(claim.study, preset, pair.first, pair.measure)
        theirs = results.by_seed(claim.study, preset, pair.second, pair.measure)
        if not ours.keys() & theirs.keys():
            missing.append(pair)
            continue
        estimate = difference(ours, theirs)
        rank, slack = _judged(claim, pair, estimate)
        if estimate.seeds < MIN_SEEDS:
            rank = 1
        judged.append((rank, slack, pair, estimate))
    rank, _, pair, estimate = min(judged, key=lambda entry: entry[:2], default=(1, 0.0, None, None))
    if missing and (pair is None or rank > 0):  # a single failure is enough
        return Verdict("not yet run", missing[0], None, _paper(claim, missing[0]))
    assert pair is not None
    word = ("does not hold", "undecided", "holds")[rank]
    return Verdict(word, pair, estimate, _paper(claim, pair))


def _judged(claim: Claim, pair: Pair, estimate: Estimate) -> tuple[int, float]:
    """0: does not hold, 1: undecided, 2: holds; and by how much it is on the safe side."""
    bound = margin(claim, pair)
    if claim.rule == "alike":
        outside = estimate.low > bound or estimate.high < -bound
        inside = -bound <= estimate.low and estimate.high <= bound
        return (0 if outside else 2 if inside else 1), bound - abs(estimate.value)
    if estimate.high < 0:
        return 0, estimate.value
    ahead = estimate.low >= -bound if claim.rule == "leads" else estimate.low > 0
    return (2 if ahead else 1), estimate.value


def _table(claim: Claim) -> PaperTable | None:
    return paper_table(TABLES[claim.study]) if claim.study in TABLES else None


def margin(claim: Claim, pair: Pair) -> float:
    """The larger of the two standard deviations over seeds that the paper prints."""
    if claim.margin is not None:
        return claim.margin
    table = _table(claim)
    if table is None:
        return 0.0
    return max(table.figures[agent, pair.measure].deviation for agent in pair[:2])


def _paper(claim: Claim, pair: Pair) -> float | None:
    table = _table(claim)
    if table is None:
        return None
    first, second = (table.figures[agent, pair.measure].mean for agent in pair[:2])
    return first - second


# --- the claims -------------------------------------------------------------------------------


def _leads(
    study: str, objective: str, others: tuple[str, ...], says: str, hoped: bool = False
) -> Claim:
    agent = f"QR-SRM {objective}"
    pairs = tuple(Pair(agent, other, objective) for other in others if other != agent)
    # The paper's landers differ more from seed to seed than agents do: that would excuse all.
    margin = 0.0 if study == "lunar" else None
    return Claim(says, study, "leads", pairs, hoped, margin)


def _alike(study: str, first: str, second: str, measure: str, says: str) -> Claim:
    return Claim(says, study, "alike", (Pair(first, second, measure),))


_TRADING, _LANDER = paper_table("mean_reversion"), paper_table("windy_lunar_lander")
_PUT = tuple(f"QR-SRM cvar({level})" for level in ("0.2", "0.6", "1.0"))
_SPECTRA = tuple(f"QR-SRM {risk}" for risk in ("exponential(12)", "dual_power(4)", THREE))
_MANY, _DQN_MANY = "QR-SRM, 200 quantiles", "QR-DQN, 200 quantiles"

CLAIMS: tuple[Claim, ...] = (
    *(
        _alike(
            "mean-reversion",
            f"QR-SRM cvar({level})",
            f"QR-CVaR {level}",
            f"cvar({level})",
            f"QR-SRM and QR-CVaR perform alike, α = {level}",
        )
        for level in ("1.0", "0.5", "0.2")
    ),
    Claim(
        "QR-iCVaR is sub-optimal at α = 0.5",
        "mean-reversion",
        "better",
        (Pair("QR-SRM cvar(0.5)", "QR-iCVaR 0.5", HALF),),
    ),
    Claim(
        "at α = 0.2 QR-iCVaR is close to QR-SRM and QR-CVaR by its own measure",
        "mean-reversion",
        "alike",
        tuple(Pair(agent, "QR-iCVaR 0.2", FIFTH) for agent in ("QR-SRM cvar(0.2)", "QR-CVaR 0.2")),
    ),
    Claim(
        "but lower than both by every other measure",
        "mean-reversion",
        "better",
        tuple(
            Pair(other, "QR-iCVaR 0.2", measure)
            for other in ("QR-SRM cvar(0.2)", "QR-CVaR 0.2")
            for measure in _TRADING.measures
            if measure != FIFTH
        ),
    ),
    _alike(
        "mean-reversion",
        "QR-SRM cvar(1.0)",
        "QR-DQN",
        MEAN,
        "QR-SRM(1.0) and QR-DQN are close in the mean",
    ),
    Claim(
        "QR-SRM(1.0) beats QR-DQN by various measures: in its table, on every measure",
        "mean-reversion",
        "better",
        tuple(Pair("QR-SRM cvar(1.0)", "QR-DQN", measure) for measure in _TRADING.measures),
    ),
    *(
        _leads(
            "mean-reversion",
            objective,
            tuple(row for row in _TRADING.rows if not row.startswith("QR-SRM")),
            f"QR-SRM is on top by `{objective}`: neither QR-CVaR, QR-iCVaR nor QR-DQN is better",
        )
        for objective in ("exponential(4)", "dual_power(2)", THREE)
    ),
    *(
        _leads(
            "mean-reversion",
            objective,
            _TRADING.rows,
            f"no agent is better by `{objective}` than QR-SRM for it",
            hoped=True,
        )
        for objective in _TRADING.measures
    ),
    Claim(
        "half mean, half worst 20% trades one for the other: better than QR-SRM(1.0) in the worst "
        "20% and than QR-SRM(0.2) in the mean, and worse the other way round",
        "mean-reversion",
        "better",
        (
            Pair(f"QR-SRM {MIXED}", "QR-SRM cvar(1.0)", FIFTH),
            Pair(f"QR-SRM {MIXED}", "QR-SRM cvar(0.2)", MEAN),
            Pair("QR-SRM cvar(1.0)", f"QR-SRM {MIXED}", MEAN),
            Pair("QR-SRM cvar(0.2)", f"QR-SRM {MIXED}", FIFTH),
        ),
    ),
    *(
        _leads(
            "put",
            f"cvar({level})",
            _PUT,
            f"the put: the agent for α = {level} has the highest CVaR({level})",
        )
        for level in ("1.0", "0.6", "0.2")
    ),
    Claim(
        "the put: the smaller α, the sooner it is exercised (share of its life, by the boundary)",
        "put",
        "better",
        (Pair(_PUT[1], _PUT[0], put.TIME), Pair(_PUT[2], _PUT[1], put.TIME)),
    ),
    Claim(
        "the put: and the smaller α, the higher CVaR(0.2) and the lower the mean",
        "put",
        "better",
        (
            Pair(_PUT[0], _PUT[1], FIFTH),
            Pair(_PUT[1], _PUT[2], FIFTH),
            Pair(_PUT[2], _PUT[1], MEAN),
            Pair(_PUT[1], _PUT[0], MEAN),
        ),
    ),
    *(
        _leads(
            "spectra",
            agent.removeprefix("QR-SRM "),
            _SPECTRA,
            f"of three richer spectra, the agent for `{agent.removeprefix('QR-SRM ')}` is the best "
            "by it",
        )
        for agent in _SPECTRA
    ),
    Claim(
        "more quantiles help: the mean with 200 is above that with 10",
        "quantiles",
        "better",
        (Pair(_MANY, "QR-SRM, 10 quantiles", MEAN),),
    ),
    Claim(
        "with 200 quantiles QR-SRM surpasses QR-DQN in the mean",
        "quantiles",
        "better",
        (Pair(_MANY, _DQN_MANY, MEAN),),
    ),
    Claim(
        "and in CVaR at every level",
        "quantiles",
        "better",
        tuple(Pair(_MANY, _DQN_MANY, f"cvar({level / 20})") for level in range(1, 21)),
    ),
    Claim(
        "all numbers of quantiles, and QR-DQN, reach the same mean in as many steps",
        "quantiles",
        "alike",
        tuple(
            Pair(agent, "QR-DQN, 50 quantiles", MEAN)
            for agent in (*(f"QR-SRM, {n} quantiles" for n in (10, 25, 50, 100, 200)), _DQN_MANY)
        ),
        margin=_TRADING.figures["QR-DQN", MEAN].deviation,
    ),
    _alike(
        "lunar",
        "QR-SRM cvar(1.0)",
        "QR-DQN",
        MEAN,
        "the lander: QR-SRM(1.0) is within a standard deviation of QR-DQN",
    ),
    *(
        Claim(
            f"the lander: QR-iCVaR is below QR-SRM at α = {level}",
            "lunar",
            "better",
            (Pair(f"QR-SRM cvar({level})", f"QR-iCVaR {level}", f"cvar({level})"),),
        )
        for level in ("0.5", "0.2")
    ),
    Claim(
        "the lander: agents for the worst 20% are above QR-DQN there",
        "lunar",
        "better",
        tuple(Pair(f"QR-SRM {risk}", "QR-DQN", FIFTH) for risk in (MIXED, FIFTH)),
        hoped=True,
    ),
    *(
        _leads(
            "lunar",
            objective,
            tuple(row for row in _LANDER.rows if row.startswith(("QR-SRM", "QR-DQN"))),
            f"the lander: no QR-SRM, nor QR-DQN, is better by `{objective}` than QR-SRM for it",
            hoped=True,
        )
        for objective in _LANDER.measures
    ),
    *(
        Claim(
            f"the lander: half mean, half worst 20% is best by `{measure}`",
            "lunar",
            "leads",
            tuple(
                Pair(f"QR-SRM {MIXED}", other, measure)
                for other in _LANDER.rows
                if other != f"QR-SRM {MIXED}"
            ),
            margin=0.0,
        )
        for measure in (MIXED, FIFTH, HALF)
    ),
    Claim(
        "the lander: half mean, half worst 20% hardly costs anything in the mean (a tenth at most)",
        "lunar",
        "alike",
        (Pair(f"QR-SRM {MIXED}", "QR-SRM cvar(1.0)", MEAN),),
        margin=0.1 * _LANDER.figures["QR-SRM cvar(1.0)", MEAN].mean,
    ),
)
