"""Random risk measures and random discrete distributions."""

import numpy as np
from hypothesis import strategies as st

from downside.risk import CustomSpectrum, CVaR, DualPower, Exponential, Mean, WeightedCVaR

levels = st.one_of(
    st.floats(0.01, 1.0),
    st.sampled_from(
        [0.1, 0.2, 0.25, 0.3, 0.5, 0.6, 0.8, 1.0]
    ),  # often on the grid of a distribution
)


@st.composite
def shares(draw, size):
    """Non-negative numbers that sum to 1."""
    raw = np.array(draw(st.lists(st.integers(1, 20), min_size=size, max_size=size)), dtype=float)
    return raw / raw.sum()


@st.composite
def weighted_cvars(draw):
    count = draw(st.integers(1, 4))
    return WeightedCVaR(draw(st.lists(levels, min_size=count, max_size=count)), draw(shares(count)))


@st.composite
def steps(draw):
    count = draw(st.integers(1, 4))
    inner = draw(st.lists(st.floats(0.05, 0.95), min_size=count, max_size=count, unique=True))
    falls = draw(st.lists(st.floats(0.0, 3.0), min_size=count, max_size=count))
    heights = np.cumsum([draw(st.floats(0.1, 2.0)), *falls])[::-1]
    return CustomSpectrum(dict(zip([*sorted(inner), 1.0], heights.tolist(), strict=True)))


simple = st.one_of(
    st.just(Mean()),
    st.builds(CVaR, levels),
    st.builds(Exponential, st.floats(0.05, 20.0)),
    st.builds(DualPower, st.floats(1.0, 10.0)),
    weighted_cvars(),
    steps(),
)


@st.composite
def sums(draw):
    count = draw(st.integers(2, 3))
    weights = draw(shares(count))
    parts = draw(st.lists(simple, min_size=count, max_size=count))
    return sum(float(weight) * part for weight, part in zip(weights, parts, strict=True))


risks = st.one_of(simple, sums())


@st.composite
def discrete(draw, most=8):
    """(values, probabilities), with ties and probabilities on a coarse lattice now and then."""
    size = draw(st.integers(1, most))
    # Six decimals: values that are closer than rounding count as one, by design.
    value = st.one_of(st.integers(-5, 5).map(float), st.floats(-20, 20).map(lambda x: round(x, 6)))
    values = np.array(draw(st.lists(value, min_size=size, max_size=size)))
    return values, draw(shares(size))
