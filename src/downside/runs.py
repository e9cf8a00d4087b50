"""Where a run keeps its files: one folder, named after what was run."""

import re
from pathlib import Path

from downside.risk import AbstractSpectralRisk


def run_folder(env: str, agent: str, risk: AbstractSpectralRisk, seed: int) -> Path:
    """`runs/<env>__<agent>__<risk>__<seed>`, with nothing in it that a shell would trip over."""
    text = str(risk).replace("(", "-")
    parts = (env.rpartition("/")[2], agent, text, str(seed))
    return Path("runs") / "__".join(re.sub(r"[^A-Za-z0-9.+-]", "", part) for part in parts)
