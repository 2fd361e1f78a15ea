"""Compares exported models with the policies that they come from, and their graphs with what importers read alike."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from trainer_service.running.policy import Policy

ROWS = 20

KNOWN_OPERATORS = frozenset({
    "Add", "ArgMax", "Cast", "Clip", "Concat", "Constant", "Conv", "Div", "Exp", "Gemm", "Identity", "LSTM",
    "LeakyRelu", "Less", "Log", "MatMul", "MaxPool", "Mul", "Multinomial", "Pow", "RandomNormalLike", "ReduceMean",
    "ReduceSum", "Relu", "Reshape", "Sigmoid", "Slice", "Softmax", "Sqrt", "Squeeze", "Sub", "Tanh", "Transpose",
    "Unsqueeze",
    # beyond those of ML-Agents' own models: without attributes or of vectors, so there is one way to read them
    "Abs", "Flatten", "RandomUniformLike",
})  # fmt: skip
"""Operators that every importer reads alike: whatever takes a shape while the model runs is not among them."""


def assert_importers_read_alike(model: onnx.ModelProto) -> None:
    """Asserts that a graph has none of the forms that Barracuda, Sentis or Inference Engine read differently."""
    graph = model.graph
    assert {node.op_type for node in graph.node} <= KNOWN_OPERATORS
    initializers = {each.name for each in graph.initializer}
    constants = initializers | {node.output[0] for node in graph.node if node.op_type == "Constant"}
    outputs = {each.name for each in graph.output}
    reads = Counter(name for node in graph.node for name in node.input if name in initializers)
    assert dict(reads) == dict.fromkeys(initializers, 1), "an initializer is read more than once, or never"
    assert {each.data_type for each in graph.initializer} <= {onnx.TensorProto.FLOAT}
    ranks = {
        each.name: len(each.type.tensor_type.shape.dim)
        for each in onnx.shape_inference.infer_shapes(model).graph.value_info
        if each.type.tensor_type.HasField("shape")
    }
    for node in graph.node:
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        match node.op_type:
            case "Identity":
                assert node.output[0] in outputs, f"{node.name} stands between a constant and its reader"
            case "Gemm" | "Conv" | "LSTM":
                assert set(node.input[1:3]) <= initializers, f"{node.name} has weights that are computed"
            case "Reshape":
                assert node.input[1] in constants, f"{node.name} has a shape that is computed"
            case "Softmax":
                # Before operator set 13 all axes from this one on are one, afterwards it is this one alone.
                last = ranks.get(node.output[0], attributes["axis"] + 1) - 1
                assert attributes["axis"] == last
            case "Transpose":
                assert attributes["perm"] != [0, 2, 3, 1], "Unity's engines are known to get this one wrong"


def assert_model_acts_as_policy(path: Path, policy: Policy, *, draws: bool = True) -> None:
    """Asserts a graph that importers read alike, and equal actions for random observations of two agents a group, with
    all and with some actions allowed.

    With memory, in every step of a short episode, and equal memories after it. draws: whether the policy draws its
    actions; if not, what the model calls drawn must be the policy's action too.
    """
    assert_importers_read_alike(onnx.load(path))
    session, rng = onnxruntime.InferenceSession(path), np.random.default_rng(1)
    actions = policy.spec.action_spec
    own = [
        rng.normal(size=(ROWS, *sensor.shape)).astype(np.float32) for sensor in policy.spec.observation_specs
    ]
    for sensor, seen in zip(policy.spec.observation_specs, own, strict=True):
        if sensor.is_entities:  # some are absent, and one agent sees none
            seen[:, -1] = 0.0
            seen[0] = 0.0
    agents: dict[str, Any] = {}
    inputs = dict(zip((f"obs_{index}" for index in range(len(own))), own, strict=True))
    if policy.num_agents:
        indices = np.arange(ROWS) % policy.num_agents
        agents["agent_indices"] = indices
        if policy.communicates:
            agents["groups"] = np.arange(ROWS) // policy.num_agents
            (mine,) = own
            of_group = mine.reshape(ROWS // policy.num_agents, -1)
            inputs[f"obs_{len(inputs)}"] = np.repeat(of_group, policy.num_agents, axis=0)
        inputs[f"obs_{len(inputs)}"] = np.eye(policy.num_agents, dtype=np.float32)[indices]

    memories = np.zeros((ROWS, policy.memory_size), np.float32)

    def acts(allowed: np.ndarray | None) -> np.ndarray:
        nonlocal memories
        ours, kept = policy.predict(own, memories, allowed, **agents)
        kinds = {"continuous": ours.continuous} if actions.continuous_size else {}
        kinds |= {"discrete": ours.discrete} if actions.mask_size else {}
        feed = dict(inputs)
        if actions.mask_size:
            every = np.ones((ROWS, actions.mask_size), np.float32)
            feed["action_masks"] = every if allowed is None else allowed.astype(np.float32)
        if policy.memory_size:
            feed["recurrent_in"] = memories[:, None]
            (recurrent,) = session.run(["recurrent_out"], feed)
            np.testing.assert_allclose(recurrent[:, 0], kept, atol=1e-5)
        for kind, expected in kinds.items():
            names = [f"deterministic_{kind}_actions", *([] if draws else [f"{kind}_actions"])]
            for theirs in session.run(names, feed):
                np.testing.assert_allclose(theirs, expected, atol=1e-5)
        memories = kept
        return ours.discrete

    chosen = acts(None)
    if policy.memory_size:
        acts(None)
    elif actions.mask_size:
        forbidden = np.ones((ROWS, actions.mask_size), np.bool_)
        forbidden[np.arange(ROWS), chosen[:, 0]] = False
        assert (acts(forbidden)[:, 0] != chosen[:, 0]).all()
