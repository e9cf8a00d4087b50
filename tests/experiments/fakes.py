"""Rows and runs that are made up."""

import json

import numpy as np

import downside as ds
from downside.experiments import _experiment
from downside.studies.storage import ERROR

from ..train.tiny import ENV, TINY

DIVERGED = "downside.train.agent.DivergenceError: Training diverged after 64 steps."


def a_row(algorithm, objective, seed, measure, value):
    """The value of an agent by a measure."""
    return {
        "algorithm": algorithm,
        "objective": objective,
        "seed": seed,
        "measure": measure,
        "value": value,
        "standard_error": 0.01,
        "predicted": 0.0,
        "seconds": 1.0,
    }


def fake_sweep(monkeypatch, *, broken=(), errors=None, returns=None):
    """Runs finish at once; the machine breaks at seeds in `broken`, agents in `errors` fail.

    Returns:
        The runs that were trained, as (agent, risk, seed).
    """
    trained = []
    agent = ds.QRSRM(ENV, risk="mean", **TINY)
    agent.history.append({"predicted": 0.0, "value": 0.0, "best": 0.0, "seconds": 2.0})
    agent.history[-1]["timesteps"] = 10

    def sweep(study, folder, progress_bar):
        for spec in study.runs:
            if spec.seed in broken:
                raise RuntimeError("the machine was switched off")
            trained.append((spec.agent, spec.risk, spec.seed))
            run = folder / spec.name
            run.mkdir(parents=True, exist_ok=True)
            error = (errors or {}).get((spec.agent, spec.seed))
            if error is not None:
                (run / ERROR).write_text(f"Traceback\n{error}\n")
                continue
            sample = np.linspace(-1.0, 1.0, 50) + spec.seed if returns is None else returns
            # As many episodes as the run is to have, with the distribution of the sample.
            np.save(run / "returns.npy", np.repeat(sample, spec.episodes // len(sample)))
            about = {"seed": spec.seed, "episodes": spec.episodes, "aligned": True, "values": []}
            (run / "evaluation.json").write_text(json.dumps(about))

    monkeypatch.setattr(_experiment, "sweep", sweep)
    monkeypatch.setattr(_experiment, "load", lambda folder: agent)
    return trained
