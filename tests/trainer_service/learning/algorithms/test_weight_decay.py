"""The L2 penalty reaches the networks of every trainer type, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from every_trainer import scene_of, settings_of

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS, Compute
from trainer_service.learning.networks import flat
from unity_bridge.simulators.registry import open_scene

LEARNERS = [name for name in ALGORITHMS if name != "random"]


@pytest.mark.parametrize("trainer_type", LEARNERS)
def test_every_network_decays_and_no_temperature(trainer_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decays: list[tuple[int, float]] = []

    class Recording(flat.FlatAdam):
        def __init__(self, parameters: flat.FlatParameters, **settings: Any) -> None:
            super().__init__(parameters, **settings)
            decays.append((len(parameters.vector), settings["weight_decay"]))

    scene, _ = scene_of(trainer_type)
    (spec,) = open_scene(f"sim:{scene}").behaviors.values()
    monkeypatch.setattr(flat, "FlatAdam", Recording)
    values = settings_of(trainer_type)
    values["hyperparameters"]["weight_decay"] = 0.25
    ALGORITHMS[trainer_type](spec, TrainerSettings.model_validate(values), Compute(torch.device("cpu"), 1))
    assert decays
    for size, decay in decays:
        is_temperature = trainer_type in ("sac", "crossq") and size == 1
        assert decay == (0.0 if is_temperature else 0.25)
