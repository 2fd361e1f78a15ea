"""Networks that say what actions are worth, and those that say nothing."""

from __future__ import annotations

from typing import Any

import torch

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.policies.q_network import QNetwork
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec

LIST = (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)
SENSORS = (
    ObservationSpec("vector", (3,)),
    ObservationSpec("picture", (3, 36, 40)),
    ObservationSpec("entities", (5, 3), LIST),
)
SPEC = BehaviorSpec(SENSORS, ActionSpec(0, (2, 3)))


def network(spec: BehaviorSpec = SPEC, *, dueling: bool = False, **settings: Any) -> QNetwork:
    torch.manual_seed(1)
    return QNetwork(spec, NetworkSettings(hidden_units=16, **settings), dueling=dueling)


def seen(rows: int) -> list[torch.Tensor]:
    return [torch.randn(rows, *sensor.shape) for sensor in SENSORS]


def test_its_policy_takes_the_best_allowed_choice() -> None:
    values = network()
    parameters = values.policy(seen(50))
    assert parameters.mean.shape == (50, 0)
    allowed = torch.rand(50, 5, generator=torch.Generator().manual_seed(1)) < 0.6
    _, chosen, _ = values.actions.most_likely(parameters, allowed)
    _, drawn, log_probs = values.actions.sample(parameters, allowed, torch.Generator())
    assert torch.equal(chosen, drawn)
    assert log_probs.tolist() == [0.0] * 50
    first = parameters.logits[:, :2].masked_fill(~allowed[:, :2], -torch.inf)
    some = allowed[:, :2].any(dim=1)
    assert torch.equal(chosen[some, 0], first[some].argmax(dim=1))
    assert chosen[~some, 0].sum() == 0
