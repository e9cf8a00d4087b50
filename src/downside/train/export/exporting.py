"""A policy as an ONNX file: it runs with onnxruntime alone, in any language that has one."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from downside._files import atomic_write
from downside._machine import versions
from downside.agents.actor import Actor, network_at
from downside.agents.actor_critic_learner import ActorCriticLearner
from downside.agents.algorithm import AbstractDialAlgorithm, OuterVariable
from downside.agents.quantile_learner import QuantileLearner
from downside.envs import Memory
from downside.envs.memory import append_memory
from downside.ops import greedy, masked
from downside.train.export.graph import ROWS, ExportError, Graph, Value
from downside.train.export.writing import write
from downside.train.policy import Policy

if TYPE_CHECKING:
    from downside.train.agent import Agent

_OPSET, _IR_VERSION = 18, 10
_CHECKED_ROWS = 256
_TOLERANCE = 1e-4
"""Relative to the size of the scores or actions; float32 has seven digits."""


def export(agent: "Agent", path: str | Path) -> Path:
    """Writes the policy of an agent as an ONNX file, and checks it on random inputs.

    Inputs, all with a first axis of any length: `observation`, flat, in float32; `s` and `c`, the
    discounted return so far and the discount of the next reward; `past`, the last steps, if the
    agent sees any. May be left out: `mask`, which actions are legal, if they are discrete; of a
    dial `b` and `kappa`, where it stands.
    Outputs: `action`, as the environment takes it, and for discrete actions `scores`, of which the
    action has the highest. The metadata `downside` has γ and what else a program needs to know.
    """
    return export_policy(agent.policy, _about(agent, agent.policy), path)


def export_policy(policy: Policy, about: dict[str, Any], path: str | Path) -> Path:
    """Writes a policy with what is known `about` it."""
    onnx, path = _imported("onnx"), Path(path)
    path = path if path.suffix else path.with_suffix(".onnx")
    model = _model(onnx, policy, about)
    _check(model, policy)
    with atomic_write(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
    return path


def _imported(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise ExportError(
            f"Exporting a policy needs {name}: pip install 'downside[onnx]'."
        ) from error


def _about(agent: "Agent", policy: Policy) -> dict[str, Any]:
    """What a program needs to know that runs the policy."""
    backend = policy.backend
    return {
        "agent": agent.name,
        "env": str(agent.env_spec),
        "risk": str(agent.risk),
        "gamma": float(agent.settings.gamma),
        "observation_size": backend.shown_size,
        "history_length": int(getattr(agent.settings, "history_length", 0)),
        "num_actions": backend.num_actions,
        "first_action": backend.first_action,
        **versions("downside"),
    }


# --- the function -------------------------------------------------------------------------------


def decide(
    policy: Policy,
    observation: Float[Array, " d"],
    memory: Memory,
    mask: Bool[Array, " A"],
    outer: OuterVariable,
) -> dict[str, Array]:
    """The action and the scores for one observation, without loops over batches."""
    learner, networks, backend = policy.learner, policy.best.networks, policy.backend
    if isinstance(learner, QuantileLearner):
        scores = learner.scores(networks, observation, memory, outer)
    elif isinstance(networks, Actor):
        actor, head = networks, learner.head  # pyright: ignore[reportAttributeAccessIssue]
        inputs = learner.algorithm.network_input(observation, memory, outer)
        outputs = network_at(actor.networks, actor.step(observation, memory))(inputs)
        if not backend.num_actions:
            # Elsewhere tanh may be rounded beyond 1.
            return {"action": jnp.clip(head.action(outputs, mask), head.low, head.high)}
        scores = outputs if head.low is None else -head.distances(head.point(outputs))
    elif isinstance(learner, ActorCriticLearner):
        head = learner.head
        scores = networks.actor(learner.algorithm.network_input(observation, memory, outer))
        if not backend.num_actions:
            everything = jnp.ones(head.mask_size, bool)
            return {"action": head.action(head.mode(scores, everything))}
    else:
        raise ExportError(f"{learner.algorithm.name} has no scores to export.")
    action = greedy(scores, mask).astype(jnp.int32) + backend.first_action
    return {"action": action, "scores": masked(scores, mask)}


def _defaults(policy: Policy) -> dict[str, np.ndarray]:
    """Inputs that may be left out: where the dial stands, and which actions are legal."""
    defaults: dict[str, np.ndarray] = {}
    if isinstance(policy.learner.algorithm, AbstractDialAlgorithm):
        position = policy.best.outer.position
        defaults["b"] = np.asarray(position.target, np.float32).reshape(1)
        defaults["kappa"] = np.asarray(position.ratio, np.float32).reshape(1)
    if policy.backend.num_actions:
        defaults["mask"] = np.ones((1, policy.backend.num_actions), bool)
    return defaults


def _model(onnx: Any, policy: Policy, about: dict[str, Any]) -> Any:
    backend = policy.backend
    size, shown = backend.observation_space.shape[0], backend.shown_size
    names = ["observation", "s", "c", *(["past"] if size > shown else [])]
    shapes: dict[str, tuple[int, ...]] = {"observation": (shown,), "s": (), "c": ()}
    shapes["past"] = (size - shown,)
    rows = {name: jax.ShapeDtypeStruct((ROWS, *shapes[name]), jnp.float32) for name in names}
    actions, defaults = backend.num_actions, _defaults(policy)
    for name, default in defaults.items():
        rows[name] = jax.ShapeDtypeStruct((ROWS, *default.shape[1:]), default.dtype)

    def of_rows(inputs: dict[str, Array]) -> dict[str, Array]:
        def of_row(row: dict[str, Array]) -> dict[str, Array]:
            observation, outer = row["observation"], policy.best.outer
            if "past" in row:
                observation = jnp.concatenate([observation, row["past"]])
            if "b" in row:
                outer = eqx.tree_at(
                    lambda o: (o.position.target, o.position.ratio),
                    outer,
                    (row["b"], row["kappa"]),
                )
            mask = row.get("mask", jnp.ones(0, bool))
            return decide(policy, observation, Memory(row["s"], row["c"]), mask, outer)

        return jax.vmap(of_row)(inputs)

    traced = jax.make_jaxpr(of_rows)(rows)
    graph = Graph("observation")
    values: list[Value] = []
    for name in sorted(rows):  # as pytrees have them
        shape = graph.shape(rows[name].shape) if name in defaults else None
        values.append(name if shape is None else graph.add("Expand", name, shape))
    results = write(graph, traced.jaxpr, traced.consts, values)
    outputs = ["action", "scores"] if actions else ["action"]
    for name, result in zip(outputs, results, strict=True):
        value = graph.cast(result, np.int64) if actions and name == "action" else result
        graph.nodes.append(onnx.helper.make_node("Identity", [graph.named(value)], [name]))
    number, tensor = onnx.TensorProto, onnx.helper.make_tensor_value_info
    inputs = [tensor(name, number.FLOAT, ["batch", *shapes[name]]) for name in names]
    for name, default in defaults.items():
        # An initializer of the same name is the value of an input that is left out.
        kind = number.BOOL if default.dtype == bool else number.FLOAT
        inputs.append(tensor(name, kind, [f"{name}_batch", *default.shape[1:]]))
        graph.initializers.append(onnx.numpy_helper.from_array(default, name))
    if actions:
        described = [
            tensor("action", number.INT64, ["batch"]),
            tensor("scores", number.FLOAT, ["batch", actions]),
        ]
    else:
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(traced.out_avals[0].dtype))
        described = [tensor("action", kind, ["batch", *traced.out_avals[0].shape[1:]])]
    whole = onnx.helper.make_graph(
        graph.nodes, "policy", inputs, described, initializer=graph.initializers
    )
    model = onnx.helper.make_model(
        whole,
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="downside",
        producer_version=about["downside"],
    )
    onnx.helper.set_model_props(model, {"downside": json.dumps(about)})
    onnx.checker.check_model(model, full_check=True)
    return model


# --- the check ----------------------------------------------------------------------------------


def random_inputs(policy: Policy, count: int, seed: int) -> dict[str, np.ndarray]:
    """Inputs of an exported policy, drawn at random from where observations and returns may be."""
    generator, backend = np.random.default_rng(seed), policy.backend
    box, shown = backend.observation_space, backend.shown_size
    shape = (count, *box.shape)
    bounded = (np.abs(box.low) < 1e3) & (np.abs(box.high) < 1e3)
    low, high = np.where(bounded, box.low, 0.0), np.where(bounded, box.high, 1.0)
    inside = low + (high - low) * generator.random(shape)
    rows = np.where(bounded, inside, generator.normal(size=shape)).astype(np.float32)
    gamma = policy.learner.settings.gamma
    inputs = {
        "observation": rows[:, :shown],
        "s": (3.0 * generator.normal(size=count)).astype(np.float32),
        "c": (gamma ** generator.integers(0, 20, count)).astype(np.float32),
    }
    if rows.shape[1] > shown:
        inputs["past"] = rows[:, shown:]
    return inputs


def expected_outputs(policy: Policy, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the agent itself does for these inputs."""
    rows = np.concatenate(
        [inputs["observation"], *([inputs["past"]] if "past" in inputs else [])], axis=1
    )
    rows = append_memory(rows, Memory(inputs["s"], inputs["c"]), policy.memory_input)
    outputs = {"action": policy.actions_of_rows(rows)}
    if isinstance(policy.learner, QuantileLearner):
        outputs["scores"] = policy.scores_of_rows(rows)
    return outputs


def _check(model: Any, policy: Policy) -> None:
    runtime = _imported("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # inputs that may be left out are meant to be there
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    inputs = random_inputs(policy, _CHECKED_ROWS, seed=0)
    names = [output.name for output in session.get_outputs()]
    got = dict(zip(names, session.run(None, inputs), strict=True))
    differences(got, expected_outputs(policy, inputs))


def differences(got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> int:
    """Raises unless outputs are equal up to rounding; counts actions that differ between scores
    that are equal up to rounding."""
    if "scores" not in got:
        size = max(1.0, float(np.abs(expected["action"]).max()))
        if not np.allclose(got["action"], expected["action"], atol=_TOLERANCE * size):
            raise ExportError("The exported actions are not those of the agent.")
        return 0
    scores = got["scores"]
    size = max(1e-6, float(np.abs(scores).max()))
    if "scores" in expected and not np.allclose(
        scores, expected["scores"], rtol=_TOLERANCE, atol=_TOLERANCE * size
    ):
        raise ExportError("The exported scores are not those of the agent.")
    differ = np.flatnonzero(got["action"] != expected["action"])
    best = scores.max(axis=1)
    offset = got["action"] - scores.argmax(axis=1)  # the number of the first action
    theirs = scores[differ, (expected["action"] - offset)[differ]]
    if (best[differ] - theirs > _TOLERANCE * size).any():
        raise ExportError("The exported actions are not those of the agent.")
    return len(differ)
