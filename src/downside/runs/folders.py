"""The folder of a run: its name and its configuration."""

import dataclasses
import re
from pathlib import Path
from typing import Any

from downside._files import DamagedFileError, read_json
from downside._machine import versions
from downside.envs.registry import import_environment
from downside.risk import AbstractSpectralRisk, Dial
from downside.train import Agent, load

RUN = "run.json"
"""The configuration of a run, in its folder."""


def run_folder(env: str, agent: str, risk: AbstractSpectralRisk | Dial, seed: int) -> Path:
    """`runs/<env>__<agent>__<risk>__<seed>`, without special characters."""
    text = str(risk).replace("(", "-")
    bare = env.rpartition(":")[2].rpartition("/")[2]
    parts = (bare, agent, text, str(seed))
    return Path("runs") / "__".join(re.sub(r"[^A-Za-z0-9.+-]", "", part) for part in parts)


def describe_run(
    agent: Agent, total_timesteps: int | None = None, episodes: int | None = None
) -> dict[str, Any]:
    """The configuration of a run, for run.json; plain types."""
    timesteps = agent.settings.total_timesteps if total_timesteps is None else int(total_timesteps)
    settings = dataclasses.asdict(agent.settings)
    return {
        "agent": agent.full_name(),
        "env": agent.env_spec.as_json(),
        "risk": str(agent.risk),
        "dial": None if agent.family is None else str(agent.family),
        "seed": agent.seed,
        "preset": agent.preset,
        "total_timesteps": timesteps,
        "episodes": episodes,
        # As JSON has them, so that they can be compared with those that were written.
        "settings": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings.items()
        },
        "versions": versions("downside", "jax", "gymnasium"),
    }


def check_same_run(
    agent: Agent, folder: str | Path, total_timesteps: int | None = None
) -> dict[str, Any]:
    """The configuration in a folder; an error unless it is the run that `agent` would make."""
    about, wanted = read_run(folder), describe_run(agent, total_timesteps)
    names = ("agent", "env", "risk", "dial", "seed", "total_timesteps")
    pairs = {name: (about.get(name), wanted[name]) for name in names}
    before, now = about.get("settings") or {}, wanted["settings"]
    pairs |= {name: (before.get(name), now.get(name)) for name in sorted({*before, *now})}
    apart = [f"{name} {old!r}, now {new!r}" for name, (old, new) in pairs.items() if old != new]
    if apart:
        raise ValueError(
            f"`folder` has a run that was trained in another way: {folder} has "
            f"{'; '.join(apart)}. Take another folder, or delete that run."
        )
    return about


def read_run(folder: str | Path) -> dict[str, Any]:
    """The configuration in a run folder.

    Raises:
        FileNotFoundError: if there is none.
        DamagedFileError: if it cannot be read, or says too little.
    """
    path = Path(folder) / RUN
    if not path.exists():
        raise no_run(Path(folder))
    about = read_json(path)
    kinds = {"agent": str, "env": dict, "risk": str, "seed": int, "total_timesteps": int}
    for name, kind in kinds.items():
        if not isinstance(about.get(name), kind):
            raise DamagedFileError(f"{path} does not say `{name}`; it is not whole.")
    if not isinstance(about["env"].get("description"), str):
        raise DamagedFileError(f"{path} does not say `env.description`; it is not whole.")
    return about


def no_run(folder: Path) -> FileNotFoundError:
    """The error for a folder without a run."""
    return FileNotFoundError(
        f"{folder} is no run: it has no {RUN}. `downside runs` lists the runs."
    )


def import_run_environment(folder: str | Path) -> None:
    """Imports the module of a run whose environment was named with one, `module:Id-v0`.

    For commands, whose user has named the module when the run was trained. `ds.load` imports
    nothing: see docs/how-to/checkpoints.md.
    """
    try:
        env_id = read_run(folder)["env"].get("id")
    except (DamagedFileError, OSError):  # whoever needs the run will say so
        return
    if isinstance(env_id, str):
        import_environment(env_id)


def load_run(path: str | Path, **more: Any) -> Agent:
    """The agent of a run folder or of a file, for commands; of a folder, after
    `import_run_environment`."""
    if Path(path).is_dir():
        import_run_environment(path)
    return load(path, **more)
