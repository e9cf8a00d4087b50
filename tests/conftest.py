"""Types and shapes are checked in the tests; compiled programs are kept between runs."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

# All but the loop that Python runs step by step, where checking every call would double its time.
CHECKED = (
    *("risk", "decompose", "ops", "envs", "exact", "agents", "evaluation", "explanation"),
    *("reporting", "studies", "experiments", "cli", "runs"),
    *(
        f"train.{name}"
        for name in ("agent", "config", "driver", "log", "many", "monitor", "policy")
    ),
    *(f"train.backends.{name}" for name in ("jax", "outer", "state")),
    *(f"train.checkpoints.{name}" for name in ("checkpoint", "loading", "schema")),
)
install_import_hook([f"downside.{name}" for name in CHECKED], "beartype.beartype")

jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
# Most of the time goes into compiling programs that then run for milliseconds.
jax.config.update("jax_disable_most_optimizations", True)

LONG_RUNNING = ("tests.exact", "tests.test_learning", "tests.envs.problems.finite.test_tabular")
"""Modules whose programs run for long enough to be worth optimising."""


@pytest.fixture(autouse=True, scope="module")
def _compiled_for_speed(request):
    """Switches the compiler's optimisations on where they pay."""
    long = request.module.__name__.startswith(LONG_RUNNING)
    jax.config.update("jax_disable_most_optimizations", not long)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    if _resident_gigabytes() > 4.0:  # compiled programs pile up over thousands of tests
        jax.clear_caches()


def _resident_gigabytes() -> float:
    """Memory of this process; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30


hypothesis.settings.register_profile("downside", deadline=None, max_examples=60, database=None)
hypothesis.settings.load_profile("downside")
