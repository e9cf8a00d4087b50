"""A process to be killed: trains in JAX or Gymnasium, runs a study, or writes a report.

python -m tests.hardening.victim KIND FOLDER [OPERATION]

KIND is one of `TRAINED`, "study" or "report".

It begins or goes on, whichever the folder asks for, says "begun" and "done", and kills itself at
that operation on its files, if one is given, with half of what it was writing written.
"""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import downside as ds
from downside._locks import tidy
from downside.envs import MeanReversion
from downside.reporting import make_section
from downside.runs import is_valued, resume_run, train_run
from downside.train.monitor import saved_in

from ..studies.tiny import study
from ..train.tiny import CHUNK, SMALL, make
from .faults import FaultyFiles

STEPS = 12 * CHUNK
GYM_STEPS = 300
ACTOR_UPDATES, ACTOR_STEPS = 24, 24 * 16 * 3
"""Updates of PG-SRM, and the steps of their episodes."""
LIVED_STEPS = 12 * 4 * 16
"""Of AC-SRM: iterations, environments, steps of each."""
EPISODES = 20


def tell(text: str) -> None:
    """To whoever kills it."""
    os.write(1, f"{text}\n".encode())


class Tell(ds.Callback):
    """Says when each outer step is done."""

    def on_step(self, agent: ds.Agent) -> None:
        tell(f"step {agent.num_timesteps}")


def gymnasium_agent() -> ds.Agent:
    """A run in a Gymnasium environment; an outer step after every 25 steps of one environment."""
    return ds.QRSRM("CartPole-v1", risk="cvar(0.5)", seed=0, num_envs=1, **SMALL)


def actor_agent(risk: str = "cvar(0.5)", outer_episodes: int = 32) -> ds.Agent:
    """PG-SRM, on three periods with continuous trades; an outer step after every two updates."""
    return ds.PGSRM(
        MeanReversion(periods=3, continuous=True),
        risk=risk,
        seed=0,
        hidden_sizes=(4,),
        batch_size=16,
        outer_interval=2,
        outer_episodes=outer_episodes,
        updates=ACTOR_UPDATES,
    )


def dial_agent() -> ds.Agent:
    """A dial; its policies are compared in as few episodes as it takes."""
    return actor_agent("dial", 108)


def lived_agent() -> ds.Agent:
    """AC-SRM in a Gymnasium environment; an outer step after each iteration."""
    return ds.ACSRM(
        "CartPole-v1",
        risk="cvar(0.5)",
        seed=0,
        num_envs=4,
        n_steps=16,
        epochs=2,
        hidden_sizes=(8,),
        quantiles=5,
        outer_interval=1,
    )


TRAINED: dict[str, tuple[Callable[[], ds.Agent], int]] = {
    "jax": (make, STEPS),
    "actor": (actor_agent, ACTOR_STEPS),
    "dial": (dial_agent, ACTOR_STEPS),
    "gymnasium": (gymnasium_agent, GYM_STEPS),
    "lived": (lived_agent, LIVED_STEPS),
}
"""Agents that are trained in a run folder, and their steps."""


def train(folder: Path, kind: str) -> None:
    """Trains, or goes on."""
    make_agent, steps = TRAINED[kind]
    options = {"every_seconds": 0, "callback": Tell()}
    if is_valued(folder):
        tidy(folder)
        return
    if saved_in(folder):
        resume_run(folder, **options)
    else:
        train_run(make_agent(), folder, total_timesteps=steps, episodes=EPISODES, **options)


def run_study(folder: Path) -> None:
    """Two runs, each in a process of its own that goes on until it notices that this one died."""
    result = ds.sweep(small_study(), folder=folder, workers=1, every_seconds=0)
    assert not result.failed, result.failed


def small_study() -> dict:
    """Of two seeds."""
    return study(seeds=2, total_timesteps=4 * CHUNK, episodes=EPISODES)


def write_report(folder: Path) -> None:
    """The same page several times, from a run that is trained."""
    agent = ds.load(folder / "agent.safetensors")
    section = make_section(agent, episodes=50, explained_episodes=1, checks=10)
    for number in range(20):
        ds.report(section, out=folder / "report.html", title=f"report {number % 2}")
        tell(f"page {number}")


def main(kind: str, folder: Path, operation: int | None) -> None:
    """Does what it is told, until it is killed."""
    layer = FaultyFiles(folder, operation, kill=True) if operation is not None else None
    with layer or contextlib.nullcontext():
        tell("begun")
        if kind in TRAINED:
            train(folder, kind)
        elif kind == "study":
            run_study(folder)
        else:
            write_report(folder)
    tell("done")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else None)
