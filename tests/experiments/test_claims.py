"""Intervals over seeds, and what they decide about the claims."""

import numpy as np
import pytest

from downside.experiments import load, lunar
from downside.experiments._claims import CLAIMS, Claim, Pair, judge
from downside.experiments._options import Options
from downside.experiments._results import Results, difference


def test_seeds_that_share_their_noise_are_compared_one_by_one():
    # Noise of size 10 that both meet, and a gain of 1, 2 and 3 in the seeds that both have.
    ours = {0: 11.0, 1: -8.0, 2: 3.0, 7: 100.0}
    theirs = {0: 10.0, 1: -10.0, 2: 0.0, 8: 0.0}
    gap = difference(ours, theirs)
    assert (gap.value, gap.values) == (2.0, (1.0, 2.0, 3.0))
    assert difference({0: 3.0}, {0: 1.0, 1: 0.0}) == (2.0, 2.0, 2.0, (2.0,))


PAIR = (Pair("QR-SRM cvar(0.5)", "QR-iCVaR 0.5", "cvar(0.5)"),)
ALIKE = (
    Pair("QR-SRM cvar(0.5)", "QR-CVaR 0.5", "cvar(0.5)"),
)  # the paper's deviations: 0.03, 0.02


@pytest.mark.parametrize(
    ("rule", "first", "second", "word"),
    [
        ("better", [0.5, 0.6, 0.7], [0.1, 0.2, 0.3], "holds"),
        ("better", [0.1, 0.2, 0.3], [0.5, 0.6, 0.7], "does not hold"),
        ("better", [0.1, 0.5, 0.9], [0.2, 0.4, 0.6], "undecided"),
        ("better", [0.5, 0.6], [0.1, 0.2], "undecided"),  # two seeds
        ("leads", [0.50, 0.51, 0.52], [0.30, 0.31, 0.32], "holds"),
        ("leads", [0.500, 0.501, 0.502], [0.501, 0.503, 0.501], "holds"),  # within 0.04
        ("leads", [0.500, 0.501, 0.502], [0.501, 0.502, 0.503], "does not hold"),  # surely below
        ("leads", [0.2, 0.5, 0.9], [0.1, 0.5, 0.9], "undecided"),
        ("leads", [0.5, 0.6], [0.1, 0.2], "undecided"),  # two seeds
        ("leads", [0.1, 0.2, 0.3], [0.5, 0.6, 0.7], "does not hold"),
        ("alike", [0.50, 0.51, 0.52], [0.50, 0.51, 0.52], "holds"),
        ("alike", [0.50, 0.51, 0.52], [0.60, 0.61, 0.62], "does not hold"),
        ("alike", [0.3, 0.5, 0.7], [0.4, 0.5, 0.6], "undecided"),
        ("better", [], [0.1, 0.2, 0.3], "not yet run"),
    ],
)
def test_a_claim_is_judged_by_its_interval(monkeypatch, tmp_path, rule, first, second, word):
    pair = (ALIKE if rule == "alike" else PAIR)[0]
    values = {pair.first: dict(enumerate(first)), pair.second: dict(enumerate(second))}
    results = Results(tmp_path)
    monkeypatch.setattr(results, "by_seed", lambda study, preset, agent, measure: values[agent])
    claim = Claim("so it says", "mean-reversion", rule, (pair,))
    assert judge(claim, results, "default").word == word


def test_one_seed_decides_nothing_whatever_the_others_say(monkeypatch, tmp_path):
    results = Results(tmp_path)
    seeds = {"cvar(0.5)": 5, "cvar(0.2)": 1}

    def values(study, preset, agent, measure):
        spread = 0.01 * np.arange(seeds[measure])
        by_agent = spread + (seeds[measure] == 1) + 0.5 * (agent == "QR-SRM cvar(1.0)")
        return dict(enumerate(by_agent))

    monkeypatch.setattr(results, "by_seed", values)
    pairs = tuple(Pair("QR-SRM cvar(1.0)", "QR-DQN", measure) for measure in seeds)
    verdict = judge(Claim("on both", "mean-reversion", "better", pairs), results, "default")
    assert verdict.word == "undecided"
    assert verdict.pair.measure == "cvar(0.2)"


def test_the_comparison_that_bears_a_claim_out_least_decides(monkeypatch, tmp_path):
    gain = {"cvar(0.5)": 0.3, "cvar(0.2)": -0.1, "cvar(1.0)": 0.2}
    results = Results(tmp_path)

    def values(study, preset, agent, measure):
        return dict.fromkeys(range(5), gain[measure] if agent == "QR-SRM cvar(1.0)" else 0.0)

    monkeypatch.setattr(results, "by_seed", values)
    pairs = tuple(Pair("QR-SRM cvar(1.0)", "QR-DQN", measure) for measure in gain)
    verdict = judge(
        Claim("on every measure", "mean-reversion", "better", pairs), results, "default"
    )
    assert verdict.word == "does not hold"
    assert verdict.pair.measure == "cvar(0.2)"
    assert verdict.paper == pytest.approx(0.40)  # -1.36 + 1.76, by the same measure


@pytest.mark.parametrize(("gain", "word"), [(-0.1, "does not hold"), (0.1, "not yet run")])
def test_one_comparison_that_fails_is_enough_and_one_that_succeeds_is_not(
    monkeypatch, tmp_path, gain, word
):
    results = Results(tmp_path)
    values = {"QR-DQN": dict.fromkeys(range(3), 0.0), "QR-CVaR 0.5": {}}

    def by_seed(study, preset, agent, measure):
        return values.get(agent, dict.fromkeys(range(3), gain))

    monkeypatch.setattr(results, "by_seed", by_seed)
    pairs = tuple(Pair("QR-SRM cvar(0.5)", other, "cvar(0.5)") for other in values)
    verdict = judge(Claim("the best", "mean-reversion", "better", pairs), results, "default")
    assert verdict.word == word


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.says)
def test_a_claim_is_about_agents_of_its_study(claim, tmp_path):
    # Without results every claim can be looked up and is not yet run.
    assert judge(claim, Results(tmp_path), "default").word == "not yet run"
    if claim.study == "lunar":
        known = set(lunar.ROWS)
    else:
        options = Options(results=tmp_path, seeds=(0,))
        entries = load(claim.study).experiment(options, "default").entries
        known = {entry.label for entry in entries}
    assert {name for pair in claim.pairs for name in pair[:2]} <= known
