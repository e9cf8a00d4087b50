"""What each primitive of JAX is in ONNX."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from downside.train.export.graph import ExportError, Graph, Value, is_batch

UNARY: Mapping[str, str] = {
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
"""Primitives of one argument, each with its ONNX node."""

BINARY: Mapping[str, str] = {
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
"""Primitives of two arguments, each with its ONNX node."""

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
    values, _ = graph.add_node(
        "TopK", 2, arguments[0], _integers(shape[axis]), axis=int(axis), largest=0, sorted=1
    )
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


WRITERS: Mapping[str, Writer] = {
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
"""All others, each with the function that adds its nodes and gives its output or outputs."""
