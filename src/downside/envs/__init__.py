"""Environments: problems in JAX, memory, rollouts, Gymnasium adapters and wrappers.

Importing `downside` registers the ids `downside/...-v0` with Gymnasium.
"""

from downside.envs.american_put import AmericanPut, OptionState
from downside.envs.checking import check_env
from downside.envs.cliff_walk import CliffWalk, GridState, Tables
from downside.envs.core import AbstractJaxEnv, Step, StepResult
from downside.envs.faults import EnvironmentFaultError, SimulatorError
from downside.envs.finite_problems import (
    BettingGame,
    DualCounterexample,
    GamblersRuin,
    Inventory,
    MachineReplacement,
    RiverSwim,
)
from downside.envs.guarded_maze import GuardedMaze, MazeState
from downside.envs.gymnasium_env import GymnasiumEnv
from downside.envs.gymnasium_vector_env import GymnasiumVectorEnv
from downside.envs.hedging import Hedging, HedgingState
from downside.envs.history import PastAware, VectorPastAware
from downside.envs.lunar_lander import RiskyLunarLander, risky_lunar_lander, windy_lunar_lander
from downside.envs.mean_reversion import MeanReversion, TradingState
from downside.envs.memory import (
    AbstractMemoryInput,
    Memory,
    NoMemoryInput,
    ReturnInput,
    TargetInput,
)
from downside.envs.memory_env import JaxMemoryAware, MemoryState
from downside.envs.portfolio import Portfolio, PortfolioState
from downside.envs.registry import Registered, make_jax, registered
from downside.envs.risk_reward import RiskReward, VectorRiskReward
from downside.envs.risk_reward_callback import RiskRewardCallback
from downside.envs.simulator import Simulator, SimulatorState
from downside.envs.simulator_vector_env import SimulatorVectorEnv
from downside.envs.tabular import Tabular, TabularState
from downside.envs.tabulated import AbstractTabulated
from downside.envs.vector_wrappers import (
    VectorMemoryAware,
    VectorReturnAware,
    VectorTargetAware,
)
from downside.envs.wrappers import MemoryAware, ReturnAware, TargetAware

__all__ = [
    "AbstractJaxEnv",
    "AbstractMemoryInput",
    "AbstractTabulated",
    "AmericanPut",
    "BettingGame",
    "CliffWalk",
    "DualCounterexample",
    "EnvironmentFaultError",
    "GamblersRuin",
    "GridState",
    "GuardedMaze",
    "GymnasiumEnv",
    "GymnasiumVectorEnv",
    "Hedging",
    "HedgingState",
    "Inventory",
    "JaxMemoryAware",
    "MachineReplacement",
    "MazeState",
    "MeanReversion",
    "Memory",
    "MemoryAware",
    "MemoryState",
    "NoMemoryInput",
    "OptionState",
    "PastAware",
    "Portfolio",
    "PortfolioState",
    "Registered",
    "ReturnAware",
    "ReturnInput",
    "RiskReward",
    "RiskRewardCallback",
    "RiskyLunarLander",
    "RiverSwim",
    "Simulator",
    "SimulatorError",
    "SimulatorState",
    "SimulatorVectorEnv",
    "Step",
    "StepResult",
    "Tables",
    "Tabular",
    "TabularState",
    "TargetAware",
    "TargetInput",
    "TradingState",
    "VectorMemoryAware",
    "VectorPastAware",
    "VectorReturnAware",
    "VectorRiskReward",
    "VectorTargetAware",
    "check_env",
    "make_jax",
    "registered",
    "risky_lunar_lander",
    "windy_lunar_lander",
]
