"""Environments of other people that install in seconds: they train as they are. The others are in
`benchmarks/third_party.py`."""

import numpy as np
import pytest

import downside as ds

from ...train.tiny import SMALL

FAST = {"FrozenLake-v1": {}, "Blackjack-v1": {}, "MountainCar-v0": {"max_episode_steps": 50}}
SLOW = {
    "CliffWalking-v1": {"max_episode_steps": 50},
    "Taxi-v4": {"max_episode_steps": 50},
    "Acrobot-v1": {"max_episode_steps": 50},
    "CartPole-v1": {},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters"),
    [*FAST.items(), *(pytest.param(*each, marks=pytest.mark.long) for each in SLOW.items())],
)
def test_it_trains_acts_and_is_evaluated(name, parameters):
    settings = {**SMALL, "num_envs": 2, "outer_interval": 50}
    agent = ds.QRSRM(name, risk="0.5*mean + 0.5*cvar(0.2)", env_kwargs=parameters, **settings)
    agent.learn(200)
    assert agent.num_timesteps == 200
    values = [record["value"] for record in agent.history]
    assert np.isfinite(values).all()
    env = agent.wrap()
    observation, _ = env.reset(seed=0)
    action, _ = agent.predict(observation)
    assert env.action_space.contains(action)
    evaluation = ds.evaluate(agent, episodes=10, seed=1)
    # Nobody wins more than 1.5 in any of them but CartPole, where a step pays 1.
    assert evaluation.mean <= (200 if "Cart" in name else 1.5)
    assert evaluation.value("cvar(0.2)") <= evaluation.mean + 1e-4  # all may be the same
