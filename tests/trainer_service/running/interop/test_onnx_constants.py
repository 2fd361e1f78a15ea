"""Constants that torch's exporter merged, restored."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from exported_models import assert_importers_read_alike
from onnx import TensorProto, helper, numpy_helper

from trainer_service.running.interop.onnx_constants import restore_merged_constants

BIAS, OTHER_BIAS = np.array([0.25, -1.0], np.float32), np.array([3.0, 2.0], np.float32)


def model() -> onnx.ModelProto:
    """Two layers whose biases are merged, the second over two steps, and outputs that are the same constant."""
    nodes = [
        helper.make_node("Identity", ["first.bias"], ["copy"]),
        helper.make_node("Identity", ["copy"], ["second.bias"]),
        helper.make_node("Identity", ["number"], ["one"]),
        helper.make_node("Identity", ["one"], ["other"]),
        helper.make_node("Gemm", ["seen", "first.weight", "first.bias"], ["between"]),
        helper.make_node("Gemm", ["between", "second.weight", "second.bias"], ["done"]),
    ]
    constants = {
        "first.bias": BIAS,
        "number": OTHER_BIAS[:1],
        "first.weight": np.eye(2, dtype=np.float32),
        "second.weight": np.array([[1, 2], [3, 4]], np.float32),
        "unread": OTHER_BIAS,
    }
    outputs = {"done": ["batch", 2], "one": [1], "other": [1]}
    graph = helper.make_graph(
        nodes,
        "two layers",
        [helper.make_tensor_value_info("seen", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)


def outputs_of(made: onnx.ModelProto) -> list[np.ndarray]:
    onnx.checker.check_model(made)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    return list(session.run(None, {"seen": np.array([[1, 2], [-3, 4]], np.float32)}))


def test_every_reader_gets_an_initializer_of_its_own() -> None:
    made = model()
    restore_merged_constants(made.graph)
    assert_importers_read_alike(made)
    values = {each.name: numpy_helper.to_array(each).tolist() for each in made.graph.initializer}
    assert values["first.bias"] == values["second.bias"] == BIAS.tolist()
    assert {"copy", "unread"}.isdisjoint(values)


def test_outputs_keep_their_names_and_values() -> None:
    before, made = outputs_of(model()), model()
    restore_merged_constants(made.graph)
    assert [each.name for each in made.graph.output] == ["done", "one", "other"]
    np.testing.assert_equal(outputs_of(made), before)
    np.testing.assert_equal(before, [[[4.5, 5.5], [6.5, 5.5]], [3.0], [3.0]])
