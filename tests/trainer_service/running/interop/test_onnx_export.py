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
from exported_models import assert_importers_read_alike
from numpy.typing import NDArray

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import PPO, Compute
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.running.interop import onnx_export as export
from trainer_service.running.interop.onnx_export import ExportError, export_policy, to_onnx
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


def new(spec: BehaviorSpec, seed: int = 1, **network: Any) -> PPO:
    """A policy before its first update."""
    settings = TrainerSettings.model_validate(
        {"trainer_type": "ppo", "network_settings": {"hidden_units": 16, **network}}
    )
    return PPO(spec, settings, Compute(torch.device("cpu"), seed))


def made(spec: BehaviorSpec, seed: int = 1, **network: Any) -> PPO:
    """A policy with weights and statistics as training might leave them."""
    ppo = new(spec, seed, **network)
    chance = torch.Generator().manual_seed(seed)
    state = ppo.state_dict()
    for tensor in state["network"].values():
        tensor.add_(torch.randn(tensor.shape, generator=chance), alpha=0.1)
    for name, tensor in state["normalizer"].items():
        spread = torch.rand(tensor.shape, generator=chance, dtype=torch.float64)
        tensor.copy_(spread if name.endswith("mean") else 1 + 9 * spread)
    ppo.load_weights(state)
    return ppo


def of_kind(kind: str) -> tuple[PPO, BehaviorSpec]:
    sensors, actions, network = KINDS[kind]
    spec = BehaviorSpec(tuple(sensors), actions)
    return made(spec, **network), spec


def model_of(ppo: PPO, spec: BehaviorSpec) -> bytes:
    return to_onnx(ppo.actor.policy_network(), spec)


def new_model(kind: str) -> bytes:
    sensors, actions, network = KINDS[kind]
    spec = BehaviorSpec(tuple(sensors), actions)
    return model_of(new(spec, **network), spec)


@functools.cache
def exported(kind: str) -> tuple[PPO, BehaviorSpec, bytes]:
    """A policy and its model, for tests that do not change them."""
    ppo, spec = of_kind(kind)
    return ppo, spec, model_of(ppo, spec)


def random_observations(spec: BehaviorSpec, rows: int, seed: int) -> list[NDArray[np.float32]]:
    """Random observations; some entities of every list are absent, and one agent sees none."""
    rng = np.random.default_rng(seed)
    observations = []
    for sensor in spec.observation_specs:
        if sensor.is_picture:
            values = rng.random((rows, *sensor.shape))
        else:
            values = rng.normal(scale=3.0, size=(rows, *sensor.shape))
        if sensor.is_entities:
            values[:, rng.integers(1, sensor.shape[0]) :] = 0.0
            values[0] = 0.0
        observations.append(values.astype(np.float32))
    return observations


def some_allowed(spec: BehaviorSpec, rows: int, seed: int) -> NDArray[np.bool_]:
    """Masks that leave at least the last choice of every branch."""
    allowed = np.random.default_rng(seed).random((rows, spec.action_spec.mask_size)) < 0.6
    allowed[:, np.cumsum(spec.action_spec.discrete_branches, dtype=np.int64) - 1] = True
    return allowed


def some_memories(ppo: PPO, rows: int, seed: int) -> NDArray[np.float32]:
    """Memory of actor and critic."""
    return np.random.default_rng(seed).uniform(-1, 1, (rows, ppo.actor.memory_size)).astype(np.float32)


def run(
    model: bytes,
    observations: Sequence[NDArray[np.float32]],
    allowed: NDArray[Any],
    memories: NDArray[np.float32] | None = None,
) -> dict[str, NDArray[Any]]:
    """memories: of the actor alone."""
    session = onnxruntime.InferenceSession(model)
    feed = {f"obs_{i}": sensor for i, sensor in enumerate(observations)}
    if allowed.shape[1]:
        feed["action_masks"] = allowed.astype(np.float32)
    if memories is not None and memories.shape[1]:
        feed["recurrent_in"] = memories[:, None]
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feed), strict=True))


def assert_same_decisions(outputs: Mapping[str, NDArray[Any]], policy: Any, *arguments: Any) -> None:
    decisions = policy.actor.act(ActRequest(*arguments, deterministic=True))
    if "continuous_actions" in outputs:
        expected = policy.actor.env_actions(decisions)
        np.testing.assert_allclose(outputs["deterministic_continuous_actions"], expected, atol=1e-5, rtol=0)
    if "discrete_actions" in outputs:
        np.testing.assert_array_equal(outputs["deterministic_discrete_actions"], decisions.discrete_actions)
    if "recurrent_out" in outputs:
        kept = outputs["recurrent_out"][:, 0]
        np.testing.assert_allclose(kept, decisions.memories[:, : kept.shape[1]], atol=1e-5, rtol=0)


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
    _, spec, model = exported(kind)
    assert list(UnityLoader(model).complaints(spec, MEMORY_SIZES.get(kind, 0))) == []


@every_kind
def test_it_decides_as_the_policy_does(kind: str) -> None:
    ppo, spec, model = exported(kind)
    rows = 7
    observations, allowed = random_observations(spec, rows, seed=5), some_allowed(spec, rows, seed=6)
    memories = some_memories(ppo, rows, seed=7)
    outputs = run(model, observations, allowed, memories[:, : MEMORY_SIZES.get(kind, 0)])
    assert_same_decisions(outputs, ppo, observations, allowed, memories)


@every_kind
def test_every_importer_reads_its_graph_alike(kind: str) -> None:
    """Biases of a new network are all zeros, so the exporter merges them; those of an LSTM stay equal."""
    model = exported(kind)[2] if kind == "lstm" else new_model(kind)
    assert_importers_read_alike(onnx.load_model_from_string(model))


def test_the_operator_set_is_one_that_unity_reads() -> None:
    model = onnx.load_model_from_string(exported("everything")[2])
    assert [(each.domain, each.version) for each in model.opset_import] == [("", export.OPSET)]
    assert export.OPSET <= 15


def test_an_observation_without_influence_is_still_an_input() -> None:
    ppo, spec = of_kind("branches")
    network = ppo.actor.policy_network()
    network.forward = lambda observations: ppo.actor.policy_network()([observations[0], torch.zeros(1, 2)])  # type: ignore[method-assign]
    session = onnxruntime.InferenceSession(to_onnx(network, spec))
    assert [each.name for each in session.get_inputs()] == ["obs_0", "obs_1", "action_masks"]


def test_exporting_does_not_change_the_learner() -> None:
    (one, spec), (other, _) = of_kind("everything"), of_kind("everything")
    stream = torch.get_rng_state()
    model_of(one, spec)
    assert torch.equal(torch.get_rng_state(), stream)
    state, expected = one.state_dict(), other.state_dict()
    for part in ("network", "normalizer"):
        for name, tensor in expected[part].items():
            assert torch.equal(state[part][name], tensor)
            assert state[part][name].dtype == tensor.dtype
    observations, allowed = random_observations(spec, 3, seed=1), some_allowed(spec, 3, seed=2)
    nothing = np.zeros((3, 0), np.float32)
    drawn, undisturbed = (each.actor.act(ActRequest(observations, allowed, nothing)) for each in (one, other))
    np.testing.assert_array_equal(drawn.discrete_actions, undisturbed.discrete_actions)
    np.testing.assert_array_equal(drawn.continuous_actions, undisturbed.continuous_actions)
    assert all(each.requires_grad and each.grad is not None for each in one.actor.network.parameters())


def test_an_export_error_is_one_line(tmp_path: Path) -> None:
    ppo, spec = of_kind("continuous")
    network = ppo.actor.policy_network()
    network.squash = torch.linalg.pinv  # type: ignore[method-assign]
    with pytest.raises(ExportError, match=r"no model could be written: .*pinv") as caught:
        export_policy(network, spec, tmp_path / "model.onnx")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
