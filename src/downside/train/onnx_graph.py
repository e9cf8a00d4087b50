"""From a traced JAX function to an ONNX graph, for functions of rows.

A policy is traced for a batch of an odd number of rows, and each primitive becomes a few ONNX
nodes. What does not depend on the inputs is computed at once. Sizes that are multiples of the odd
number are those of the batch, which stays free in the graph.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

ROWS = 10_007
"""Rows of the batch that is traced: a prime number that no network has as a size."""

Value = str | np.ndarray
"""A value of the graph by its name, or a constant."""

_MAX_UNROLLED = 64


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

    def new_name(self) -> str:
        """A name that no value has yet."""
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
        output = self.new_name()
        names = [self.named(value) for value in inputs]
        self.nodes.append(self._helper.make_node(kind, names, [output], **attributes))
        return output

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


def write(
    graph: Graph, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Value]
) -> list[Value]:
    """Adds the nodes of a jaxpr to the graph, and returns its outputs."""
    values: dict[Any, Value] = {}

    def of(variable: Any) -> Value:
        if hasattr(variable, "val"):
            return np.asarray(variable.val, variable.aval.dtype)
        return values[variable]

    values.update(zip(jaxpr.constvars, map(np.asarray, constants), strict=True))
    values.update(zip(jaxpr.invars, inputs, strict=True))
    for equation in jaxpr.eqns:
        arguments = [of(variable) for variable in equation.invars]
        outputs = _write_equation(graph, equation, arguments)
        values.update(zip(equation.outvars, outputs, strict=True))
    return [of(variable) for variable in jaxpr.outvars]


def _write_equation(graph: Graph, equation: Any, arguments: list[Value]) -> list[Value]:
    name, parameters = equation.primitive.name, equation.params
    if name in _CALLS:
        inner = parameters[_CALLS[name]]
        return write(graph, getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), arguments)
    if name == "scan":
        return _scan(graph, equation, arguments)
    if name == "cond":
        return _cond(graph, parameters, arguments)
    if name in ("stop_gradient", "copy", "copy_p", "optimization_barrier", "reduce_precision"):
        return arguments
    sizes = [size for variable in equation.outvars for size in variable.aval.shape]
    known = all(isinstance(argument, np.ndarray) for argument in arguments)
    if known and not any(is_batch(size) for size in sizes):
        with jax.ensure_compile_time_eval():
            result = equation.primitive.bind(*map(jax.numpy.asarray, arguments), **parameters)
        many = equation.primitive.multiple_results
        return [np.asarray(each) for each in (result if many else [result])]
    if name in _UNARY or name in _BINARY:
        return [graph.add(_UNARY.get(name) or _BINARY[name], *arguments)]
    writer = _WRITERS.get(name)
    if writer is None:
        raise ExportError(
            f"The network cannot be exported: it uses `{name}`, which has no counterpart here. "
            "Dense layers, convolutions and element-wise functions can be exported."
        )
    result = writer(graph, equation, arguments)
    return result if isinstance(result, list) else [result]


_CALLS = {
    "pjit": "jaxpr",
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "custom_vmap_call": "call",
}
"""Primitives that call another jaxpr, and the parameter that has it."""

_UNARY = {
    "neg": "Neg",
    "exp": "Exp",
    "log": "Log",
    "tanh": "Tanh",
    "sqrt": "Sqrt",
    "abs": "Abs",
    "sign": "Sign",
    "floor": "Floor",
    "ceil": "Ceil",
    "erf": "Erf",
    "logistic": "Sigmoid",
    "sin": "Sin",
    "cos": "Cos",
    "not": "Not",
    "round": "Round",
}

_BINARY = {
    "add": "Add",
    "add_any": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "max": "Max",
    "min": "Min",
    "pow": "Pow",
    "and": "And",
    "or": "Or",
    "xor": "Xor",
    "eq": "Equal",
    "lt": "Less",
    "gt": "Greater",
    "le": "LessOrEqual",
    "ge": "GreaterOrEqual",
}

# --- primitives that take a few nodes -----------------------------------------------------------

Writer = Callable[[Graph, Any, list[Value]], Value | list[Value]]


def _integers(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def _out(equation: Any) -> Any:
    return equation.outvars[0].aval


def _reshape(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    return _with_shape(graph, arguments[0], _out(equation).shape)


def _with_shape(graph: Graph, value: Value, shape: Sequence[int]) -> Value:
    if sum(map(is_batch, shape)) == 1:  # the one that is left
        target: Value = _integers(*(-1 if is_batch(size) else size for size in shape))
    else:
        target = graph.shape(shape)
    return graph.add("Reshape", value, target)


def _broadcast(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
    before = equation.invars[0].aval.shape
    spread = [1] * len(shape)
    for size, place in zip(before, places, strict=True):
        spread[place] = size
    value = arguments[0]
    if tuple(spread) != tuple(before):
        value = _with_shape(graph, value, spread)
    return (
        value if tuple(spread) == tuple(shape) else graph.add("Expand", value, graph.shape(shape))
    )


def _slice(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    parameters, shape = equation.params, equation.invars[0].aval.shape
    ends = [
        np.iinfo(np.int64).max if end == size else end
        for end, size in zip(parameters["limit_indices"], shape, strict=True)
    ]
    strides = parameters["strides"] or [1] * len(shape)
    starts = parameters["start_indices"]
    return graph.add(
        "Slice",
        arguments[0],
        _integers(*starts),
        _integers(*ends),
        _integers(*range(len(shape))),
        _integers(*strides),
    )


def _reverse(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    axes = equation.params["dimensions"]
    count, last = len(axes), np.iinfo(np.int64).min
    return graph.add(
        "Slice",
        arguments[0],
        _integers(*[-1] * count),
        _integers(*[last] * count),
        _integers(*axes),
        _integers(*[-1] * count),
    )


def _pad(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    low, high, inside = zip(*equation.params["padding_config"], strict=True)
    if any(inside) or min((*low, *high)) < 0:
        raise ExportError("The network cannot be exported: it pads inside an array.")
    return graph.add("Pad", arguments[0], _integers(*low, *high), arguments[1])


def _reduce(kind: str) -> Writer:
    def writer(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
        axes = _integers(*equation.params["axes"])
        if kind in ("All", "Any"):
            whole = graph.cast(arguments[0], np.int32)
            node = "ReduceMin" if kind == "All" else "ReduceMax"
            return graph.cast(graph.add(node, whole, axes, keepdims=0), bool)
        return graph.add(kind, arguments[0], axes, keepdims=0)

    return writer


def _arg(kind: str) -> Writer:
    def writer(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
        (axis,) = equation.params["axes"]
        place = graph.add(kind, arguments[0], axis=int(axis), keepdims=0)
        return graph.cast(place, _out(equation).dtype)

    return writer


def _dot(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    (left_axes, right_axes), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = (variable.aval.shape for variable in equation.invars)
    plain = len(right) == 2 and len(left) >= 2 and not left_batch
    if plain and tuple(left_axes) == (len(left) - 1,) and tuple(right_axes) == (0,):
        return graph.add("MatMul", *arguments)
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    left_names = [next(letters) for _ in left]
    right_names = [next(letters) for _ in right]
    for i, j in zip((*left_axes, *left_batch), (*right_axes, *right_batch), strict=True):
        right_names[j] = left_names[i]
    batch = [left_names[i] for i in left_batch]
    free = [n for i, n in enumerate(left_names) if i not in (*left_axes, *left_batch)]
    free += [n for i, n in enumerate(right_names) if i not in (*right_axes, *right_batch)]
    formula = f"{''.join(left_names)},{''.join(right_names)}->{''.join(batch + free)}"
    return graph.add("Einsum", *arguments, equation=formula)


def _select(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    which, *cases = arguments
    if len(cases) != 2:
        raise ExportError("The network cannot be exported: it selects among more than two arrays.")
    if equation.invars[0].aval.dtype != bool:
        which = graph.cast(which, bool)
    return graph.add("Where", which, cases[1], cases[0])


def _sort(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    axis, shape = equation.params["dimension"], _out(equation).shape
    if len(arguments) != 1 or is_batch(shape[axis]):
        raise ExportError("The network cannot be exported: it sorts several arrays together.")
    values, places = graph.new_name(), graph.new_name()
    node = graph._helper.make_node(
        "TopK",
        [graph.named(arguments[0]), graph.constant(_integers(shape[axis]))],
        [values, places],
        axis=int(axis),
        largest=0,
        sorted=1,
    )
    graph.nodes.append(node)
    return values


def _gather(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    """Rows of an array by their numbers: `array[index]`."""
    parameters, operand = equation.params, equation.invars[0].aval.shape
    numbers = parameters["dimension_numbers"]
    out, kept = len(_out(equation).shape), len(operand) - len(numbers.collapsed_slice_dims)
    rows_only = (
        tuple(numbers.collapsed_slice_dims) in ((), (0,))
        and 0 in numbers.start_index_map
        and not numbers.operand_batching_dims
        and tuple(parameters["slice_sizes"]) == (1, *operand[1:])
        and tuple(numbers.offset_dims) == tuple(range(out - kept, out))
    )
    if not rows_only:
        raise ExportError("The network cannot be exported: it picks entries that are not rows.")
    # Whole rows begin at 0 along all other axes, whatever the rest of the index says.
    place = list(numbers.start_index_map).index(0)
    which = _integers(place), _integers(place + 1), _integers(-1)
    index = graph.add("Squeeze", graph.add("Slice", arguments[1], *which), _integers(-1))
    dtype = equation.invars[1].aval.dtype
    index = graph.add("Max", index, np.zeros((), dtype))
    index = graph.add("Min", index, np.array(operand[0] - 1, dtype))
    rows = graph.add("Gather", arguments[0], index, axis=0)
    if numbers.collapsed_slice_dims:
        return rows
    return graph.add("Unsqueeze", rows, _integers(out - kept))


def _convolve(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    parameters = equation.params
    left, right, out = parameters["dimension_numbers"]
    if any(size != 1 for size in parameters["lhs_dilation"]):
        raise ExportError("The network cannot be exported: it has a transposed convolution.")
    picture = graph.add("Transpose", arguments[0], perm=[int(i) for i in left])
    kernel = graph.add("Transpose", arguments[1], perm=[int(i) for i in right])
    low, high = zip(*parameters["padding"], strict=True)
    result = graph.add(
        "Conv",
        picture,
        kernel,
        strides=[int(i) for i in parameters["window_strides"]],
        dilations=[int(i) for i in parameters["rhs_dilation"]],
        pads=[int(i) for i in (*low, *high)],
        group=int(parameters["feature_group_count"]),
    )
    return graph.add("Transpose", result, perm=[int(i) for i in np.argsort(out)])


def _stack(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    axis = equation.params["axis"]
    parts = [graph.add("Unsqueeze", argument, _integers(axis)) for argument in arguments]
    return graph.add("Concat", *parts, axis=int(axis))


def _pieces(graph: Graph, value: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    ends = np.cumsum(sizes)
    return [
        graph.add("Slice", value, _integers(end - size), _integers(end), _integers(axis))
        for end, size in zip(ends, sizes, strict=True)
    ]


def _unstack(graph: Graph, equation: Any, arguments: list[Value]) -> list[Value]:
    axis = equation.params["axis"]
    sizes = [1] * len(equation.outvars)
    pieces = _pieces(graph, arguments[0], axis, sizes)
    return [graph.add("Squeeze", piece, _integers(axis)) for piece in pieces]


def _clamp(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    del equation
    low, value, high = arguments
    return graph.add("Min", graph.add("Max", value, low), high)


def _power(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    return graph.add("Pow", arguments[0], np.array(equation.params["y"], _out(equation).dtype))


def _is_finite(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    del equation
    strange = graph.add("Or", graph.add("IsInf", *arguments), graph.add("IsNaN", *arguments))
    return graph.add("Not", strange)


def _cumulative(graph: Graph, equation: Any, arguments: list[Value]) -> Value:
    axis, reverse = equation.params["axis"], equation.params["reverse"]
    return graph.add("CumSum", arguments[0], np.array(axis, np.int64), reverse=int(reverse))


def _unit(equation: Any) -> np.ndarray:
    return np.ones((), _out(equation).dtype)


_WRITERS: Mapping[str, Writer] = {
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "transpose": lambda g, e, a: g.add(
        "Transpose", *a, perm=[int(i) for i in e.params["permutation"]]
    ),
    "slice": _slice,
    "rev": _reverse,
    "pad": _pad,
    "stack": _stack,
    "unstack": _unstack,
    "split": lambda g, e, a: _pieces(g, a[0], e.params["axis"], e.params["sizes"]),
    "tile": lambda g, e, a: g.add("Tile", a[0], _integers(*e.params["reps"])),
    "concatenate": lambda g, e, a: g.add("Concat", *a, axis=int(e.params["dimension"])),
    "convert_element_type": lambda g, e, a: g.cast(a[0], e.params["new_dtype"]),
    "reduce_sum": _reduce("ReduceSum"),
    "reduce_max": _reduce("ReduceMax"),
    "reduce_min": _reduce("ReduceMin"),
    "reduce_prod": _reduce("ReduceProd"),
    "reduce_and": _reduce("All"),
    "reduce_or": _reduce("Any"),
    "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"),
    "dot_general": _dot,
    "select_n": _select,
    "sort": _sort,
    "gather": _gather,
    "conv_general_dilated": _convolve,
    "clamp": _clamp,
    "integer_pow": _power,
    "is_finite": _is_finite,
    "cumsum": _cumulative,
    "ne": lambda g, _, a: g.add("Not", g.add("Equal", *a)),
    "square": lambda g, _, a: g.add("Mul", a[0], a[0]),
    "rsqrt": lambda g, _, a: g.add("Reciprocal", g.add("Sqrt", *a)),
    "log1p": lambda g, e, a: g.add("Log", g.add("Add", a[0], _unit(e))),
    "expm1": lambda g, e, a: g.add("Sub", g.add("Exp", *a), _unit(e)),
    "exp2": lambda g, e, a: g.add("Pow", np.array(2, _out(e).dtype), a[0]),
    "rem": lambda g, _, a: g.add("Mod", *a, fmod=1),
}

# --- loops and branches -------------------------------------------------------------------------


def _scan(graph: Graph, equation: Any, arguments: list[Value]) -> list[Value]:
    """A loop of a few rounds, one after the other."""
    parameters = equation.params
    inner, rounds = parameters["jaxpr"], parameters["length"]
    first, second = parameters["num_consts"], parameters["num_consts"] + parameters["num_carry"]
    if (
        rounds > _MAX_UNROLLED
        or len(arguments) > second
        or parameters["num_carry"] < len(equation.outvars)
    ):
        raise ExportError("The network cannot be exported: it has a loop over an array.")
    constants, carry = arguments[:first], arguments[first:]
    for _ in range(rounds):
        carry = write(graph, inner.jaxpr, inner.consts, [*constants, *carry])
    return carry


def _cond(graph: Graph, parameters: Any, arguments: list[Value]) -> list[Value]:
    """Both branches are computed, and one is taken."""
    which, *inputs = arguments
    if isinstance(which, np.ndarray):
        branch = parameters["branches"][int(which)]
        return write(graph, branch.jaxpr, branch.consts, inputs)
    if len(parameters["branches"]) != 2:
        raise ExportError("The network cannot be exported: it has more than two branches.")
    no, yes = (
        write(graph, branch.jaxpr, branch.consts, inputs) for branch in parameters["branches"]
    )
    chosen = graph.cast(which, bool)
    return [graph.add("Where", chosen, y, n) for y, n in zip(yes, no, strict=True)]
