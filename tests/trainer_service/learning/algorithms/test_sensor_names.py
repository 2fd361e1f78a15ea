"""A simulator may give its sensors any names: those that the trainer gives to sensors of its own mean nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS, Compute, make_learner
from trainer_service.learning.algorithms.common.observation_selection import (
    selector_for,
    with_group_size,
    with_sharing,
)
from trainer_service.learning.rollout.sensor_roles import SensorRole, role_of
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

TAKEN = [role.value for role in SensorRole if role is not SensorRole.GLOBAL_STATE]
"""Names of all roles but the one that a simulator is told of."""
AGENTS = 2


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Everything that a learner has learned, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors(part)


def learned(trainer_type: str, names: list[str]) -> list[torch.Tensor]:
    """The weights of a new learner that sees two numbers by each of these sensors."""
    settings = TrainerSettings.model_validate(
        {"trainer_type": trainer_type, "network_settings": {"normalize": True}}
    )
    sensors = tuple(ObservationSpec(name, (AGENTS,)) for name in names)
    for actions in (ActionSpec(0, (3,)), ActionSpec(2)):
        spec = BehaviorSpec(sensors, actions)
        sized = with_sharing(with_group_size(settings, AGENTS), spec)
        try:
            learner = make_learner(selector_for(spec, sized).spec, sized, Compute(torch.device("cpu"), 1))
        except ValueError:
            continue  # it has no use for actions of this kind
        return list(tensors(learner.state_dict()))
    raise AssertionError(f"{trainer_type} takes no actions")


@pytest.mark.parametrize("trainer_type", [each for each in ALGORITHMS if each != "random"])
def test_no_name_of_a_sensor_changes_what_learners_see(trainer_type: str) -> None:
    named, plain = learned(trainer_type, TAKEN), learned(trainer_type, [f"eye {name}" for name in TAKEN])
    assert named
    assert [tensor.shape for tensor in named] == [tensor.shape for tensor in plain]
    assert all(map(torch.equal, named, plain))


def test_only_the_trainers_own_sensors_have_its_roles() -> None:
    for role in SensorRole:
        expected = role if role is SensorRole.GLOBAL_STATE else SensorRole.OBSERVATION
        assert role_of(ObservationSpec(role.value, (2,))) is expected
    for role in (SensorRole.AGENT_ID, SensorRole.TEAM_OBSERVATIONS):
        assert role_of(role.added(2)) is role
