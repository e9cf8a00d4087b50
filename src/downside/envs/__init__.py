"""Environments: the problems in JAX, their Gymnasium faces, and wrappers that remember rewards.

Importing `downside` registers the ids `downside/...-v0` with Gymnasium.
"""

from downside.envs.american_put import AmericanPut, OptionState
from downside.envs.augment import JaxReturnAware, JaxTargetAware, ReturnState, TargetState
from downside.envs.cliff_walk import CliffWalk, GridState, Tables
from downside.envs.core import AbstractJaxEnv, Step, Transition
from downside.envs.gymnasium_face import GymnasiumFace
from downside.envs.lunar_lander import windy_lunar_lander
from downside.envs.mean_reversion import MeanReversion, TradingState
from downside.envs.past_steps import PastAware, VectorPastAware
from downside.envs.registry import Registered, make_jax, registered
from downside.envs.tabular import Tabular, TabularState
from downside.envs.vector_face import GymnasiumVectorFace
from downside.envs.vector_wrappers import VectorReturnAware, VectorTargetAware
from downside.envs.wrappers import ReturnAware, TargetAware

__all__ = [
    "AbstractJaxEnv",
    "AmericanPut",
    "CliffWalk",
    "GridState",
    "GymnasiumFace",
    "GymnasiumVectorFace",
    "JaxReturnAware",
    "JaxTargetAware",
    "MeanReversion",
    "OptionState",
    "PastAware",
    "Registered",
    "ReturnAware",
    "ReturnState",
    "Step",
    "Tables",
    "Tabular",
    "TabularState",
    "TargetAware",
    "TargetState",
    "TradingState",
    "Transition",
    "VectorPastAware",
    "VectorReturnAware",
    "VectorTargetAware",
    "make_jax",
    "registered",
    "windy_lunar_lander",
]
