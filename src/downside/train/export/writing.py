"""From a traced JAX function to an ONNX graph, for functions of rows.

A policy is traced for a batch of an odd number of rows, and each primitive becomes a few ONNX
nodes. What does not depend on the inputs is computed at once. Sizes that are multiples of the odd
number are those of the batch, which stays free in the graph.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from downside.train.export.graph import ExportError, Graph, Value, is_batch
from downside.train.export.primitives import BINARY, UNARY, WRITERS

_MAX_UNROLLED = 64
"""Rounds of a loop that are written one after the other, at most."""

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
    if name in UNARY or name in BINARY:
        return [graph.add(UNARY.get(name) or BINARY[name], *arguments)]
    writer = WRITERS.get(name)
    if writer is None:
        raise ExportError(
            f"The network cannot be exported: it uses `{name}`, which has no counterpart here. "
            "Dense layers, convolutions and element-wise functions can be exported."
        )
    result = writer(graph, equation, arguments)
    return result if isinstance(result, list) else [result]


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
