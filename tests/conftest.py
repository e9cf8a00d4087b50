"""Types and shapes are checked in the tests; compiled programs are kept between runs."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import jax
from jaxtyping import install_import_hook

install_import_hook("downside", "beartype.beartype")

jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

hypothesis.settings.register_profile("downside", deadline=None, max_examples=60, database=None)
hypothesis.settings.load_profile("downside")
