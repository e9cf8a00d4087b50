"""An ONNX graph under construction, in which the number of rows stays free."""

from collections.abc import Sequence
from typing import Any

import numpy as np

ROWS = 10_007
"""Rows of the batch that is traced: a prime number that no network has as a size."""

Value = str | np.ndarray
"""A value of the graph by its name, or a constant."""


class ExportError(RuntimeError):
    """The policy cannot be written as an ONNX graph, or the graph does not act as the agent."""


class Graph:
    """Nodes and constants of an ONNX graph under construction."""

    def __init__(self, first_input: str):
        from onnx import helper, numpy_helper

        self._helper, self._to_tensor = helper, numpy_helper.from_array
        self.nodes: list[Any] = []
        self.constants: dict[tuple, str] = {}
        self.initializers: list[Any] = []
        self._count = 0
        self._first_input, self._batch = first_input, ""

    def _new_name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def constant(self, array: Any) -> str:
        """The name of a constant; equal ones share it."""
        array = np.asarray(array)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = name = f"c{len(self.constants)}"
            self.initializers.append(self._to_tensor(array, name))
        return self.constants[key]

    def named(self, value: Value) -> str:
        """The name of a value."""
        return value if isinstance(value, str) else self.constant(value)

    def add(self, kind: str, *inputs: Value, **attributes: Any) -> str:
        """The name of the output of a new node."""
        return self.add_node(kind, 1, *inputs, **attributes)[0]

    def add_node(self, kind: str, outputs: int, *inputs: Value, **attributes: Any) -> list[str]:
        """The names of the outputs of a new node, which has so many."""
        produced = [self._new_name() for _ in range(outputs)]
        names = [self.named(value) for value in inputs]
        self.nodes.append(self._helper.make_node(kind, names, produced, **attributes))
        return produced

    def cast(self, value: Value, dtype: Any) -> str:
        """The value in another type."""
        kind = self._helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.add("Cast", value, to=kind)

    def shape(self, sizes: Sequence[int]) -> Value:
        """A shape, in which the number of rows is known only when the graph runs."""
        if not any(is_batch(size) for size in sizes):
            return np.array(sizes, np.int64)
        if not self._batch:
            self._batch = self.add("Shape", self._first_input, start=0, end=1)
        parts: list[Value] = []
        for size in sizes:
            factor = size // ROWS if is_batch(size) else 1
            rows = self._batch if is_batch(size) else np.array([size], np.int64)
            parts.append(
                rows if factor == 1 else self.add("Mul", rows, np.array([factor], np.int64))
            )
        return self.add("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]


def is_batch(size: int) -> bool:
    """Whether a size is that of the batch, or a multiple of it."""
    return size > 0 and size % ROWS == 0
