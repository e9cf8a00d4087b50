"""Studies whose runs take a second, and the environment variables that keep compiling short."""

from pathlib import Path
from typing import Any

from ..train.tiny import CHUNK, TINY

ROOT = Path(__file__).parents[2]
SPEED = {
    "JAX_PLATFORMS": "cpu",
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
}
"""As the tests themselves, for processes that they start."""

ENV: dict[str, Any] = {
    "id": "downside/MeanReversion-v0",
    "periods": 3,
    "num_trades": 5,
    "inventory_limit": 2.0,
}
AGENT: dict[str, Any] = {"name": "qrsrm", **TINY, "hidden_sizes": [16, 16]}


def study(**changes: Any) -> dict[str, Any]:
    """One environment, one agent, two seeds of CVaR 0.5; `changes` are keys of [study]."""
    header = {
        "name": "tiny",
        "risks": ["cvar(0.5)"],
        "seeds": 2,
        "total_timesteps": 2 * CHUNK,
        "episodes": 100,
        **changes,
    }
    return {"study": header, "environments": [dict(ENV)], "agents": [dict(AGENT)]}


def as_toml(table: dict[str, Any]) -> str:
    """A study as a file."""
    lines = ["[study]", *(f"{name} = {_text(value)}" for name, value in table["study"].items())]
    for kind in ("environments", "agents"):
        for entry in table[kind]:
            lines += [
                f"\n[[{kind}]]",
                *(f"{name} = {_text(value)}" for name, value in entry.items()),
            ]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
