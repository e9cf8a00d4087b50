# pyright: reportMissingImports=false
"""Steps per second of one problem, 30 days of hedging, through every door.

    python benchmarks/simulator.py

- a Gymnasium environment of one copy, as most are written, in a loop;
- the same in Gymnasium's `SyncVectorEnv`;
- `ds.Simulator(...).vector_env(n)`: all copies in one call of NumPy;
- `ds.Simulator` inside of a compiled program, as agents use it;
- the same with the derivatives that PG-SRM follows;
- the problem written in JAX, inside of a compiled program.
"""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import downside as ds
from downside.envs import AbstractJaxEnv, Hedging
from downside.envs.rollout import play, unroll

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from own_simulator import CallHedge

COPIES, EPISODES = 256, 20_000


class OneHedge(gym.Env):
    """`CallHedge` for one copy, written as Gymnasium environments mostly are."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Discrete(21)

    def reset(self, *, seed=None, options=None):
        """The stock at 100, and none of it held."""
        del options
        super().reset(seed=seed)
        self.price, self.position, self.time = 100.0, 0.0, 0
        return self._observe(), {}

    def step(self, action):
        """Trade, then the stock moves."""
        target, price = action / 20, self.price
        spread = CallHedge.sigma * math.sqrt(CallHedge.day)
        self.price *= math.exp(spread * self.np_random.standard_normal() - spread**2 / 2)
        reward = target * (self.price - price)
        reward -= CallHedge.cost * price * abs(target - self.position)
        self.position, self.time = target, self.time + 1
        over = self.time == CallHedge.horizon
        if over:
            reward += CallHedge.premium - max(self.price - CallHedge.strike, 0.0)
            reward -= CallHedge.cost * self.price * target
        return self._observe(), reward, over, False, {}

    def _observe(self):
        left = 1.0 - self.time / CallHedge.horizon
        moneyness = 10.0 * math.log(self.price / CallHedge.strike)
        return np.array([moneyness, self.position, left], np.float32)


def single(steps: int) -> int:
    """A loop over one environment."""
    env = OneHedge()
    env.reset(seed=0)
    for _ in range(steps):
        *_, terminated, _, _ = env.step(10)
        if terminated:
            env.reset()
    return steps


def vector(env: gym.vector.VectorEnv, steps: int) -> int:
    """A loop over a vector environment."""
    env.reset(seed=0)
    actions = np.full(env.num_envs, 10)
    for _ in range(steps):
        env.step(actions)
    return steps * env.num_envs


def compiled(env: AbstractJaxEnv) -> Callable[[], int]:
    """Whole episodes in one program."""
    horizon = env.horizon or 1

    def act(states: Any, memory: Any, at: Any) -> Any:
        del states, memory, at
        return jnp.full(EPISODES, 10) if env.num_actions else jnp.full((EPISODES, 1), 0.5)

    @jax.jit
    def run(key: Any) -> Any:
        played = play(env, act, gamma=1.0, horizon=horizon, episodes=EPISODES, key=key)
        return played.steps, played.memory.accumulated.sum()  # or nothing would be computed

    return lambda: int(jax.device_get(run(jax.random.key(0)))[0])


def differentiated(env: AbstractJaxEnv) -> Callable[[], int]:
    """Whole episodes, and the derivatives of their returns by a number that scales all actions."""
    horizon = env.horizon or 1

    def total(scale: Any) -> Any:
        def act(states: Any, memory: Any, at: Any) -> tuple[Any, None]:
            del memory, at
            return jax.vmap(env.observe)(states)[:, :1] * 0.0 + scale, None

        keys = jax.random.split(jax.random.key(0), EPISODES)
        noise = jax.vmap(env.sample_noise)(keys)
        states = jax.vmap(env.initial_state)(keys)
        memory, *_ = unroll(env, act, states, lambda _: noise, gamma=1.0, horizon=horizon)
        return memory.accumulated.sum()

    slope = jax.jit(jax.grad(total))
    return lambda: bool(jnp.isfinite(slope(0.5))) * EPISODES * horizon


def measure(run: Callable[[], int]) -> float:
    """Steps per second: the best of three, after one to compile."""
    run()
    speeds = []
    for _ in range(3):
        begin = time.perf_counter()
        speeds.append(run() / (time.perf_counter() - begin))
    return max(speeds)


def main() -> None:
    """Prints the table."""
    simulator, continuous = ds.Simulator(CallHedge()), ds.Simulator(CallHedge(continuous=True))
    in_jax = Hedging()
    sync = gym.vector.SyncVectorEnv([OneHedge] * COPIES)
    doors = {
        "Gymnasium, one environment in a loop": lambda: single(20_000),
        f"Gymnasium, SyncVectorEnv of {COPIES}": lambda: vector(sync, 60),
        f"ds.Simulator, vector_env({COPIES})": lambda: vector(simulator.vector_env(COPIES), 600),
        "ds.Simulator, compiled": compiled(simulator),
        "ds.Simulator, compiled, with derivatives": differentiated(continuous),
        "JAX, compiled": compiled(in_jax),
    }
    table = Table("door", "steps per second", "times the loop")
    speeds = {name: measure(run) for name, run in doors.items()}
    slowest = next(iter(speeds.values()))
    for name, speed in speeds.items():
        table.add_row(name, f"{speed:,.0f}", f"{speed / slowest:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
