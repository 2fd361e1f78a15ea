"""The comparison of models with their policies. That exported models agree is tested in test_onnx_export."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
import torch

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS, Compute, PolicyNetwork
from trainer_service.running.interop import onnx_check as export_check
from trainer_service.running.interop import onnx_export as export
from trainer_service.running.interop.onnx_check import largest_difference
from trainer_service.running.interop.onnx_export import export_policy
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec

VECTOR = ObservationSpec("vector", (3,))
PICTURE = ObservationSpec("picture", (1, 20, 28))
LIST = ObservationSpec("list", (4, 2), (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE))
CONTINUOUS, HYBRID = ActionSpec(2), ActionSpec(2, (3, 2))


def policy(actions: ActionSpec, *sensors: ObservationSpec, trainer: str = "ppo", **network: Any) -> Any:
    spec = BehaviorSpec(sensors or (VECTOR,), actions)
    settings = TrainerSettings.model_validate(
        {"trainer_type": trainer, "network_settings": {"hidden_units": 8, **network}}
    )
    learner = ALGORITHMS[trainer](spec, settings, Compute(torch.device("cpu"), 1))
    return learner.actor.policy_network(), spec


POLICIES: dict[str, Callable[[], tuple[PolicyNetwork, BehaviorSpec]]] = {
    "continuous": lambda: policy(CONTINUOUS, normalize=True),
    "hybrid": lambda: policy(HYBRID),
    "picture": lambda: policy(HYBRID, PICTURE, VECTOR),
    "list": lambda: policy(CONTINUOUS, LIST, VECTOR),
    "lstm": lambda: policy(HYBRID, memory={"memory_size": 6}),
    "sac": lambda: policy(HYBRID, trainer="sac"),
    "dqn": lambda: policy(ActionSpec(0, (3, 3)), trainer="dqn"),
    "random": lambda: policy(HYBRID, trainer="random"),
}


@pytest.fixture(params=["onnxruntime", "numpy"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(export_check, "_has_onnxruntime", lambda: request.param == "onnxruntime")
    return str(request.param)


def exported(tmp_path: Path, kind: str) -> Path:
    export_policy(*POLICIES[kind](), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("kind", POLICIES)
def test_a_model_that_equals_its_policy_is_written_silently(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    exported(tmp_path, kind)
    assert caplog.text == ""


def with_other_weights(model: bytes) -> bytes:
    """The columns of everything that was learned, the other way round."""
    parsed = onnx.load_model_from_string(model)
    for weights in parsed.graph.initializer:
        values = onnx.numpy_helper.to_array(weights)
        if values.dtype == np.float32 and values.size > 1:
            changed = onnx.numpy_helper.from_array(values[..., ::-1].copy(), weights.name)
            weights.CopyFrom(changed)
    return bytes(parsed.SerializeToString())


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("continuous", "deterministic_continuous_actions"),
        ("dqn", "deterministic_discrete_actions"),
        ("lstm", "recurrent_out"),
    ],
)
def test_a_model_that_differs_is_reported_and_still_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, kind: str, output: str
) -> None:
    right = export.to_onnx
    monkeypatch.setattr(export, "to_onnx", lambda *arguments: with_other_weights(right(*arguments)))
    path = exported(tmp_path, kind)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    message = f"model '{path}' does not say what its policy says: for random inputs '{output}' differs by "
    assert record.message.startswith(message)
    assert record.message.endswith("expected at most 0.001")
    onnx.checker.check_model(onnx.load(path))


def test_two_choices_that_are_equally_good_are_no_difference() -> None:
    chosen = "deterministic_discrete_actions"
    logits = np.array([[1.0, 1.0 + 1e-6, -1e8, 3.0, 2.0]], np.float32)
    policy = {chosen: np.array([[1, 0]]), "logits": logits}
    assert largest_difference({chosen: np.array([[0, 0]])}, policy, policy, (3, 2)) is None
    for worse in ([1, 1], [2, 0]):
        message = largest_difference({chosen: np.array([worse])}, policy, policy, (3, 2))
        assert message is not None
        assert f"'{chosen}' differs by" in message
