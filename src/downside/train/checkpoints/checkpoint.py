"""Checkpoints: one safetensors file, with what was trained as JSON in its header.

Nothing on the way in can run code: the file holds numbers and text, and which class they belong to
is looked up by name among ours. Files appear whole or not at all, and carry a digest of all that is
in them, so that a damaged one is noticed.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from downside._files import DamagedFileError, atomic_write, check_regular
from downside.train.checkpoints.schema import SchemaError, check_header

SCHEMA = 1
"""Version of the format."""
SUFFIX = ".safetensors"
_LARGEST_ABOUT = 64 * 2**20
"""Characters of the description."""
_MOST_PARTS, _MOST_ENTRIES = 500_000, 5_000_000
"""Lists and objects in it, and entries of these: what is parsed within a second."""
_WEIGHTS = r"\.(learner|networks|average|spread)\b"
"""Arrays that must be finite, by their place in the state."""
_OUTER = r"\.(outer|best)\b"
"""Arrays that may be infinite, as the value of a policy that nobody has judged yet, but not NaN."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be read."""


class MissingPartError(CheckpointError):
    """A checkpoint that needs something which no file holds: an environment, a measure, a class."""


def checkpoint_path(path: str | Path) -> Path:
    """The path with its suffix."""
    path = Path(path)
    return path if path.suffix == SUFFIX else path.with_name(path.name + SUFFIX)


def write(path: str | Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> Path:
    """Writes a checkpoint, whole or not at all; one that was there before stays until then."""
    path = checkpoint_path(path)
    text = json.dumps({**about, "schema": SCHEMA}, allow_nan=True)
    if len(text) > _LARGEST_ABOUT:
        raise ValueError(
            f"The checkpoint {path} cannot be written: its history has {len(text):,} characters, "
            f"and at most {_LARGEST_ABOUT:,} are read. Take a larger `outer_interval`."
        )
    try:
        check_header(json.loads(text))
    except SchemaError as error:  # nobody could read it
        raise ValueError(f"The checkpoint {path} cannot be written: {error}.") from error
    tidy = {
        name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()
    }
    header = {"format": "downside", "about": text, "sha256": _digest(tidy, text)}
    try:
        with atomic_write(path) as temporary:
            safetensors.numpy.save_file(tidy, temporary, metadata=header)
    except (OSError, safetensors.SafetensorError) as error:
        raise OSError(
            f"The checkpoint {path} could not be written: {error}. Checkpoints that were there "
            "before are as they were. Make room on the disk, or save elsewhere."
        ) from error
    return path


def read(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and what is said about them, or an error that says what is wrong with the file."""
    given, path = Path(path), checkpoint_path(path)
    if not path.exists() and os.path.lexists(path):
        raise CheckpointError(f"{path} is a link that leads to no file.")
    if not path.exists():
        near = sorted(file.name for file in path.parent.glob(f"*{SUFFIX}"))[:5]
        there = f" In that folder there are: {', '.join(near)}." if near else ""
        nor = f", and no run folder {given}" if given != path else ""
        raise FileNotFoundError(f"There is no checkpoint {path}{nor}.{there}")
    try:
        check_regular(path)
        with safetensors.safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            about = _about(path, header)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except DamagedFileError as error:
        raise CheckpointError(str(error)) from error
    except CheckpointError:
        raise
    except Exception as error:  # whatever the library makes of a file that is none
        raise CheckpointError(
            f"{path} is no whole safetensors file: {error}. It may have been cut short or changed; "
            "use the checkpoint before it."
        ) from error
    if _digest(arrays, header["about"]) != header.get("sha256"):
        raise CheckpointError(
            f"{path} was changed after it was written: its digest does not match. Use the "
            "checkpoint before it."
        )
    try:
        check_header(about)
    except SchemaError as error:
        raise CheckpointError(f"{path} has a description that is none: {error}.") from error
    _check_finite(path, arrays)
    return arrays, about


def _check_finite(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuses weights that are not finite: such an agent acts, but what it does means nothing."""
    for name, array in arrays.items():
        if not np.issubdtype(array.dtype, np.floating):
            continue
        if re.search(_WEIGHTS, name):
            valid = np.isfinite(array).all()
        else:
            valid = not (re.search(_OUTER, name) and np.isnan(array).any())
        if not valid:
            raise CheckpointError(
                f"{path} holds numbers that are not finite, in {name}. Use the checkpoint before "
                "it."
            )


def _about(path: Path, header: Mapping[str, str]) -> dict[str, Any]:
    if header.get("format") != "downside" or "about" not in header:
        raise CheckpointError(f"{path} is a safetensors file, but not one that Downside wrote.")
    if len(header["about"]) > _LARGEST_ABOUT:
        raise CheckpointError(f"{path} has a description of {len(header['about']):,} characters.")
    text = header["about"]
    if text.count("[") + text.count("{") > _MOST_PARTS or text.count(",") > _MOST_ENTRIES:
        raise CheckpointError(f"{path} has a description of more parts than any checkpoint.")
    try:
        about = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of 5,000 digits
        raise CheckpointError(f"The description in {path} is no JSON: {error}.") from error
    schema = about.get("schema") if isinstance(about, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise CheckpointError(f"{path} does not say which schema it has, got {schema!r}.")
    if schema > SCHEMA:
        raise CheckpointError(
            f"{path} has schema {schema}; this version of Downside reads up to {SCHEMA}. Upgrade "
            "Downside to read it."
        )
    return about


def _digest(arrays: Mapping[str, np.ndarray], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).data if array.size else b"")
    return digest.hexdigest()


# --- a pytree as named arrays -----------------------------------------------------------------


def to_arrays(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a pytree by their place in it."""
    return {
        jax.tree_util.keystr(path): np.asarray(_plain(leaf))
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        if _is_array(leaf)
    }


def from_arrays(skeleton: Any, arrays: Mapping[str, np.ndarray], source: str) -> Any:
    """The pytree that `skeleton` has the shapes of, filled with arrays; all must fit."""
    left = dict(arrays)

    def fill(path: Any, leaf: Any) -> Any:
        if not _is_array(leaf):
            return leaf
        name = jax.tree_util.keystr(path)
        if name not in left:
            raise CheckpointError(
                f"{source} lacks {name}. It belongs to other settings or another network; pass "
                "the `network` that it was trained with."
            )
        array, is_key = left.pop(name), jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        shape, kind = (leaf.shape, leaf.dtype)
        if is_key:
            shape, kind = (*leaf.shape, array.shape[-1] if array.ndim else 0), np.dtype(np.uint32)
        if array.shape != tuple(shape) or array.dtype != kind:
            raise CheckpointError(
                f"{source} has {name} as {array.dtype}{list(array.shape)}, but it must be "
                f"{kind}{list(shape)}. It belongs to another environment or other settings."
            )
        if is_key:
            return jax.random.wrap_key_data(jnp.asarray(array))
        if isinstance(leaf, np.ndarray):  # stays in the host's memory and is written in place
            return np.array(array)
        return jnp.asarray(array)

    tree = jax.tree_util.tree_map_with_path(fill, skeleton)
    if left:
        raise CheckpointError(
            f"{source} has arrays that belong nowhere: {', '.join(sorted(left))}."
        )
    return tree


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def _plain(leaf: Any) -> Any:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf
