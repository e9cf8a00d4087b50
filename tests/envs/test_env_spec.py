"""Where an environment came from, in words that can be written down."""

from downside.envs import MeanReversion
from downside.envs.env_spec import EnvSpec


class Mine(MeanReversion):
    """An environment of a user, without an id."""


def written(env):
    return EnvSpec.of(env).as_json()


def test_environments_without_an_id_are_told_apart_by_their_numbers():
    assert written(Mine(sigma=0.5)) == written(Mine(sigma=0.5))
    assert written(Mine(sigma=0.5)) != written(Mine(sigma=0.6))
    assert written(Mine(periods=3)) != written(Mine(periods=4))
    assert written(Mine())["id"] is None
    assert "digest" not in written("downside/MeanReversion-v0")
    ours = written(MeanReversion(periods=3))
    assert (ours["id"], ours["parameters"]["periods"]) == ("downside/MeanReversion-v0", 3)
