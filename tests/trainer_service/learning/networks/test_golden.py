"""Our networks answer what ML-Agents' own do, given its weights."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
from trainer_service.running.interop.mlagents_names import location_of
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec, ObservationType

GOLDEN = Path(__file__).with_name("golden")
MADE = runpy.run_path(str(GOLDEN / "make.py"))


@pytest.mark.parametrize("case", MADE["CASES"])
def test_given_its_weights_they_answer_what_ml_agents_does(case: str) -> None:
    sensors, changes = MADE["CASES"][case]
    specs = tuple(
        ObservationSpec(name, shape, tuple(map(DimensionProperty, flags)), ObservationType(kind))
        for name, shape, flags, kind in sensors
    )
    spec = BehaviorSpec(specs, ActionSpec(MADE["CONTINUOUS"], MADE["BRANCHES"]))
    settings = NetworkSettings(hidden_units=16, **changes)
    network = ActorCritic(spec, settings, value_heads=2, shared_critic=False)
    for name, tensor in network.state_dict().items():
        keys = location_of(name, spec, settings, MADE["SIGNALS"]).keys
        rows = len(tensor) // len(keys)
        if not name.startswith("actions."):
            parts = [MADE["weights"](key, (rows, *tensor.shape[1:])) for key in keys]
            tensor.copy_(torch.from_numpy(np.concatenate(parts)))
    with torch.inference_mode():
        seen = [torch.from_numpy(array) for array in MADE["inputs"](sensors)]
        features, values = network.actor(seen).numpy(), network.values(seen).numpy()
    with np.load(GOLDEN / "answers.npz") as answers:
        np.testing.assert_allclose(features, answers[f"{case}: features"], atol=1e-5)
        np.testing.assert_allclose(values, answers[f"{case}: values"], atol=1e-5)
    assert np.ptp(features, axis=0).max() > 0.1, "inputs that make no difference prove nothing"
