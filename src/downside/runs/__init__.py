"""Run folders: the configuration of a run, its checkpoints, its log and its evaluation.

runs/<env>__<agent>__<risk>__<seed>/
    run.json                        the configuration, and the versions
    checkpoint-<steps>.safetensors  the last two; `ds.load(folder)` takes the latest
    log_1/                          TensorBoard events and progress.jsonl
    evaluation.json, returns.npy    the policy in fresh episodes, once the run is finished

Whoever writes a run folder holds its lock. JSON files carry a digest of themselves, and
evaluation.json that of the returns, so that a damaged file is noticed.
"""

from downside.runs.evaluation import (
    EVALUATION,
    EVALUATION_SEED,
    evaluation_problem,
    evaluation_seed,
    is_valued,
    run_returns,
    value_run,
)
from downside.runs.folders import (
    check_same_run,
    describe_run,
    import_run_environment,
    load_run,
    read_run,
    run_folder,
)
from downside.runs.listing import RunInfo, list_runs, run_info
from downside.runs.training import keep_run, resume_run, train_run

__all__ = [
    "EVALUATION",
    "EVALUATION_SEED",
    "RunInfo",
    "check_same_run",
    "describe_run",
    "evaluation_problem",
    "evaluation_seed",
    "import_run_environment",
    "is_valued",
    "keep_run",
    "list_runs",
    "load_run",
    "read_run",
    "resume_run",
    "run_folder",
    "run_info",
    "run_returns",
    "train_run",
    "value_run",
]
