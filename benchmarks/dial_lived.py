"""One dial of AC-SRM in environments that are lived through, turned to every measure.

    python benchmarks/dial_lived.py --only mean-reversion --seeds 0 1 2
    python benchmarks/dial_lived.py --only lander --seeds 0 1 2

Writes `results/dial-lived.csv`: a row for each problem, method, seed and measure, with the mean and
the tail of the same policy beside its value. What has its rows is not made again; agents are kept
under `runs/dial-lived`. Problems: mean reversion with continuous trades, as a vector environment in
NumPy (the optimum is known); gym-trading-env (`pip install gym-trading-env`) with prices of our
own; the lander with a gamble on its right side, which Box2D simulates.
"""

import argparse
import dataclasses
import functools
import importlib
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from doors import Reversion
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import downside as ds
from downside.envs import SimulatorVectorEnv
from downside.evaluation.seeds import estimate_mean
from downside.experiments._rows import add_rows, read_rows, select
from downside.runs import evaluation_seed

TABLE, STORAGE = Path("results/dial-lived.csv"), Path("runs/dial-lived")
COMMAND = "python benchmarks/dial_lived.py"


class ContinuousReversion(Reversion):
    """Mean reversion with trades in [-2, 2]."""

    actions = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def step(self, state, action, noise):
        """One trade for each episode."""
        return super().step(state, np.asarray(action).reshape(len(state["price"])), noise)


def reversion() -> Any:
    """128 copies, stepped by NumPy."""
    return SimulatorVectorEnv(
        ds.Simulator(ContinuousReversion()), 128, autoreset_mode=AutoresetMode.SAME_STEP
    )


class EndsForGood(gym.Wrapper):
    """After its last day nothing more can be earned: a truncation is a termination."""

    def step(self, action):
        """As the environment's."""
        observation, reward, terminated, truncated, _ = self.env.step(action)
        return observation, float(reward), bool(terminated or truncated), False, {}

    def reset(self, *, seed=None, options=None):
        """The package draws the first day from NumPy's global generator."""
        if seed is not None:
            np.random.seed(seed)  # noqa: NPY002
        observation, _ = self.env.reset(seed=seed, options=options)
        return observation, {}


@functools.cache
def prices() -> Any:
    """Eight years of days whose logarithmic returns have mean 0.005 and standard deviation 0.02."""
    pandas: Any = importlib.import_module("pandas")

    returns = np.random.default_rng(0).normal(0.005, 0.02, 2_000)
    frame = pandas.DataFrame(
        {"close": 100.0 * np.exp(np.cumsum(returns)), "feature_return": returns},
        index=pandas.date_range("2018-01-01", periods=2_000),
    )
    return frame


def trading() -> gym.Env:
    """gym-trading-env: 20 days from a random one on, with 0, a half or all of the capital
    invested at a fee of 0.05%; rewards are the logarithmic returns of the capital in percent."""
    importlib.import_module("gym_trading_env")  # registers it

    env = gym.make(
        "TradingEnv",
        df=prices(),
        positions=[0, 0.5, 1],
        initial_position=0,
        trading_fees=0.0005,
        reward_function=_percent,
        max_episode_duration=21,
        verbose=0,
        disable_env_checker=True,
    )
    return EndsForGood(env)


def _percent(history: Any) -> float:
    values = history["portfolio_valuation", -1], history["portfolio_valuation", -2]
    return 100.0 * float(np.log(values[0] / values[1]))


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem, and what its dial is turned to."""

    make: Callable[[], Any]
    steps: int
    episodes: int
    tail: str
    measures: tuple[str, ...]
    dedicated: tuple[str, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


PROBLEMS = {
    "mean-reversion": Problem(
        reversion,
        1_000_000,
        20_000,
        "cvar(0.1)",
        ("mean", "cvar(0.8)", "0.5*mean + 0.5*cvar(0.2)", "cvar(0.5)", "cvar(0.2)", "cvar(0.1)"),
        ("mean", "cvar(0.5)", "cvar(0.2)"),
        {"gamma": 0.99},
    ),
    "trading": Problem(
        lambda: gym.vector.SyncVectorEnv([trading] * 64, autoreset_mode=AutoresetMode.SAME_STEP),
        400_000,
        5_000,
        "cvar(0.1)",
        ("mean", "0.5*mean + 0.5*cvar(0.2)", "cvar(0.5)", "cvar(0.2)", "cvar(0.1)"),
        settings={"gamma": 0.999},
    ),
    "lander": Problem(
        lambda: "downside/RiskyLunarLander-v0",
        1_500_000,
        300,
        "cvar(0.1)",
        ("mean", "0.5*mean + 0.5*cvar(0.2)", "cvar(0.5)", "cvar(0.2)", "cvar(0.1)"),
        settings={"gamma": 0.999},
    ),
}


def trained(name: str, problem: Problem, risk: str, seed: int, steps: int) -> Any:
    """The agent, read if it was trained before."""
    text = risk.replace("*", "").replace(" ", "")
    path = STORAGE / f"{name}__{text}__{steps}__{seed}.safetensors"
    if path.exists():
        return ds.load(path, problem.make()), path
    agent = ds.ACSRM(problem.make(), risk=risk, seed=seed, **problem.settings)
    begin = time.process_time()
    agent.learn(steps)
    agent.history[-1]["cpu_seconds"] = time.process_time() - begin
    STORAGE.mkdir(parents=True, exist_ok=True)
    agent.save(path)
    return agent, path


def main() -> None:
    """Trains, turns, evaluates, writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="of each training")
    parser.add_argument("--dedicated", action="store_true", help="agents for one measure, too")
    parser.add_argument("--table", type=Path, default=TABLE)
    options = parser.parse_args()
    rows = read_rows(options.table)
    for name in options.only:
        problem = PROBLEMS[name]
        steps = options.steps or problem.steps
        for seed in options.seeds:
            runs = [("dial", "dial", problem.measures)]
            if options.dedicated:
                runs += [("dedicated", measure, (measure,)) for measure in problem.dedicated]
            for method, risk, measures in runs:
                key = {"problem": name, "method": method, "steps": str(steps), "seed": str(seed)}
                missing = [m for m in measures if not select(rows, measure=m, **key)]
                if missing:
                    agent, path = trained(name, problem, risk, seed, steps)
                    for measure in missing:
                        row = valued(agent, problem, measure, seed)
                        keys = (*key, "measure")
                        new = [{**key, "measure": measure, **row}]
                        add_rows(options.table, rows, new, keys, COMMAND, facts)
                    agent.save(path)  # with the targets that were found
    show(rows)


def valued(agent: Any, problem: Problem, measure: str, seed: int) -> dict[str, Any]:
    """The value of a measure's policy, and its mean and tail."""
    begin = time.process_time()
    at = agent if agent.family is None else agent.at(measure)
    searched = time.process_time() - begin
    result = ds.evaluate(at, episodes=problem.episodes, seed=evaluation_seed(seed))
    found = agent.targets.get(str(ds.parse(measure)))
    return {
        "target": "" if found is None else round(found.target, 4),
        "value": round(result.value(measure), 4),
        "standard_error": round(result.standard_error(measure), 4),
        "mean": round(result.value("mean"), 4),
        "tail": round(result.value(problem.tail), 4),
        "tail_measure": problem.tail,
        "episodes": problem.episodes,
        "training_cpu_seconds": round(agent.history[-1].get("cpu_seconds", float("nan")), 1),
        "search_cpu_seconds": round(searched, 1),
        "search_steps": at.simulated_steps - agent.simulated_steps,
    }


def show(rows: list[dict[str, Any]]) -> None:
    """A line for each measure: its value, and mean and tail of its policy, with 95%
    intervals over seeds (Student's t)."""
    by = ("problem", "method", "steps", "measure")
    for key in dict.fromkeys(tuple(row[name] for name in by) for row in rows):
        mine = select(rows, **dict(zip(by, key, strict=True)))
        cells = []
        for column in ("value", "mean", "tail"):
            estimate = estimate_mean([float(row[column]) for row in mine], resamples=None)
            cells.append(f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]")
        sys.stdout.write(f"| {' | '.join(map(str, (*key, *cells)))} |\n")


def facts(rows: Any) -> dict[str, Any]:
    """What the table's JSON file says."""
    return {"seeds": sorted({int(row["seed"]) for row in rows})}


if __name__ == "__main__":
    main()
