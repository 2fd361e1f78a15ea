"""Exported models, as Unity loads them and as onnxruntime runs them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from exported_models import assert_importers_read_alike, assert_model_acts_as_policy
from numpy.typing import NDArray

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.interop import onnx_export as export
from trainer_service.running.interop.onnx_export import ExportError, export_policy, to_onnx
from trainer_service.running.policy import Policy
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec, ObservationType

MOVES, LIST = DimensionProperty.TRANSLATIONAL_EQUIVARIANCE, DimensionProperty.VARIABLE_SIZE
NONE = DimensionProperty.NONE
VECTOR = ObservationSpec("vector", (3,), (NONE,))
OTHER = ObservationSpec("other", (2,), (NONE,))
PICTURE = ObservationSpec("picture", (3, 36, 40), (NONE, MOVES, MOVES))
GREY = ObservationSpec("grey", (1, 20, 28), (NONE, MOVES, MOVES))
ENTITIES = ObservationSpec("entities", (5, 4), (LIST, NONE))
THINGS = ObservationSpec("things", (2, 6), (LIST, NONE))
TABLE = ObservationSpec("table", (2, 4), (NONE, NONE))
GOAL = ObservationSpec("goal", (2,), (NONE,), ObservationType.GOAL_SIGNAL)
GOAL_PICTURE = ObservationSpec("goal picture", (1, 20, 28), (NONE, MOVES, MOVES), ObservationType.GOAL_SIGNAL)
HYBRID = ActionSpec(2, (3, 1, 4))

KINDS: Mapping[str, tuple[Sequence[ObservationSpec], ActionSpec, Mapping[str, Any]]] = {
    "continuous": ([VECTOR], ActionSpec(2), {}),
    "discrete": ([VECTOR], ActionSpec(0, (4,)), {}),
    "branches": ([VECTOR, OTHER], ActionSpec(0, (2, 3, 2)), {"normalize": True}),
    "hybrid": ([OTHER, VECTOR], HYBRID, {"normalize": True, "num_layers": 3}),
    "grey": ([GREY], ActionSpec(1), {"normalize": True}),
    "nature_cnn": ([PICTURE, VECTOR], HYBRID, {"vis_encode_type": "nature_cnn"}),
    "resnet": ([GREY, PICTURE], ActionSpec(0, (2,)), {"vis_encode_type": "resnet"}),
    "match3": ([GREY], HYBRID, {"vis_encode_type": "match3"}),
    "fully_connected": ([PICTURE], ActionSpec(3), {"vis_encode_type": "fully_connected"}),
    "entities": ([ENTITIES], HYBRID, {"normalize": True}),
    "entities and more": ([THINGS, VECTOR, ENTITIES], ActionSpec(0, (3,)), {"normalize": True}),
    "goal": ([GOAL, VECTOR], HYBRID, {"normalize": True}),
    "goal picture": ([GOAL_PICTURE, GOAL], ActionSpec(1), {"num_layers": 1}),
    "goal as input": ([GOAL, VECTOR], HYBRID, {"goal_conditioning_type": "none"}),
    "table": ([TABLE, VECTOR], ActionSpec(1), {}),
    "layer norm": ([VECTOR, OTHER], HYBRID, {"layer_norm": True, "keep_scale": True}),
    "relu": ([VECTOR, OTHER], HYBRID, {"activation": "relu"}),
    "tanh": ([VECTOR], HYBRID, {"activation": "tanh"}),
    "lstm": ([VECTOR, GREY], HYBRID, {"normalize": True, "memory": {"memory_size": 10}}),
    "gru": ([VECTOR], ActionSpec(0, (2, 3)), {"memory": {"memory_size": 6, "type": "gru"}}),
    "everything": ([ENTITIES, GOAL, GREY, TABLE, THINGS, VECTOR], HYBRID, {"normalize": True}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
MEMORY_SIZES = {"lstm": 10, "gru": 6}


def new(kind: str) -> Behavior:
    """A behavior before its first update."""
    sensors, actions, network = KINDS[kind]
    settings = TrainerSettings.model_validate(
        {"trainer_type": "ppo", "network_settings": {"hidden_units": 16, **network}}
    )
    return Behavior(kind, BehaviorSpec(tuple(sensors), actions), settings, Compute(torch.device("cpu"), 1))


def made(kind: str) -> Behavior:
    """A behavior with weights and statistics as training might leave them."""
    behavior = new(kind)
    chance = torch.Generator().manual_seed(1)
    state = behavior.learner.state_dict()
    for tensor in state["network"].values():
        tensor.add_(torch.randn(tensor.shape, generator=chance), alpha=0.1)
    for name, tensor in state["normalizer"].items():
        spread = torch.rand(tensor.shape, generator=chance, dtype=torch.float64)
        tensor.copy_(spread if name.endswith("mean") else 1 + 9 * spread)
    behavior.learner.load_weights(state)
    return behavior


def model_of(behavior: Behavior) -> bytes:
    return to_onnx(behavior.learner.actor.policy_network(), behavior.spec)


@functools.cache
def exported(kind: str) -> tuple[Behavior, bytes]:
    """A behavior and its model, for tests that do not change them."""
    behavior = made(kind)
    return behavior, model_of(behavior)


class UnityLoader:
    """The checks of com.unity.ml-agents 3.0.0 before an agent plays with a model."""

    def __init__(self, model: bytes) -> None:
        self.model = onnx.load_model_from_string(model)
        self.inputs = {each.name: self._dimensions(each) for each in self.model.graph.input}
        self.outputs = [each.name for each in self.model.graph.output]
        self.values = self._executed(model)

    def _executed(self, model: bytes) -> dict[str, NDArray[Any]]:
        """The loader runs the model on zeros, one row, to read its constants."""
        session = onnxruntime.InferenceSession(model)
        zeros = {
            name: np.zeros([size or 1 for size in shape], np.float32) for name, shape in self.inputs.items()
        }
        return dict(zip(self.outputs, session.run(None, zeros), strict=True))

    @staticmethod
    def _dimensions(value: onnx.ValueInfoProto) -> list[int]:
        assert value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        return [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]

    def complaints(self, spec: BehaviorSpec, memory_size: int = 0) -> Iterator[str]:
        """Every error and warning of the inspector, and what would throw at run time."""
        yield from self._constants(memory_size)
        yield from self._sensors(spec)
        yield from self._action_kind("continuous", [spec.action_spec.continuous_size])
        yield from self._action_kind("discrete", list(spec.action_spec.discrete_branches))
        if ("action_masks" in self.inputs) != bool(spec.action_spec.discrete_branches):
            yield "action_masks"
        known = {"action_masks", "recurrent_in", *(f"obs_{i}" for i in range(len(spec.observation_specs)))}
        yield from (f"unknown input {name}" for name in self.inputs if name not in known)

    def _constants(self, memory_size: int) -> Iterator[str]:
        recurrent = [("recurrent_in", self.inputs), ("recurrent_out", self.values)]
        yield from (name for name, names in recurrent if (name in names) != (memory_size > 0))
        for name, expected in (("version_number", 3.0), ("memory_size", memory_size)):
            value = self.values.get(name)
            if value is None or value.dtype != np.float32 or value.tolist() != [expected]:
                yield f"{name} is {value}"

    def _sensors(self, spec: BehaviorSpec) -> Iterator[str]:
        for index, sensor in enumerate(spec.observation_specs):
            if self.inputs.get(f"obs_{index}", [])[1:] != list(sensor.shape):
                yield f"obs_{index} has not the shape of {sensor}"

    def _action_kind(self, kind: str, sizes: list[int]) -> Iterator[str]:
        wanted = any(sizes)
        shape = f"{kind}_action_output_shape"
        for name in (f"{kind}_actions", shape, f"deterministic_{kind}_actions"):
            if (name in self.values) != wanted:
                yield f"{name} is {'missing' if wanted else 'there'}"
                return
        if not wanted:
            return
        stored = self.values[shape]
        if stored.dtype != np.float32 or stored.flatten().tolist() != sizes:
            yield f"{shape} says {stored}"
        for name in (f"{kind}_actions", f"deterministic_{kind}_actions"):
            action = self.values[name]
            if action.shape != (1, sizes[0] if kind == "continuous" else len(sizes)):
                yield f"{name} has shape {action.shape}"
            if action.dtype != (np.float32 if kind == "continuous" else np.int64):
                yield f"{name} is {action.dtype}"
            if kind == "discrete" and not ((action[0] >= 0) & (action[0] < sizes)).all():
                yield f"{name} chooses {action}"
            if kind == "continuous" and not (np.abs(action) <= 1.0).all():
                yield f"{name} says {action}"


@every_kind
def test_unity_loads_it_without_a_complaint(kind: str) -> None:
    behavior, model = exported(kind)
    assert list(UnityLoader(model).complaints(behavior.spec, MEMORY_SIZES.get(kind, 0))) == []


@every_kind
def test_it_decides_as_the_policy_does(kind: str, tmp_path: Path) -> None:
    behavior, model = exported(kind)
    (tmp_path / "model.onnx").write_bytes(model)
    assert_model_acts_as_policy(tmp_path / "model.onnx", Policy(checkpoint_of(behavior)))


@every_kind
def test_every_importer_reads_a_new_networks_graph_alike(kind: str) -> None:
    """Biases of a new network are all zeros, so the exporter merges them."""
    assert_importers_read_alike(onnx.load_model_from_string(model_of(new(kind))))


def test_the_operator_set_is_one_that_unity_reads() -> None:
    model = onnx.load_model_from_string(exported("everything")[1])
    assert [(each.domain, each.version) for each in model.opset_import] == [("", export.OPSET)]
    assert export.OPSET <= 15


def test_an_observation_without_influence_is_still_an_input() -> None:
    behavior = made("branches")
    actor = behavior.learner.actor
    network = actor.policy_network()
    network.forward = lambda observations: actor.policy_network()([observations[0], torch.zeros(1, 2)])  # type: ignore[method-assign]
    session = onnxruntime.InferenceSession(to_onnx(network, behavior.spec))
    assert [each.name for each in session.get_inputs()] == ["obs_0", "obs_1", "action_masks"]


def test_exporting_does_not_change_the_learner() -> None:
    one, other = (made("everything").learner for _ in range(2))
    stream = torch.get_rng_state()
    to_onnx(one.actor.policy_network(), exported("everything")[0].spec)
    assert torch.equal(torch.get_rng_state(), stream)
    state, expected = one.state_dict(), other.state_dict()
    for part in ("network", "normalizer"):
        for name, tensor in expected[part].items():
            assert torch.equal(state[part][name], tensor)
            assert state[part][name].dtype == tensor.dtype
    zeros = [np.zeros((3, *each.shape), np.float32) for each in KINDS["everything"][0]]
    asked = ActRequest(zeros, np.ones((3, HYBRID.mask_size), np.bool_), np.zeros((3, 0), np.float32))
    drawn, undisturbed = (each.actor.act(asked) for each in (one, other))
    np.testing.assert_array_equal(drawn.discrete_actions, undisturbed.discrete_actions)
    np.testing.assert_array_equal(drawn.continuous_actions, undisturbed.continuous_actions)
    assert all(each.requires_grad and each.grad is not None for each in one.actor.network.parameters())


def test_an_export_error_is_one_line(tmp_path: Path) -> None:
    behavior = made("continuous")
    network = behavior.learner.actor.policy_network()
    network.squash = torch.linalg.pinv  # type: ignore[method-assign]
    with pytest.raises(ExportError, match=r"no model could be written: .*pinv") as caught:
        export_policy(network, behavior.spec, tmp_path / "model.onnx")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
