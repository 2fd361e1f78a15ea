"""Networks that say what actions are worth, and those that say nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.policies.q_network import QNetwork
from trainer_service.learning.networks.policies.uniform import UniformNetwork
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


@pytest.mark.parametrize("dueling", [False, True])
def test_it_takes_sensors_of_any_kind_and_values_every_choice(dueling: bool) -> None:
    q = network(dueling=dueling).outputs(seen(7))
    assert q.shape == (7, 5)
    assert q.abs().max() < 2.0


def test_bytes_of_pictures_are_fractions() -> None:
    values = network()
    vector, picture, entities = seen(4)
    as_bytes = (picture.clamp(0.0, 1.0) * 255).to(torch.uint8)
    of_bytes = values.outputs([vector, as_bytes, entities])
    torch.testing.assert_close(of_bytes, values.outputs([vector, as_bytes.float() / 255, entities]))


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


def test_without_memory_there_is_no_step() -> None:
    with pytest.raises(ValueError, match="no memory"):
        network().step(seen(1), torch.zeros(1, 0))


def test_chance_looks_at_nothing_and_forbids_what_is_forbidden() -> None:
    spec = BehaviorSpec(SENSORS, ActionSpec(2, (2, 3)))
    chance = UniformNetwork(spec, torch.Generator())
    parameters = chance.policy([sensor.repeat(20_000, *[1] * (sensor.dim() - 1)) for sensor in seen(1)])
    allowed = torch.tensor([True, False, True, True, False]).repeat(20_000, 1)
    numbers, choices, log_probs = chance.actions.sample(parameters, allowed, torch.Generator().manual_seed(1))
    assert numbers.shape == (20_000, 2)
    assert numbers.min() >= -1.0
    assert numbers.max() <= 1.0
    # Of a uniform number in [−1, 1] the square is ⅓ on average, with a deviation of 0.0015 here.
    assert numbers.mean().item() == pytest.approx(0.0, abs=0.02)
    assert numbers.square().mean().item() == pytest.approx(1 / 3, abs=0.01)
    assert choices[:, 0].sum() == 0
    assert torch.bincount(choices[:, 1], minlength=3).tolist() == pytest.approx([10_000, 10_000, 0], abs=400)
    # Two numbers of density ½, one choice of one, and one of two.
    assert log_probs.unique().tolist() == pytest.approx([3 * math.log(0.5)])
    assert list(chance.parameters()) == []
