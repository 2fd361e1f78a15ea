"""Attention over entities: numbers by hand, and what must make no difference."""

from __future__ import annotations

import torch

from trainer_service.learning.networks.encoders.entities import EMBEDDING, EntityAttention, presence
from unity_bridge.specs import ObservationSpec

SENSORS = (ObservationSpec("apples", (6, 3)), ObservationSpec("pears", (4, 2)))
CONTEXT = 5


def attention(*sensors: ObservationSpec, context: int = CONTEXT, seed: int = 1) -> EntityAttention:
    """An encoder with weights large enough that attention is not nearly uniform."""
    torch.manual_seed(seed)
    made = EntityAttention(sensors or SENSORS, context)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.15)
    return made


def seen(rows: int, seed: int = 2) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Entities of both kinds, some of them absent, and the context."""
    generator = torch.Generator().manual_seed(seed)
    entities = [torch.randn(rows, *sensor.shape, generator=generator) for sensor in SENSORS]
    entities[0][:, 4:] = 0.0
    entities[1][: rows // 2, 1] = 0.0
    return entities, torch.randn(rows, CONTEXT, generator=generator)


def test_rows_of_nearly_nothing_are_absent() -> None:
    rows = torch.tensor([[[0.0, 0.0], [0.09, 0.0], [0.11, 0.0], [0.08, -0.08], [-5.0, 0.0]]])
    assert presence(rows).tolist() == [[0, 0, 1, 1, 1]]


def test_order_makes_no_difference() -> None:
    made = attention()
    entities, beside = seen(6)
    order = [torch.tensor([3, 5, 0, 1, 4, 2]), torch.tensor([2, 0, 3, 1])]
    shuffled = [sensor[:, rows] for sensor, rows in zip(entities, order, strict=True)]
    torch.testing.assert_close(made(shuffled, beside), made(entities, beside))


def test_room_for_more_makes_no_difference() -> None:
    small, roomy = attention(ObservationSpec("few", (3, 3))), attention(ObservationSpec("many", (9, 3)))
    roomy.load_state_dict(small.state_dict())
    entities, beside = torch.randn(4, 3, 3), torch.randn(4, CONTEXT)
    padded = torch.cat([torch.zeros(4, 2, 3), entities, torch.zeros(4, 4, 3)], dim=1)
    torch.testing.assert_close(roomy([padded], beside), small([entities], beside))


def test_absent_entities_get_no_gradient() -> None:
    made = attention()
    entities, beside = seen(6)
    for sensor in entities:
        sensor.requires_grad_()
    made(entities, beside).square().sum().backward()
    for sensor in entities:
        moved = sensor.grad.abs().sum(dim=2) > 0
        assert torch.equal(moved, presence(sensor.detach()).bool())


def test_without_entities_output_and_gradients_are_zero() -> None:
    made = attention()
    entities = [torch.zeros(3, *sensor.shape, requires_grad=True) for sensor in SENSORS]
    answer = made(entities, torch.randn(3, CONTEXT))
    assert torch.equal(answer, torch.zeros(3, EMBEDDING))
    answer.sum().backward()
    assert all(torch.equal(sensor.grad, torch.zeros_like(sensor)) for sensor in entities)
    assert all(torch.isfinite(parameter.grad).all() for parameter in made.parameters())
