"""Wall clock to 90% and 95% of the optimum of mean reversion: PG-SRM, QR-SRM, a PyTorch loop.

    make bench-actors

cvar(0.5), 21 trades, default settings. The clock of each begins before its imports and contains
compilation; values are those of 65,536 episodes that are measured every 100 updates (of QR-SRM, its
outer steps). The PyTorch loop (`peers_actor.py`) has the actor, the batches and the schedules of
PG-SRM, and runs in an environment of its own. Each one runs alone, one after the other.
"""

import argparse
import json
import subprocess
import sys

RISK, OPTIMUM, SHARES = "cvar(0.5)", 0.5765, (0.9, 0.95)
"""The optimum is that of results/mean-reversion-optimum.csv."""

OURS = """
import time
begin = time.perf_counter()
import json, sys
import downside as ds

name, risk, goals = sys.argv[1], sys.argv[2], [float(text) for text in sys.argv[3:]]
reached = {}

def watch(agent):
    for goal in goals:
        if agent.history[-1]["value"] >= goal:
            reached.setdefault(goal, time.perf_counter() - begin)
    return len(reached) < len(goals)

agent = getattr(ds, name)("downside/MeanReversion-v0", risk=risk, seed=0, gamma=0.99)
for _ in agent.training():
    if not watch(agent):
        break
last = agent.history[-1]
print(json.dumps({
    "seconds": [reached.get(goal) for goal in goals],
    "value": last["value"],
    "updates": last["updates"],
    "each": (time.perf_counter() - begin) / max(last["updates"], 1),
}))
"""


def run(command: list[str]) -> dict:
    """What a process prints last."""
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(output.splitlines()[-1])


def main() -> None:
    """Prints the table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=".venv-bench/bin/python", help="of PyTorch")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch")
    parser.add_argument("--only", nargs="*", default=("PGSRM", "torch", "QRSRM"))
    options = parser.parse_args()
    goals = [str(round(share * OPTIMUM, 4)) for share in SHARES]
    commands = {
        "PGSRM": [sys.executable, "-c", OURS, "PGSRM", RISK, *goals],
        "torch": [
            *(options.python, "benchmarks/peers_actor.py"),
            *("--threads", str(options.threads), "--goals", *goals),
        ],
        "QRSRM": [sys.executable, "-c", OURS, "QRSRM", RISK, *goals],
    }
    results = {name: run(commands[name]) for name in options.only}
    print(f"{RISK}, optimum {OPTIMUM}: seconds to {', '.join(f'{s:.0%}' for s in SHARES)} of it")
    for name, result in results.items():
        seconds = ["never" if s is None else f"{s:.0f} s" for s in result["seconds"]]
        print(
            f"  {name:8}{seconds[0]:>10}{seconds[1]:>10}   {result['updates']:.0f} updates, "
            f"{1e3 * result['each']:.1f} ms each with everything, value {result['value']:.4f}"
        )
    if "PGSRM" in results and "torch" in results:
        pairs = zip(SHARES, results["torch"]["seconds"], results["PGSRM"]["seconds"], strict=True)
        for share, theirs, mine in pairs:
            ratio = "-" if theirs is None or mine is None else f"{theirs / mine:.1f}x"
            print(f"  PG-SRM is {ratio} faster than the PyTorch loop to {share:.0%} (floor 3x)")


if __name__ == "__main__":
    main()
