"""The ids of our environments, made known to Gymnasium without importing what is behind them."""

import gymnasium as gym

JAX_IDS = {
    "downside/AmericanPut-v0": "AmericanPut",
    "downside/MeanReversion-v0": "MeanReversion",
    "downside/CliffWalk-v0": "CliffWalk",
    "downside/GuardedMaze-v0": "GuardedMaze",
    "downside/Hedging-v0": "Hedging",
    "downside/Portfolio-v0": "Portfolio",
    "downside/MachineReplacement-v0": "MachineReplacement",
    "downside/GamblersRuin-v0": "GamblersRuin",
    "downside/Inventory-v0": "Inventory",
    "downside/RiverSwim-v0": "RiverSwim",
    "downside/BettingGame-v0": "BettingGame",
    "downside/DualCounterexample-v0": "DualCounterexample",
}
"""Ids of the environments that are written in JAX, with the names of their classes."""
LANDER_IDS = {
    "downside/WindyLunarLander-v0": "windy_lunar_lander",
    "downside/RiskyLunarLander-v0": "risky_lunar_lander",
}
"""Ids of the landers, with the functions of `envs/problems/lunar_lander.py` that make them."""


def register_environments() -> None:
    """Registers every id; doing it twice changes nothing."""
    for env_id, name in JAX_IDS.items():
        if env_id not in gym.registry:
            # The time limit, where there is one, is part of the problem itself.
            gym.register(
                env_id,
                entry_point="downside.envs.gymnasium.env:GymnasiumEnv",
                vector_entry_point="downside.envs.gymnasium.vector_env:GymnasiumVectorEnv",
                kwargs={"core": name},
            )
    for env_id, name in LANDER_IDS.items():
        if env_id not in gym.registry:
            gym.register(
                env_id,
                entry_point=f"downside.envs.problems.lunar_lander:{name}",
                max_episode_steps=1000,
                reward_threshold=200,
            )
