"""Environments: problems in JAX, memory, rollouts, Gymnasium adapters and wrappers.

Importing `downside` registers the ids `downside/...-v0` with Gymnasium.
"""

from downside.envs.checking import check_env
from downside.envs.core import AbstractJaxEnv, Step, StepResult
from downside.envs.faults import EnvironmentFaultError, SimulatorError
from downside.envs.gymnasium.env import GymnasiumEnv
from downside.envs.gymnasium.vector_env import GymnasiumVectorEnv
from downside.envs.memory import (
    AbstractMemoryInput,
    Memory,
    NoMemoryInput,
    ReturnInput,
    TargetInput,
)
from downside.envs.memory_env import JaxMemoryAware, MemoryState
from downside.envs.problems.finance.american_put import AmericanPut, OptionState
from downside.envs.problems.finance.hedging import Hedging, HedgingState
from downside.envs.problems.finance.mean_reversion import MeanReversion, TradingState
from downside.envs.problems.finance.portfolio import Portfolio, PortfolioState
from downside.envs.problems.finite.betting import BettingGame
from downside.envs.problems.finite.cliff_walk import CliffWalk, GridState, Tables
from downside.envs.problems.finite.literature import (
    DualCounterexample,
    GamblersRuin,
    Inventory,
    MachineReplacement,
    RiverSwim,
)
from downside.envs.problems.finite.tabular import Tabular, TabularState
from downside.envs.problems.finite.tabulated import AbstractTabulated
from downside.envs.problems.guarded_maze import GuardedMaze, MazeState
from downside.envs.problems.lunar_lander import (
    RiskyLunarLander,
    risky_lunar_lander,
    windy_lunar_lander,
)
from downside.envs.registry import Registered, make_jax, registered
from downside.envs.simulators.simulator import Simulator, SimulatorState
from downside.envs.simulators.vector_env import SimulatorVectorEnv
from downside.envs.wrappers.history import PastAware, VectorPastAware
from downside.envs.wrappers.memory_aware import MemoryAware, ReturnAware, TargetAware
from downside.envs.wrappers.risk_reward import RiskReward, VectorRiskReward
from downside.envs.wrappers.risk_reward_callback import RiskRewardCallback
from downside.envs.wrappers.vector_memory_aware import (
    VectorMemoryAware,
    VectorReturnAware,
    VectorTargetAware,
)

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
