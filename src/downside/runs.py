"""A run and its folder: what was trained, its checkpoints, its log and what it is worth.

runs/<env>__<agent>__<risk>__<seed>/
    run.json                      what was asked for, and the versions
    checkpoint-<steps>.safetensors  the last two; `ds.load(folder)` takes the latest
    log_1/                        TensorBoard events and progress.jsonl
    evaluation.json, returns.npy  the policy in fresh episodes; they are there once it is done
"""

import dataclasses
import importlib.metadata
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from downside._files import whole_file, write_text
from downside.agents.settings import identity
from downside.evaluation import Evaluation, evaluate
from downside.risk import AbstractSpectralRisk, as_risk
from downside.train import Agent, Checkpoints, load
from downside.train.callbacks import saved_in

EVALUATION_SEED = 1_000_000
"""Plus the seed of the run: of the episodes that a finished run is valued in."""
_RUN, _EVALUATION, _RETURNS = "run.json", "evaluation.json", "returns.npy"


def run_folder(env: str, agent: str, risk: AbstractSpectralRisk, seed: int) -> Path:
    """`runs/<env>__<agent>__<risk>__<seed>`, with nothing in it that a shell would trip over."""
    text = str(risk).replace("(", "-")
    parts = (env.rpartition("/")[2], agent, text, str(seed))
    return Path("runs") / "__".join(re.sub(r"[^A-Za-z0-9.+-]", "", part) for part in parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What there is to say about a run folder without loading what is in it."""

    folder: str
    agent: str
    env: str
    risk: str
    seed: int
    timesteps: int
    """Environment steps so far."""
    total_timesteps: int
    """Environment steps there are to be."""
    status: str
    """finished, unfinished (it can be resumed), or empty (it has no checkpoint yet)."""
    value: float | None = None
    """The risk measure's value in fresh episodes, of a finished run."""
    low: float | None = None
    high: float | None = None


def train_run(
    agent: Agent,
    folder: str | Path,
    *,
    total_timesteps: int | None = None,
    episodes: int | None = None,
    every_seconds: float | int = 60.0,
    callback: Any = None,
    progress_bar: bool = False,
) -> Evaluation:
    """Trains an agent in a folder of its own, and values it.

    Arguments:
        agent: an agent that has not learned yet.
        folder: a new folder, or one without a checkpoint.
        total_timesteps: environment steps, by default the preset's.
        episodes: fresh episodes that it is valued in in the end; by default as many as are cheap.
        every_seconds: time between two checkpoints.
        callback: as for `agent.learn`.
        progress_bar: whether to show how far it is.
    """
    folder = Path(folder)
    if saved_in(folder) or (folder / _EVALUATION).exists():
        raise ValueError(
            f"There is a run in {folder} already. Go on with it (`downside resume {folder}`), take "
            "another folder or seed, or delete it."
        )
    about = describe_run(agent, total_timesteps, episodes)
    write_text(folder / _RUN, json.dumps(about, indent=2) + "\n")
    agent.tensorboard_log = folder
    agent.learn(
        about["total_timesteps"],
        callback=[callback, Checkpoints(folder, every_seconds=every_seconds)],
        tb_log_name="log",
        progress_bar=progress_bar,
    )
    return value_run(agent, folder, episodes)


def describe_run(
    agent: Agent, total_timesteps: int | None = None, episodes: int | None = None
) -> dict[str, Any]:
    """What is asked for in a run, as its folder says it; plain types, for JSON."""
    wanted = agent.settings.total_timesteps if total_timesteps is None else int(total_timesteps)
    settings = dataclasses.asdict(agent.settings)
    return {
        "agent": type(agent).__name__,
        "env": agent.origin.as_json(),
        "risk": str(agent.risk),
        "seed": agent.seed,
        "preset": agent.preset,
        "total_timesteps": wanted,
        "episodes": episodes,
        "settings": {**settings, "hidden": list(settings["hidden"])},
        "versions": {
            name: importlib.metadata.version(name) for name in ("downside", "jax", "gymnasium")
        },
    }


def check_same_run(
    agent: Agent, folder: str | Path, total_timesteps: int | None = None
) -> dict[str, Any]:
    """What a folder says of its run; an error unless that is the run that `agent` would make."""
    about, wanted = read_run(folder), describe_run(agent, total_timesteps)
    names = ("agent", "env", "risk", "seed", "total_timesteps")
    pairs = {name: (about.get(name), wanted[name]) for name in names}
    before, now = identity(about.get("settings") or {}), identity(wanted["settings"])
    pairs |= {name: (before.get(name), now.get(name)) for name in sorted({*before, *now})}
    apart = [f"{name} {old!r}, now {new!r}" for name, (old, new) in pairs.items() if old != new]
    if apart:
        raise ValueError(
            f"`folder` has a run that was trained in another way: {folder} has "
            f"{'; '.join(apart)}. Take another folder, or delete that run."
        )
    return about


def keep_run(
    agent: Agent,
    folder: str | Path,
    *,
    total_timesteps: int | None = None,
    episodes: int | None = None,
    risks: Iterable[AbstractSpectralRisk | str] = (),
) -> Evaluation:
    """Makes the run folder of an agent that is trained already (by `train_agents`), and values it.

    Arguments:
        agent: the agent.
        folder: where its run is to be.
        total_timesteps: what its training was asked for.
        episodes: fresh episodes that it is valued in.
        risks: measures beside its own that it is valued by.
    """
    folder = Path(folder)
    about = describe_run(agent, total_timesteps, episodes)
    write_text(folder / _RUN, json.dumps(about, indent=2) + "\n")
    Checkpoints(folder).on_end(agent)
    return value_run(agent, folder, episodes, risks)


def resume_run(
    folder: str | Path,
    *,
    env: Any = None,
    episodes: int | None = None,
    every_seconds: float | int = 60.0,
    callback: Any = None,
    progress_bar: bool = False,
    **more: Any,
) -> tuple[Agent, Evaluation]:
    """Goes on with a run from its latest checkpoint, and values it.

    Arguments:
        folder: of the run.
        env: as for `ds.load`.
        episodes: fresh episodes that it is valued in; by default what the run was begun with.
        every_seconds: time between two checkpoints.
        callback: as for `agent.learn`.
        progress_bar: whether to show how far it is.
        **more: as for `ds.load`.
    """
    folder = Path(folder)
    about = read_run(folder)
    agent = load(folder, env, tensorboard_log=folder, **more)
    agent.resume(
        callback=[callback, Checkpoints(folder, every_seconds=every_seconds)],
        tb_log_name="log",
        progress_bar=progress_bar,
    )
    return agent, value_run(agent, folder, about.get("episodes") if episodes is None else episodes)


def value_run(
    agent: Agent,
    folder: str | Path,
    episodes: int | None = None,
    risks: Iterable[AbstractSpectralRisk | str] = (),
    seed: int | None = None,
) -> Evaluation:
    """Values the agent of a run in fresh episodes, and writes that into its folder."""
    folder = Path(folder)
    seed = EVALUATION_SEED + agent.seed if seed is None else seed
    found = evaluate(agent, episodes=episodes, seed=seed)
    summary = found.summary(_distinct([agent.risk, *map(as_risk, risks), *_ALWAYS]))
    about = {"seed": seed, "episodes": len(found), "aligned": found.aligned}
    (folder / _EVALUATION).unlink(missing_ok=True)  # that of other returns
    with whole_file(folder / _RETURNS) as temporary:
        np.save(temporary, found.returns, allow_pickle=False)
    write_text(  # last: a run that has it is done
        folder / _EVALUATION,
        json.dumps(about | {"values": summary}, indent=2) + "\n",
    )
    return found


def is_valued(folder: str | Path, episodes: int | None = None) -> bool:
    """Whether a run was valued to the end; if `episodes` is given, in that many."""
    path = Path(folder) / _EVALUATION
    if not path.exists() or not (Path(folder) / _RETURNS).exists():
        return False
    return episodes is None or json.loads(path.read_text(encoding="utf-8"))["episodes"] == episodes


def run_returns(folder: str | Path) -> Evaluation:
    """The returns in which a finished run was valued."""
    folder = Path(folder)
    about = json.loads((folder / _EVALUATION).read_text(encoding="utf-8"))
    returns = np.load(folder / _RETURNS, allow_pickle=False)
    aligned = about.get("aligned", False)  # earlier ones do not say
    return Evaluation(returns, seed=about["seed"], label=folder.name, aligned=aligned)


_ALWAYS = tuple(map(as_risk, ("mean", "cvar(0.5)", "cvar(0.2)", "cvar(0.05)")))
"""Measures that every run is valued by."""


def _distinct(risks: Sequence[AbstractSpectralRisk]) -> list[AbstractSpectralRisk]:
    return list({str(risk): risk for risk in risks}.values())


def read_run(folder: str | Path) -> dict[str, Any]:
    """What was asked for in a run folder."""
    path = Path(folder) / _RUN
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} is no run: it has no {_RUN}. `downside runs` lists those there are."
        )
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no JSON: {error}.") from error
    if not isinstance(about, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(about).__name__}.")
    return about


def list_runs(folder: str | Path = "runs") -> list[RunInfo]:
    """The runs in a folder, by name."""
    return [run_info(path.parent) for path in sorted(Path(folder).glob(f"*/{_RUN}"))]


def run_info(folder: str | Path) -> RunInfo:
    """What there is to say about one run folder."""
    own, about = Path(folder), read_run(folder)
    saved = saved_in(own)
    done = own / _EVALUATION
    values = json.loads(done.read_text(encoding="utf-8"))["values"] if done.exists() else []
    value = next((one for one in values if one["risk"] == about["risk"]), {})
    steps = int(saved[0].stem.rpartition("-")[2]) if saved else 0
    return RunInfo(
        folder=str(own),
        agent=about["agent"],
        env=about["env"]["description"],
        risk=about["risk"],
        seed=about["seed"],
        timesteps=steps,
        total_timesteps=about["total_timesteps"],
        status="finished" if values else "unfinished" if saved else "empty",
        value=value.get("value"),
        low=value.get("low"),
        high=value.get("high"),
    )
