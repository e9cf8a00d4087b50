import pytest

import downside as ds

from .toys import Continuous


def test_continuous_actions_are_refused_with_a_remedy():
    with pytest.raises(ValueError, match=r"`env` must have discrete actions, got Box.*Transform"):
        ds.QRDQN(Continuous())
    with pytest.raises(ValueError, match="`env` must have discrete actions, got Box"):
        ds.QRSRM("Pendulum-v1", risk="cvar(0.2)")
