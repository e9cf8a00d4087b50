# pyright: reportMissingImports=false
"""The same problem through every door: mean reversion or a hedge, in JAX, NumPy and Gymnasium.

    python benchmarks/doors.py --risk "cvar(0.5)" --seeds 3
    python benchmarks/doors.py --risk "cvar(0.2)" --doors simulator-qrsrm simulator-pgsrm
    python benchmarks/doors.py --problem hedging --risk "cvar(0.2)" --seeds 3

Each door has the length of run that fits into five minutes on two quiet cores; the seconds that it
took are printed. Policies are judged in 100,000 fresh episodes of the problem in JAX where they can
be played there, and in 20,000 of the Gymnasium environment where not.
"""

import argparse
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import downside as ds

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from own_simulator import CallHedge

OPTIMA = {"mean": 1.805, "cvar(0.5)": 0.577, "cvar(0.2)": 0.113}
"""Of the exact planner."""
DECAY, SPREAD = math.exp(-0.2), math.sqrt((1.0 - math.exp(-0.4)) / 4.0)


class Reversion:
    """The problem in vectorised NumPy."""

    horizon, gamma, noise = 10, 0.99, "normal"
    actions = np.linspace(-2.0, 2.0, 21)
    observation_names = ("price", "inventory", "time")

    def initial_state(self, rng, count):
        """Price 1, nothing held."""
        del rng
        return {
            "price": np.ones(count),
            "inventory": np.zeros(count),
            "time": np.zeros(count, int),
        }

    def step(self, state, action, noise):
        """Trade at the price; then it moves."""
        price = 1.0 + (state["price"] - 1.0) * DECAY + SPREAD * noise
        inventory, now = state["inventory"] + action, state["time"] + 1
        over = now == self.horizon
        reward = -action * state["price"] - 0.005 * action**2
        reward += over * (inventory * price - 0.5 * inventory**2)
        return {"price": price, "inventory": inventory, "time": now}, reward, over

    def observe(self, state):
        """Price, inventory, share of the time."""
        return state["price"], state["inventory"], state["time"] / self.horizon


class OneReversion(gym.Env):
    """The problem as a Gymnasium environment, as most are written."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, continuous=False):
        box = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)
        self.action_space: gym.Space = box if continuous else gym.spaces.Discrete(21)
        self.continuous = continuous

    def reset(self, *, seed=None, options=None):
        """Price 1, nothing held."""
        del options
        super().reset(seed=seed)
        self.price, self.inventory, self.time = 1.0, 0.0, 0
        return self._observe(), {}

    def step(self, action):
        """Trade at the price; then it moves."""
        trade = float(action[0]) if self.continuous else Reversion.actions[action]
        price = self.price
        noise = self.np_random.standard_normal()
        self.price = 1.0 + (price - 1.0) * DECAY + SPREAD * noise
        self.inventory, self.time = self.inventory + trade, self.time + 1
        over = self.time == Reversion.horizon
        reward = -trade * price - 0.005 * trade**2
        reward += over * (self.inventory * self.price - 0.5 * self.inventory**2)
        return self._observe(), float(reward), over, False, {}

    def _observe(self):
        return np.array([self.price, self.inventory, self.time / 10], np.float32)


gym.register("OneReversion-v0", lambda **arguments: OneReversion(**arguments))


Door = tuple[str, Any, dict[str, Any], int | None]


def hedging() -> dict[str, Door]:
    """The hedge of examples/own_simulator.py, whose best band has -0.887 by cvar(0.2)."""
    any_position, positions = (ds.Simulator(CallHedge(continuous)) for continuous in (True, False))
    once = {"gamma": 1.0}
    return {
        "simulator-pgsrm": ("PGSRM", any_position, {}, None),
        "simulator-qrsrm": ("QRSRM", positions, {}, None),
        "gymnasium-acsrm": ("ACSRM", positions.vector_env(128), once, None),
        "gymnasium-acsrm-continuous": ("ACSRM", any_position.vector_env(128), once, None),
    }


def doors() -> dict[str, Door]:
    """Of each door: agent, environment, settings, steps."""
    simulator = ds.Simulator(Reversion())
    all_doors = {
        "jax-qrsrm": ("QRSRM", "downside/MeanReversion-v0", {}, None),
        "jax-pgsrm": ("PGSRM", "downside/MeanReversion-v0", {}, None),
        "simulator-qrsrm": ("QRSRM", simulator, {}, None),
        "simulator-pgsrm": ("PGSRM", simulator, {}, None),
        "gymnasium-qrsrm": ("QRSRM", "OneReversion-v0", {"gamma": 0.99}, None),
        "gymnasium-acsrm": ("ACSRM", "OneReversion-v0", {"gamma": 0.99}, None),
        "gymnasium-acsrm-continuous": (
            "ACSRM",
            "OneReversion-v0",
            {"gamma": 0.99, "env_kwargs": {"continuous": True}},
            None,
        ),
    }
    return {name: door for name, door in all_doors.items() if hasattr(ds, door[0])}


def main() -> None:
    """Trains through each door, and prints a line for each."""
    problems = {"reversion": doors(), "hedging": hedging()}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problem", choices=list(problems), default="reversion")
    parser.add_argument("--risk", default="cvar(0.5)")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--doors", nargs="*", choices=list(problems["reversion"]))
    parser.add_argument("--steps", type=int, help="of each run; by default the agent's own")
    options = parser.parse_args()
    available = problems[options.problem]
    say = lambda text: (sys.stdout.write(text + "\n"), sys.stdout.flush())  # noqa: E731
    for name in options.doors or available:
        agent_name, env, settings, steps = available[name]
        values, seconds = [], []
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            begin, busy = time.perf_counter(), time.process_time()
            agent = getattr(ds, agent_name)(env, risk=options.risk, seed=seed, **settings)
            agent.learn(options.steps or steps)
            seconds.append(time.perf_counter() - begin)
            busy = time.process_time() - busy
            episodes = 100_000 if agent.jax_env is not None else 20_000
            values.append(ds.evaluate(agent, episodes=episodes, seed=77).value(options.risk))
            say(
                f"{name}, seed {seed}: {options.risk} {values[-1]:.4f} after {seconds[-1]:.0f} s "
                f"({busy:.0f} s of a core), {agent.num_timesteps:,} steps lived, "
                f"{agent.simulated_steps:,} simulated"
            )
        mean = statistics.mean(values)
        optimum = OPTIMA.get(options.risk) if options.problem == "reversion" else None
        share = f" ({100 * mean / optimum:.0f}% of the optimum)" if optimum else ""
        say(f"| {name} | {options.risk} | {mean:.3f}{share} | {statistics.mean(seconds):.0f} s |")


if __name__ == "__main__":
    main()
