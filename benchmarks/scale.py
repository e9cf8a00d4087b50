"""What many agents cost: per agent against agents, quantiles and environments; and in the large.

    python benchmarks/scale.py              # measures everything, a quarter of an hour or so
    python benchmarks/scale.py --only ratio # one part of it, of those in PARTS
    python benchmarks/scale.py --docs       # writes what was measured into docs/how-to/growing.md

The rows go to results/scale.csv, how they were made to results/scale.json. Runs are shortened; each
is done twice in one process, so that what is compiled is in the first only. `ratio` sets 35 agents
(7 measures x 5 seeds) by `train_many` against single runs, which is what `downside train` does: one
for each measure, counted five times. Each is in a process of its own without a compilation cache;
both are timed alike, by their outer steps after the first, and all the rest is starting.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

import downside as ds
from downside._files import write_text
from downside._machine import cores
from downside.experiments._rows import Row, read_rows, write_about, write_rows
from downside.train.backends.state import FIT_CHUNK

ENV = "downside/MeanReversion-v0"
ROOT = Path(__file__).parents[1]
ROWS, PAGE = ROOT / "results" / "scale.csv", ROOT / "docs" / "how-to" / "growing.md"
PARTS = ("agents", "quantiles", "environments", "ratio", "memory")
RISKS = (
    "mean",
    "cvar(0.5)",
    "cvar(0.2)",
    "exponential(4)",
    "dual_power(2)",
    "0.2*cvar(0.1) + 0.3*cvar(0.6) + 0.5*mean",
    "0.5*mean + 0.5*cvar(0.2)",
)
"""The objectives of the paper's table."""
SEEDS = 5
CACHE = "JAX_COMPILATION_CACHE_DIR"
CHUNKS = 2
"""Outer steps of a shortened run: enough for what is timed to be agents side by side."""
SHORT: dict[str, Any] = {"evaluation_fraction": 0.0}
"""Of a shortened run: what follows the last update is as long as those updates, and left out."""
TINY: dict[str, Any] = {
    "hidden_sizes": (16, 16),
    "quantiles": 5,
    "num_envs": 8,
    "batch_size": 8,
    "buffer_size": 512,
    "warmup_steps": 64,
    "updates_per_step": 2,
    "outer_interval": 8,
    "outer_episodes": 16,
    "optimiser": "adam",
    "shifts": 3,
}
"""To see whether the script works; the numbers mean nothing."""


# --- measuring --------------------------------------------------------------------------------


def measure(part: str, risks: Sequence[str], seeds: int, chunks: int, **arguments: Any) -> Row:
    """A row: the same training twice, with other seeds."""
    engine = arguments.pop("engine", "threads")
    probe = ds.QRSRM(ENV, risk=risks[0], **arguments)
    settings = probe.settings
    per_chunk = settings.outer_interval // settings.updates_per_step * settings.update_interval
    steps = chunks * per_chunk * settings.num_envs
    times, agents = [], []
    for again in range(2):
        first = 100 * again
        begin = time.perf_counter()
        agents = ds.train_many(
            ENV,
            risks=risks,
            seeds=range(first, first + seeds),
            total_timesteps=steps,
            engine=engine,
            **arguments,
        )
        times.append(time.perf_counter() - begin)
    count, updates = len(agents), chunks * settings.outer_interval
    row = {
        "part": part,
        "engine": engine,
        "preset": arguments.get("preset", "default"),
        "agents": count,
        "quantiles": settings.quantiles,
        "environments": settings.num_envs,
        "updates": updates,
        "timesteps": agents[0].num_timesteps,
        "seconds": round(times[1], 3),
        "compiling": round(max(0.0, times[0] - times[1]), 3),
        "seconds_per_agent": round(times[1] / count, 4),
        "ms_per_update": round(1000 * times[1] / count / updates, 4),
        "megabytes": round(_bytes(agents[0]) / 2**20, 2),
    }
    print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return row


def _bytes(agent: ds.Agent) -> int:
    leaves = [leaf for leaf in jax.tree.leaves(agent._driver.state) if eqx.is_array(leaf)]
    return sum(leaf.size * 4 for leaf in leaves)


def measure_agents(tiny: dict[str, Any]) -> list[Row]:
    """Time per agent against agents per program, for both engines."""
    counts = (1, 2) if tiny else (1, 2, 4, 8)
    return [
        measure("agents", ["cvar(0.5)"], count, CHUNKS, engine=engine, **SHORT, **tiny)
        for engine in ("threads", "vmap")
        for count in counts
    ]


def measure_quantiles(tiny: dict[str, Any]) -> list[Row]:
    """Time against quantiles, in the preset in which they decide."""
    small = {**tiny, "shifts": 1} if tiny else {}
    return [
        measure(
            "quantiles", ["cvar(0.5)"], 2, CHUNKS, preset="paper", **{**small, "quantiles": count}
        )
        for count in ((5, 10) if tiny else (10, 50, 100, 200))
    ]


def measure_environments(tiny: dict[str, Any]) -> list[Row]:
    """Time against environments that run side by side, with as many updates."""
    return [
        measure("environments", ["cvar(0.5)"], 2, CHUNKS, **SHORT, **{**tiny, "num_envs": count})
        for count in ((8, 16) if tiny else (64, 256, 1024, 4096))
    ]


def measure_ratio(tiny: dict[str, Any], chunks: int) -> list[Row]:
    """35 agents together, and a single run of each measure; each in a process of its own."""
    count = 2 if tiny else len(RISKS) * SEEDS
    rows = [_in_a_process("together", chunks, tiny, agents=count)]
    for number in range(2 if tiny else len(RISKS)):
        rows.append(_in_a_process("alone", chunks, tiny, agents=1, number=number))
    return rows


def _in_a_process(
    part: str, chunks: int, tiny: dict[str, Any], agents: int, number: int | None = None
) -> Row:
    """A row of training that nothing was compiled for."""
    which = "all" if number is None else str(number)
    command = [sys.executable, __file__, "--process", which, "--chunks", str(chunks)]
    fresh = {name: value for name, value in os.environ.items() if name != CACHE}
    begin = time.perf_counter()
    output = subprocess.run(
        [*command, *(["--tiny"] if tiny else [])],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=fresh,
    ).stdout
    took = time.perf_counter() - begin
    row: Row = {"part": part, "engine": "threads", "preset": "default", "agents": agents}
    row |= json.loads(output.splitlines()[-1])
    # What is left besides all outer steps, the first of which was not timed, is starting.
    row["compiling"] = round(took - row["seconds"] * (chunks + 1) / chunks, 3)
    print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return row


def process(which: str, chunks: int, tiny: dict[str, Any]) -> None:
    """Trains all agents, or one as `downside train` would; prints what an outer step took after the
    first one, which has the compiling in it."""
    settings = ds.QRSRM(ENV, risk=RISKS[0], **tiny).settings
    per_chunk = settings.outer_interval // settings.updates_per_step * settings.num_envs
    steps = (chunks + 1) * per_chunk
    marks: list[tuple[float, float]] = []
    mark = lambda *_: marks.append((time.perf_counter(), time.process_time()))  # noqa: E731
    if which == "all":
        mark()
        risks, seeds = (RISKS[:2], 1) if tiny else (RISKS, SEEDS)
        agents = ds.train_many(ENV, risks=risks, seeds=range(seeds), total_timesteps=steps, **tiny)
        mark()
    else:
        agents = [ds.QRSRM(ENV, risk=RISKS[int(which)], **tiny).learn(steps, callback=mark)]
    each = [one.history[-1]["seconds"] - one.history[0]["seconds"] for one in agents]
    seconds, updates = sum(each) / min(cores(), len(agents)), chunks * settings.outer_interval
    (begin, idle), (end, busy) = marks[0], marks[-1]
    figures = {
        "cores_busy": round((busy - idle) / (end - begin), 3),
        "quantiles": settings.quantiles,
        "environments": settings.num_envs,
        "updates": updates,
        "timesteps": chunks * per_chunk,
        "seconds": round(seconds, 3),
        "seconds_per_agent": round(seconds / len(agents), 4),
        "ms_per_update": round(1000 * seconds / len(agents) / updates, 4),
        "megabytes": round(_bytes(agents[0]) / 2**20, 2),
    }
    print(json.dumps(figures))


def measure_memory(tiny: dict[str, Any]) -> list[Row]:
    """What the process of a single run holds at most: Python, JAX and what it compiles, too."""
    command = f"import scale; scale.process('1', 1, {tiny!r}); print(scale.most_memory())"
    output = subprocess.run(
        [sys.executable, "-c", command],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
    ).stdout
    return [{"part": "memory", "process_megabytes": round(float(output.splitlines()[-1]))}]


def most_memory() -> float:
    """MiB that this process held at most (Linux)."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("Memory is read from /proc, which this system does not have.")


# --- what follows from it ---------------------------------------------------------------------


def full_updates() -> int:
    """Updates of a whole run with the default settings, with those of the final distribution."""
    settings = ds.SimulatorSettings()
    per_chunk = settings.outer_interval // settings.updates_per_step * settings.num_envs
    updates = round(settings.total_timesteps / per_chunk) * settings.outer_interval
    after = math.ceil(settings.evaluation_fraction * updates / FIT_CHUNK)
    return updates + after * FIT_CHUNK


def summary(rows: list[Row], at_a_time: int) -> dict[str, float]:
    """The figures that the page quotes; only those that the rows allow."""
    figures: dict[str, float] = {}
    many = [row for row in rows if row["part"] == "agents" and row["engine"] == "threads"]
    if many:
        most = max(many, key=lambda row: int(row["agents"]))
        figures["ms_per_update"] = float(most["ms_per_update"])
        figures["megabytes"] = float(most["megabytes"])
        figures["minutes_per_run"] = figures["ms_per_update"] * full_updates() / 60_000
        figures["core_hours_for_10000"] = 10_000 * figures["minutes_per_run"] * at_a_time / 60
    alone = [row for row in rows if row["part"] == "alone"]
    together = [row for row in rows if row["part"] == "together"]
    if alone and together:
        many_together, count = together[0], int(together[0]["agents"])
        # As measured: short runs, in which starting and compiling weigh too much.
        each = statistics.fmean(float(row["seconds"]) for row in alone)
        starting = statistics.fmean(float(row["compiling"]) for row in alone)
        both = float(many_together["seconds"]) + float(many_together["compiling"])
        figures["ratio_short"] = both / (count * (each + starting))
        figures["ratio_training"] = float(many_together["seconds"]) / (count * each)
        # For whole runs: every update as long as it was, starting and compiling once as measured.
        stretch = full_updates() / float(many_together["updates"])
        whole = float(many_together["seconds"]) * stretch + float(many_together["compiling"])
        figures["cores_busy_alone"] = statistics.fmean(float(row["cores_busy"]) for row in alone)
        figures["ratio_whole"] = whole / (count * (each * stretch + starting))
    return figures


def block(rows: list[Row], about: dict[str, Any]) -> str:
    """The measured part of docs/how-to/growing.md."""
    if not rows:
        return "Run it to fill in the table.\n"
    here = int(about["made_with"][-1]["cores"])
    figures = summary(rows, here)
    out = [f"Measured by `{about['command']}`, {here} cores, mean-reversion trading.\n"]
    names = {
        "agents": ("Time per agent against agents per program", "agents"),
        "quantiles": ("Against quantiles, preset `paper`, two agents", "quantiles"),
        "environments": ("Against environments, two agents, as many updates", "environments"),
    }
    for part, (title, column) in names.items():
        chosen = [row for row in rows if row["part"] == part]
        if not chosen:
            continue
        out.append(f"**{title}**\n")
        out.append(
            f"| {column} | engine | ms an update and agent | env steps/s | MB of a run's arrays |"
        )
        out.append("| --- | --- | --- | --- | --- |")
        for row in chosen:
            speed = float(row["timesteps"]) * int(row["agents"]) / float(row["seconds"])
            out.append(
                f"| {row[column]} | {row['engine']} | {float(row['ms_per_update']):.2f} | "
                f"{speed:,.0f} | {float(row['megabytes']):.1f} |"
            )
        out.append("")
    if "ratio_whole" in figures:
        out.append(
            f"**35 agents (7 measures x 5 seeds).** `train_many` takes "
            f"{figures['ratio_whole']:.0%} of the time of 35 single runs, each in a process of its "
            f"own, at full length ({figures['ratio_short']:.0%} in the shortened runs that were "
            "timed, where starting and compiling weigh more; "
            f"{figures['ratio_training']:.0%} of the training alone). A single run keeps "
            f"{figures['cores_busy_alone']:.1f} of the {here} cores busy by itself, which leaves "
            "little for others beside it: here the cores set the limit. What is saved beyond them "
            "is starting and compiling; a compilation cache saves most of that for single runs, "
            "too. More cores save more, for a single run has no use for them.\n"
        )
    if "core_hours_for_10000" in figures:
        hours = figures["core_hours_for_10000"]
        out.append(
            f"**10,000 agents, on paper.** A whole run is {full_updates():,} updates, here "
            f"{figures['minutes_per_run']:.1f} minutes of this machine "
            f"({figures['ms_per_update']:.2f} ms an update and agent, {here} at a time). Agents "
            f"share nothing, so that is {hours:,.0f} core-hours in all, whatever they are spread "
            "over:\n"
        )
        out.append("| | cores | 10,000 agents | memory, a process to a core |")
        out.append("| --- | --- | --- | --- |")
        of_a_process = [row["process_megabytes"] for row in rows if row["part"] == "memory"]
        each = max(map(float, of_a_process), default=figures["megabytes"])
        for name, count in (
            ("this machine", here),
            ("a workstation", 32),
            ("a cluster of ten such", 320),
            ("a cluster of a hundred", 3200),
        ):
            time_left = hours / count
            duration = f"{time_left / 24:.1f} days" if time_left > 48 else f"{time_left:.1f} hours"
            memory = count * each / 1024
            out.append(f"| {name} | {count:,} | {duration} | {memory:.1f} GB |")
        out.append(
            "\nThis takes a core elsewhere to be as fast as one here and memory bandwidth to keep "
            "up: measure a node before you believe it."
        )
    return "\n".join(out).rstrip() + "\n"


def fill(page: str, text: str) -> str:
    """The page with the text between its two marks."""
    pattern = re.compile(r"(<!-- results -->\n).*?(<!-- end of results -->)", re.DOTALL)
    return pattern.sub(lambda match: match[1] + text + match[2], page, count=1)


def main() -> None:
    """Measures, and writes after each part."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", choices=PARTS, help="one part; the rows of others stay")
    parser.add_argument("--chunks", type=int, default=2, help="outer steps of a run of `ratio`")
    parser.add_argument("--docs", action="store_true", help="only fill docs/how-to/growing.md")
    parser.add_argument("--tiny", action="store_true", help="see whether the script works")
    parser.add_argument("--out", type=Path, default=ROWS, help="the CSV file")
    parser.add_argument("--process", help=argparse.SUPPRESS)
    options = parser.parse_args()
    tiny = TINY if options.tiny else {}
    if options.process is not None:
        process(options.process, options.chunks, tiny)
        return
    path: Path = options.out
    about_path = path.with_suffix(".json")
    if not options.docs:
        parts = {
            "agents": (measure_agents, ("agents",)),
            "quantiles": (measure_quantiles, ("quantiles",)),
            "environments": (measure_environments, ("environments",)),
            "ratio": (lambda tiny: measure_ratio(tiny, options.chunks), ("together", "alone")),
            "memory": (measure_memory, ("memory",)),
        }
        for name in [options.only] if options.only else PARTS:
            run, names = parts[name]
            kept = [row for row in read_rows(path) if row["part"] not in names]
            write_rows(path, [*kept, *run(tiny)])
            write_about(
                about_path,
                "python benchmarks/scale.py",
                updates_of_a_whole_run=full_updates(),
                figures=summary(read_rows(path), cores()),
            )
    rows = read_rows(path)
    about = json.loads(about_path.read_text(encoding="utf-8")) if rows else {}
    text = block(rows, about)
    print(text)
    if path == ROWS:
        write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), text))


if __name__ == "__main__":
    main()
