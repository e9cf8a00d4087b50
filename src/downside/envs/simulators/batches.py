"""States and noises of a NumPy simulator: arrays, or dictionaries, tuples and dataclasses of them,
with a row for each copy; and the same as a pytree of JAX."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

_KINDS = {"f": "real numbers", "i": "whole numbers", "u": "whole numbers", "b": "booleans"}


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One array of a batch."""

    path: str
    """How the user reaches it, such as "state['price']"."""
    shape: tuple[int, ...]
    """Of one row."""
    dtype: np.dtype
    """The type that the user made."""

    @property
    def jax(self) -> jax.ShapeDtypeStruct:
        """Of one row, in JAX: 32 bits, unless the caller has switched on 64."""
        return jax.ShapeDtypeStruct(self.shape, jax.dtypes.canonicalize_dtype(self.dtype))

    @property
    def size(self) -> int:
        """How many numbers a row has."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def real(self) -> bool:
        """Whether it has derivatives."""
        return self.dtype.kind == "f"

    def check(self, value: Any, rows: int, call: str) -> np.ndarray:
        """`value` as an array with so many rows, or an error."""
        array = np.asarray(value)
        if array.shape != (rows, *self.shape):
            hint = ""
            if array.shape == (rows, rows):
                hint = " Actions of a Box of shape (1,) have shape (count, 1): use action[:, 0]."
            raise ValueError(
                f"{call} must give `{self.path}` of shape {(rows, *self.shape)}, a row for each of "
                f"the {rows} copies, got {array.shape}.{hint}"
            )
        kind = array.dtype.kind
        if kind not in "fiub" or (self.dtype.kind == "b") != (kind == "b"):
            raise ValueError(
                f"{call} must give `{self.path}` as {_KINDS[self.dtype.kind]}, got {array.dtype}."
            )
        if self.dtype.kind in "iu" and kind == "f":
            raise ValueError(
                f"{call} must give `{self.path}` as whole numbers, as it began, got "
                f"{array.dtype}. Begin with real numbers if it becomes real."
            )
        return array


class Layout:
    """How a batch is built of arrays.

    The pytree has the user's dictionaries and tuples; dataclasses become dictionaries.
    """

    def __init__(self, example: Any, rows: int, name: str, call: str):
        """The layout of `example`, which must have so many rows.

        Arguments:
            example: what the user's function gave.
            rows: how many rows it was asked for.
            name: what to call it, such as "state".
            call: the function, such as "`initial_state` of Market".
        """
        self.leaves: list[Leaf] = []
        self._tree = self._read(example, rows, name, call)
        """Of numbers of leaves, in the user's containers' layout."""
        self._rebuild = _rebuilder(example)
        self._structure = jax.tree.structure(self._tree)

    def _read(self, value: Any, rows: int, path: str, call: str) -> Any:
        if dataclasses.is_dataclass(value) or isinstance(value, dict | tuple | list):
            return _map_children(value, path, lambda x, at: self._read(x, rows, at, call))
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise ValueError(
                f"{call} must give `{path}` as an array of numbers, or a dictionary, tuple or "
                f"dataclass of such arrays, got {value!r}."
            )
        if array.shape[:1] != (rows,):
            raise ValueError(
                f"{call} must give `{path}` with a row for each copy: asked for {rows} copies, its "
                f"shape is {array.shape}. What all copies share belongs into the simulator; what "
                f"is the same for all at first, such as the time, is np.zeros(count)."
            )
        self.leaves.append(Leaf(path, array.shape[1:], array.dtype))
        return len(self.leaves) - 1

    def flatten(self, value: Any, rows: int, call: str) -> list[np.ndarray]:
        """The arrays of a batch, each with so many rows, or an error if it is built otherwise."""
        leaves: dict[int, np.ndarray] = {}
        self._collect(value, self._tree, leaves, rows, call)
        return [leaves[i] for i in range(len(self.leaves))]

    def _collect(self, value: Any, tree: Any, leaves: dict, rows: int, call: str) -> None:
        if isinstance(tree, int):
            leaves[tree] = self.leaves[tree].check(value, rows, call)
            return
        children = dict(_children(value)) if _is_container(value) else {}
        wanted = dict(_children(tree))
        if children.keys() != wanted.keys():
            raise ValueError(
                f"{call} must give what the first one was built of, {list(wanted)}, got "
                f"{list(children) if children else type(value).__name__}."
            )
        for key, child in wanted.items():
            self._collect(children[key], child, leaves, rows, call)

    def unflatten(self, arrays: list[np.ndarray]) -> Any:
        """The batch in the user's containers."""
        return self._rebuild(iter(arrays))

    def tree(self, leaves: list[Any]) -> Any:
        """The pytree with these leaves."""
        order = jax.tree.leaves(self._tree)
        return jax.tree.unflatten(self._structure, [leaves[i] for i in order])

    def arrays(self, tree: Any) -> list[Any]:
        """The leaves of the pytree, in our order."""
        order = jax.tree.leaves(self._tree)
        by_number = dict(zip(order, self._structure.flatten_up_to(tree), strict=True))
        return [by_number[i] for i in range(len(order))]


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | tuple | list) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )


def _children(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, tuple | list):
        yield from enumerate(value)
    else:
        yield from ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))


def _map_children(value: Any, path: str, function: Callable[[Any, str], Any]) -> Any:
    """The children of a container under `function`: a dictionary of them, or a tuple."""
    if isinstance(value, dict):
        return {key: function(child, f"{path}[{key!r}]") for key, child in value.items()}
    if isinstance(value, tuple | list):
        names = getattr(value, "_fields", None)
        at = [f"{path}.{name}" for name in names] if names else None
        at = at or [f"{path}[{i}]" for i in range(len(value))]
        return tuple(map(function, value, at))
    return {key: function(child, f"{path}.{key}") for key, child in _children(value)}


def _rebuilder(example: Any) -> Callable[[Iterator[np.ndarray]], Any]:
    """From arrays, in order, to the containers of `example`."""
    if not _is_container(example):
        return next
    parts = {key: _rebuilder(child) for key, child in _children(example)}
    kind = type(example)

    def rebuild(arrays: Iterator[np.ndarray]) -> Any:
        built = {key: part(arrays) for key, part in parts.items()}
        if isinstance(example, dict):
            return built
        if isinstance(example, tuple | list):
            return kind(*built.values()) if hasattr(kind, "_fields") else kind(built.values())
        return kind(**built)

    return rebuild
