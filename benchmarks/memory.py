"""Memory of a long training run in the windy lunar lander: it must not grow.

    python benchmarks/memory.py --minutes 30

Prints the resident memory every minute. The replay is full after `buffer_size` steps and lies in
memory that is reserved from the start but only counted once it is written, so growth is judged from
then on. The simulator itself loses 1.6 kB with each episode (docs/explanation/agents.md).
"""

import argparse
import time
from pathlib import Path

import downside as ds


def resident() -> float:
    """MiB that this process holds (Linux)."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("Resident memory is read from /proc, which this system does not have.")


def main() -> None:
    """Trains and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args()
    agent = ds.QRSRM(
        "downside/WindyLunarLander-v0", risk="0.5*cvar(0.2)+0.5*mean", buffer_size=20_000
    )
    begin, sizes = time.perf_counter(), []

    def watch(agent: ds.Agent) -> bool:
        minutes = (time.perf_counter() - begin) / 60
        if agent.num_timesteps >= 2 * agent.settings.buffer_size and minutes >= len(sizes) + 1:
            sizes.append(resident())
            print(
                f"{minutes:5.1f} min {agent.num_timesteps:9,} steps {sizes[-1]:7.0f} MiB",
                flush=True,
            )
        return minutes < options.minutes

    agent.learn(10_000_000, callback=watch)
    print(
        f"From {sizes[0]:.0f} to {sizes[-1]:.0f} MiB in {len(sizes)} minutes, "
        f"at most {max(sizes):.0f}."
    )


if __name__ == "__main__":
    main()
