"""What a user sees who passes the wrong type, without the type checks that the tests switch on."""

import pytest

from ..untyped import answers

CASES = {
    "AmericanPut(sigma='high')": "`sigma` must be a finite number in [0, inf), got 'high'",
    "AmericanPut(sigma=True)": "`sigma` must be a finite number in [0, inf), got True",
    "AmericanPut(periods='ten')": "`periods` must be a whole number >= 1, got 'ten'",
    "AmericanPut(kind=3)": "`kind` must be 'put' or 'call', got 3",
    "AmericanPut(process=['ou'])": "`process` must be 'gbm' or 'ou', got ['ou']",
    "MeanReversion(cost=None)": "`cost` must be a finite number in [0, inf), got None",
    "MeanReversion(inventory_limit='5')": "`inventory_limit` must be a finite number in",
    "MeanReversion(max_trade='2', inventory_limit=5.0)": "`max_trade` must be a finite number in",
    "CliffWalk(rows=2.5)": "`rows` must be a whole number >= 2, got 2.5",
    "CliffWalk(horizon=False)": "`horizon` must be a whole number >= 1, got False",
    "CliffWalk(slip=1j)": "`slip` must be a finite number in [0, 1], got 1j",
    "CliffWalk().sample_noises(None, 'five')": "`count` must be a whole number >= 1, got 'five'",
    "Tabular('table', 0)": "`probabilities` must be an array of real numbers",
    "Tabular([[[1.0]]], [[0.0]], horizon=2.5)": "`horizon` must be a whole number or None, got 2.5",
    "Tabular([[[1.0]]], [[0.0]], start='first')": "`start` must be a state number or a probability",
    "Tabular([[[1.0]]], [[0.0]], time_in_observation=1)": "`time_in_observation` must be True or",
    "windy_lunar_lander(gravity='low')": "`gravity` must be a finite number in (-12, 0), got 'low'",
    "ReturnAware(GymnasiumEnv('CliffWalk'), '0.9')": "`gamma` must be in (0, 1], got '0.9'",
    "ReturnAware(GymnasiumEnv('CliffWalk'), None)": "`gamma` must be in (0, 1], got None",
    "ReturnAware(CliffWalk(), '0.9')": "`gamma` must be in (0, 1], got '0.9'",
    "ReturnAware(CliffWalk(), 1, reward_scale='1')": "`reward_scale` must be a finite number in",
    "ReturnAware('CliffWalk', 0.9)": "`env` must be a Gymnasium environment",
    "PastAware('CliffWalk')": "`env` must be a Gymnasium environment or a vector of them",
    "PastAware(CliffWalk())": "in an environment that is written in JAX put what matters into",
    "PastAware(GymnasiumEnv('CliffWalk'), 1.5)": "`steps` must be a whole number >= 0, got 1.5",
    "TargetAware(GymnasiumEnv('CliffWalk'), 1, 'b')": "`b` must be a finite number, got 'b'",
    "TargetAware(GymnasiumVectorEnv('CliffWalk'), 1, [])": "`b` must be a finite number, got []",
    "TargetAware(CliffWalk(), 1, None)": "`b` must be a finite number, got None",
    "GymnasiumEnv(3)": "`core` must be an AbstractJaxEnv or one of",
    "GymnasiumVectorEnv('CliffWalk', 'two')": "`num_envs` must be a whole number >= 1, got 'two'",
    "make_jax(None)": "`env` must be an environment id",
    "ReturnAware(CliffWalk(), 1)": "no error",
    "TargetAware(GymnasiumEnv('CliffWalk'), 1, 2)": "no error",
    "TargetAware(CliffWalk(), 1, 2)": "no error",
}


@pytest.fixture(scope="module")
def replies():
    return answers("from downside.envs import *", list(CASES))


@pytest.mark.parametrize("case", CASES)
def test_wrong_types_are_refused_in_words(replies, case):
    assert CASES[case] in replies[case]
