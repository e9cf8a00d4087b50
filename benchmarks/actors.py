"""Processor time to 90% and 95% of the optimum of mean reversion: PG-SRM, QR-SRM, a PyTorch loop.

    make bench-actors

cvar(0.5), 21 trades, one core each, one after the other. The clock counts seconds of processor from
the first import on, and stands still while a policy is measured every 100 updates (of QR-SRM, its
outer steps), in 100,000 fresh episodes of `ds.evaluate`, or 400,000 of PyTorch's. *Start* is what
is spent before the first update: imports, and compilation, for which an agent of another seed is
trained for one outer step. The PyTorch loop (`peers_actor.py`) has the actor, the batches and the
schedules of PG-SRM, and runs in an environment of its own.

"small" are batches of 256 episodes in place of 2,048, for both.
"""

import argparse
import json
import os
import subprocess
import sys

RISK, OPTIMUM, SHARES = "cvar(0.5)", 0.5765, (0.9, 0.95)
"""The optimum is that of results/mean-reversion-optimum.csv."""
SMALL = 256

OURS = """
import time
begin = time.process_time()
import json, sys
import downside as ds

name, risk, seed, settings, *goals = sys.argv[1:]
goals, settings = [float(text) for text in goals], json.loads(settings)

def make(seed):
    problem = "downside/MeanReversion-v0"
    return getattr(ds, name)(problem, risk=risk, seed=seed, gamma=0.99, **settings)

next(iter(make(int(seed) + 1000).training()))  # compiles
start = time.process_time() - begin
agent, reached, measuring, value = make(int(seed)), {}, 0.0, float("nan")
for _ in agent.training():
    now = time.process_time()
    value = ds.evaluate(agent, episodes=100_000).value(risk)
    for goal in goals:
        if value >= goal:
            reached.setdefault(goal, now - begin - measuring)
    measuring += time.process_time() - now
    if len(reached) == len(goals):
        break
updates = agent.history[-1]["updates"]
print(json.dumps({
    "start": start,
    "seconds": [reached.get(goal) for goal in goals],
    "value": value,
    "updates": updates,
    "each": (time.process_time() - begin - measuring - start) / updates,
}))
"""


def run(command: list[str]) -> dict:
    """What a process prints last."""
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=alone).stdout
    return json.loads(output.splitlines()[-1])


def main() -> None:
    """Prints the table and the ratios."""
    names = ("PGSRM", "torch", "PGSRM small", "torch small", "QRSRM")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=".venv-bench/bin/python", help="of PyTorch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=names, choices=names)
    options = parser.parse_args()
    goals = [str(round(share * OPTIMUM, 4)) for share in SHARES]
    results = {}
    print(f"{RISK}, optimum {OPTIMUM}, seed {options.seed}: seconds of processor")
    for name in options.only:
        agent, *rest = name.split()
        batch = SMALL if rest else 2048
        if agent == "torch":
            command = [options.python, "benchmarks/peers_actor.py", "--goals", *goals]
            command += ["--seed", str(options.seed), "--batch", str(batch)]
        else:
            settings = json.dumps({"batch_size": batch} if rest else {})
            command = [sys.executable, "-c", OURS, agent, RISK, str(options.seed), settings, *goals]
        results[name] = result = run(command)
        learning = [
            "never" if seconds is None else f"{seconds - result['start']:.1f} s"
            for seconds in result["seconds"]
        ]
        print(
            f"  {name:12} start {result['start']:5.1f} s, then to "
            + ", ".join(f"{s:.0%} {text}" for s, text in zip(SHARES, learning, strict=True))
            + f" ({result['updates']:.0f} updates, {1e3 * result['each']:.1f} ms each)",
            flush=True,
        )
    for size in ("", " small"):
        mine, theirs = results.get(f"PGSRM{size}"), results.get(f"torch{size}")
        if mine is None or theirs is None:
            continue
        for what, taken in (("with its start", 0.0), ("from the first update on", 1.0)):
            ratios = [
                "-"
                if None in (a, b)
                else f"{(b - taken * theirs['start']) / (a - taken * mine['start']):.1f}x"
                for a, b in zip(mine["seconds"], theirs["seconds"], strict=True)
            ]
            print(f"  PG-SRM{size} is {' and '.join(ratios)} faster than the loop, {what}")


if __name__ == "__main__":
    main()
