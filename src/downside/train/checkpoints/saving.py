"""From an agent to a checkpoint."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from downside._machine import versions
from downside.train.checkpoints import checkpoint
from downside.train.driver import untrained

if TYPE_CHECKING:
    from downside.train.agent import Agent


def save(agent: "Agent", path: str | Path) -> Path:
    """Writes all of an agent; see `Agent.save`."""
    driver = agent._driver
    if driver.state is None or driver.spec is None:
        raise untrained()
    about: dict[str, Any] = {
        "agent": agent.full_name(),
        "env": agent.env_spec.as_json(),
        "risk": str(agent.risk),
        "levels": driver.algorithm.objective.levels.shape[0],
        "settings": dataclasses.asdict(agent.settings),
        "preset": agent.preset,
        "seed": agent.seed,
        "chunks": driver.spec.chunks,
        "fitted": driver.fitted,
        "history": agent.history,
        "versions": versions("downside", "jax", "equinox"),
    }
    if agent.family is not None:
        targets = {measure: list(target) for measure, target in agent.targets.items()}
        about["dial"] = {
            "levels": list(agent.family.levels),
            "start": str(agent.family.start),
            "targets": targets,
        }
    return checkpoint.write(path, checkpoint.to_arrays(driver.backend.to_tree(driver.state)), about)
