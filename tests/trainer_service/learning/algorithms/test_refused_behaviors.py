"""Behaviors that a learner cannot use are refused by name, before anything is learned."""

from __future__ import annotations

import pytest
import torch

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS, Compute
from unity_bridge.simulators.registry import open_scene


@pytest.mark.parametrize(
    ("trainer_type", "scene", "refusal"),
    [
        ("dqn", "3dball", "dqn needs discrete actions; the behavior has 2 continuous"),
        (
            "ddpg",
            "basic",
            "ddpg needs continuous actions alone; the behavior has 0 continuous and 1 discrete",
        ),
        ("idqn", "3dball", "idqn needs discrete actions"),
        ("coma", "3dball", "coma needs actions of one discrete branch, the behavior has 2 continuous"),
        ("maddpg", "gridworld", "maddpg needs sensors that are vectors"),
        ("sic", "gridworld", "a group whose agents communicate needs sensors that are vectors"),
    ],
)
def test_unusable_sensors_and_actions_are_named(trainer_type: str, scene: str, refusal: str) -> None:
    settings = TrainerSettings.model_validate({"trainer_type": trainer_type})
    (spec,) = open_scene(f"sim:{scene}").behaviors.values()
    with pytest.raises(ValueError, match=refusal):
        ALGORITHMS[trainer_type](spec, settings, Compute(torch.device("cpu"), 1))
