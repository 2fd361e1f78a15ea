"""Networks of every kind as ONNX: the answers are the same, in operators that old inference engines know."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.encoders.encoder import Trunk
from unity_bridge.specs import (
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)

OPSET = 9
KNOWN = frozenset({
    "Add", "ArgMax", "Cast", "Clip", "Concat", "Constant", "Conv", "Div", "Exp", "Gemm", "Identity", "LSTM",
    "LeakyRelu", "Less", "Log", "MatMul", "MaxPool", "Mul", "Multinomial", "Pow", "RandomNormalLike", "ReduceMean",
    "ReduceSum", "Relu", "Reshape", "Sigmoid", "Slice", "Softmax", "Sqrt", "Squeeze", "Sub", "Tanh", "Transpose",
    "Unsqueeze",
})  # fmt: skip
"""What ML-Agents' own models use."""

LIST = (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)
VECTOR, PICTURE = ObservationSpec("vector", (3,)), ObservationSpec("picture", (3, 36, 40))
TABLE = ObservationSpec("table", (2, 4), (DimensionProperty.NONE,) * 2)
ENTITIES, OTHERS = ObservationSpec("entities", (5, 3), LIST), ObservationSpec("others", (2, 6), LIST)
GOAL = ObservationSpec("goal", (2,), (), ObservationType.GOAL_SIGNAL)

KINDS: dict[str, tuple[Sequence[ObservationSpec], dict[str, object]]] = {
    "vector": ([VECTOR], {}),
    "simple": ([PICTURE], {"vis_encode_type": "simple"}),
    "nature_cnn": ([PICTURE], {"vis_encode_type": "nature_cnn"}),
    "resnet": ([PICTURE, VECTOR], {"vis_encode_type": "resnet"}),
    "match3": ([PICTURE], {"vis_encode_type": "match3"}),
    "fully_connected": ([PICTURE], {"vis_encode_type": "fully_connected"}),
    "entities": ([ENTITIES], {}),
    "entities and others": ([OTHERS, VECTOR, ENTITIES], {}),
    "goal": ([GOAL, VECTOR], {"num_layers": 1}),
    "table": ([VECTOR, TABLE], {"num_layers": 0}),
    "layer norm": ([OTHERS, PICTURE, VECTOR], {"layer_norm": True, "keep_scale": True}),
    "everything": ([ENTITIES, GOAL, OTHERS, PICTURE, TABLE, VECTOR], {"num_layers": 3}),
}


class Exported(nn.Module):
    """A trunk that takes its sensors one by one."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.trunk = trunk

    def forward(self, *sensors: torch.Tensor) -> torch.Tensor:
        return self.trunk(sensors)


def exported(trunk: Trunk, inputs: dict[str, torch.Tensor]) -> bytes:
    """A model traced with four equal agents, for any number of agents that see anything."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter is deprecated, and the only one for old operators
        torch.onnx.export(
            Exported(trunk),
            tuple(sensor[:1].repeat(4, *[1] * (sensor.dim() - 1)) for sensor in inputs.values()),
            file,
            input_names=list(inputs),
            output_names=["features"],
            dynamic_axes={name: {0: "batch"} for name in (*inputs, "features")},
            opset_version=OPSET,
            dynamo=False,
        )
    return file.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_uses_known_operators_and_answers_as_torch_does(kind: str) -> None:
    sensors, changes = KINDS[kind]
    torch.manual_seed(1)
    settings = NetworkSettings(hidden_units=16, **changes)
    trunk = Trunk(BehaviorSpec(tuple(sensors), ActionSpec(1)), settings)
    inputs = {f"obs_{index}": torch.randn(7, *sensor.shape) for index, sensor in enumerate(sensors)}
    for name, sensor in zip(inputs, sensors, strict=True):
        if sensor.is_entities:
            inputs[name][0] = 0.0  # nobody
            inputs[name][1:4, 1] = 0.0
    model = exported(trunk, inputs)

    graph = onnx.load_model_from_string(model)
    onnx.checker.check_model(graph)
    assert [each.version for each in graph.opset_import] == [OPSET]
    assert {node.op_type for node in graph.graph.node} <= KNOWN

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {name: sensor.numpy() for name, sensor in inputs.items()})
    with torch.inference_mode():
        np.testing.assert_allclose(answer, trunk(list(inputs.values())).numpy(), atol=1e-5)
