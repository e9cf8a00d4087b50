"""The evaluation of a run in fresh episodes, in its folder."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from downside._files import (
    DamagedFileError,
    atomic_write,
    check_regular,
    file_digest,
    read_json,
    write_json,
)
from downside._locks import lock
from downside.evaluation import Evaluation, evaluate
from downside.risk import AbstractSpectralRisk, as_risk
from downside.train import Agent
from downside.train.monitor import set_aside

EVALUATION_SEED = 1_000_000
"""The seed of the episodes that run 0 is evaluated in; see `evaluation_seed`."""
EVALUATION, _RETURNS = "evaluation.json", "returns.npy"
_ALWAYS = tuple(map(as_risk, ("mean", "cvar(0.5)", "cvar(0.2)", "cvar(0.05)")))
"""Measures of every evaluation."""


def evaluation_seed(seed: int) -> int:
    """The seed of the episodes that a run with this seed is evaluated in.

    Runs with the same seed meet the same noise, so that it cancels in their difference. Training
    never uses it.
    """
    return EVALUATION_SEED + seed


def value_run(
    agent: Agent,
    folder: str | Path,
    episodes: int | None = None,
    risks: Iterable[AbstractSpectralRisk | str] = (),
    seed: int | None = None,
) -> Evaluation:
    """Evaluates the agent of a run in fresh episodes, and writes the result into its folder."""
    folder = Path(folder)
    seed = evaluation_seed(agent.seed) if seed is None else seed
    evaluation = evaluate(agent, episodes=episodes, seed=seed)
    summary = evaluation.summary(_distinct([agent.risk, *map(as_risk, risks), *_ALWAYS]))
    with lock(folder):
        for path in (folder / EVALUATION, folder / _RETURNS):
            if path.is_dir() and not path.is_symlink():  # which no file can replace
                set_aside(path)
        (folder / EVALUATION).unlink(missing_ok=True)  # it belongs to other returns
        with atomic_write(folder / _RETURNS) as temporary:
            np.save(temporary, evaluation.returns, allow_pickle=False)
        write_json(  # last: a run that has it is finished
            folder / EVALUATION,
            {
                "seed": seed,
                "episodes": len(evaluation),
                "aligned": evaluation.aligned,
                "values": summary,
                "returns_sha256": file_digest(folder / _RETURNS),
            },
        )
    return evaluation


def is_valued(folder: str | Path, episodes: int | None = None) -> bool:
    """Whether a run has its evaluation, undamaged; if `episodes` is given, in that many."""
    return evaluation_problem(folder, episodes) is None


def evaluation_problem(folder: str | Path, episodes: int | None = None) -> str | None:
    """Why a run has no evaluation that counts: empty if there is none, the file and the reason if
    it is damaged; None if all is well."""
    try:
        about = read_evaluation(Path(folder))
    except FileNotFoundError:
        return ""
    except (DamagedFileError, OSError) as error:
        return str(error)
    return None if episodes is None or about["episodes"] == episodes else ""


def read_evaluation(folder: Path) -> dict[str, Any]:
    """evaluation.json, after checking it and the returns."""
    path, returns = folder / EVALUATION, folder / _RETURNS
    about = read_json(path)
    for name, kind in (("seed", int), ("episodes", int), ("values", list)):
        if not isinstance(about.get(name), kind):
            raise DamagedFileError(f"{path} does not say `{name}`; it is not whole.")
    for row in about["values"]:
        numbers = [row.get(name) for name in ("value", "low", "high")] if _is_row(row) else [None]
        if not all(map(is_number, numbers)):
            raise DamagedFileError(f"{path} has a value that is none: {repr(row)[:80]}.")
    check_regular(returns)
    digest = about.get("returns_sha256")
    if digest is not None and digest != file_digest(returns):
        raise DamagedFileError(f"{returns} was changed after it was written: its digest differs.")
    return about


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("risk"), str)


def run_returns(folder: str | Path) -> Evaluation:
    """The evaluation of a finished run."""
    folder = Path(folder)
    about = read_evaluation(folder)
    try:
        returns = np.load(folder / _RETURNS, allow_pickle=False)
    except (ValueError, EOFError, MemoryError) as error:
        raise DamagedFileError(f"{folder / _RETURNS} cannot be read: {error}.") from error
    if not isinstance(returns, np.ndarray) or returns.shape != (about["episodes"],):
        raise DamagedFileError(f"{folder / _RETURNS} must hold {about['episodes']} returns.")
    if not np.issubdtype(returns.dtype, np.floating) or not np.isfinite(returns).all():
        raise DamagedFileError(f"{folder / _RETURNS} holds returns that are not finite numbers.")
    aligned = about.get("aligned") is True  # older runs do not say
    return Evaluation(returns, seed=about["seed"], label=folder.name, aligned=aligned)


def _distinct(risks: Sequence[AbstractSpectralRisk]) -> list[AbstractSpectralRisk]:
    return list({str(risk): risk for risk in risks}.values())


def is_number(value: Any) -> bool:
    """Whether a value of a JSON file is a finite number that a float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max
