"""Random streams are on the CPU wherever the networks are, for every trainer type: checkpoints move between devices."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from every_trainer import settings_of

from trainer_service.algorithms import ALGORITHMS, Compute
from trainer_service.algorithms.common.learner import Learner
from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

BYTES_OF_A_CUDA_STREAM = 16
BYTES_OF_A_STREAM = len(torch.Generator().get_state())
DRAWING = {
    "extrinsic": {},
    "gail": {"demo_path": "some.demo", "use_vail": True},
    "curiosity": {},
}


def make(trainer_type: str, device: str = "cpu") -> Learner:
    """An algorithm with everything beside it that draws."""
    hyper = HYPERPARAMETERS[trainer_type]
    more: dict[str, Any] = {"network_settings": {"hidden_units": 8, "num_layers": 1}}
    if hyper.supports_reward_models:
        more["reward_signals"] = DRAWING
    if hyper.supports_cloning:
        more["behavioral_cloning"] = {"demo_path": "some.demo"}
    settings = settings_of(trainer_type, **more)
    if hyper.learns_by_group:
        settings["hyperparameters"]["group_size"] = 2
    seen = (ObservationSpec("seen", (3,)),)
    chosen = TrainerSettings.model_validate(settings)
    for actions in (ActionSpec(0, (3,)), ActionSpec(2, ())):
        try:
            return ALGORITHMS[trainer_type](
                BehaviorSpec(seen, actions), chosen, Compute(torch.device(device), 1)
            )
        except ValueError as error:
            refusal = error
    raise refusal


@pytest.mark.parametrize("trainer_type", list(HYPERPARAMETERS))
def test_streams_of_networks_on_another_device_are_on_the_cpu(trainer_type: str) -> None:
    make(
        trainer_type, "meta"
    )  # torch has no stream there, so one that followed the networks would be refused


def on_a_gpu(content: Any, number: int = 0) -> Any:
    """A state as a run on a GPU saved it: its streams, and nothing else, are of that device's size."""
    if isinstance(content, dict):
        return {key: on_a_gpu(value, number + at) for at, (key, value) in enumerate(content.items())}
    if (
        isinstance(content, torch.Tensor)
        and content.dtype == torch.uint8
        and len(content) == BYTES_OF_A_STREAM
    ):
        return torch.full((BYTES_OF_A_CUDA_STREAM,), number, dtype=torch.uint8)
    return content


@pytest.mark.parametrize("trainer_type", list(HYPERPARAMETERS))
def test_a_checkpoint_with_a_gpus_streams_is_gone_on_from_with_a_warning(
    trainer_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    saved = make(trainer_type).state_dict()
    goes_on = make(trainer_type)
    with caplog.at_level(logging.WARNING):
        goes_on.load_state_dict(saved)
        assert not caplog.messages
        goes_on.load_state_dict(on_a_gpu(saved))
    assert any("acting" in message and "are of another device" in message for message in caplog.messages)
