"""Attention over entities: numbers by hand, and what must make no difference."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

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


def test_two_entities_by_hand() -> None:
    made = EntityAttention([ObservationSpec("two", (2, 1))], 0)
    pattern = torch.ones(EMBEDDING)
    pattern[1::2] = -1.0
    with torch.no_grad():
        for layer in (made.query, made.key, made.value, made.output):
            layer.weight.copy_(torch.eye(EMBEDDING))
    first, second = made._mixed(torch.stack([pattern, -pattern]).unsqueeze(0), torch.ones(1, 2))[0]
    # A head sees 32 of the 128 numbers: scores are ±32/√128 = ±2√2, so that the weights are σ(±4√2), and
    # an entity takes (σ(4√2) − σ(−4√2)) = tanh(2√2) of its own pattern.
    torch.testing.assert_close(first, math.tanh(2 * math.sqrt(2)) * pattern)
    torch.testing.assert_close(second, -first)
    # The second one absent, the first is all there is.
    alone = made._mixed(torch.stack([pattern, -pattern]).unsqueeze(0), torch.tensor([[1.0, 0.0]]))[0]
    torch.testing.assert_close(alone, torch.stack([pattern, pattern]))


def of_one_agent(made: EntityAttention, sensors: list[np.ndarray], context: np.ndarray | None) -> np.ndarray:
    """The encoder for one agent, one entity after the other, without masks: only those that are there."""
    state = {name: tensor.double().numpy() for name, tensor in made.state_dict().items()}

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return state[f"{name}.weight"] @ x + state[f"{name}.bias"]

    def swish(x: np.ndarray) -> np.ndarray:
        return x / (1.0 + np.exp(-x))

    def standardized(x: np.ndarray) -> np.ndarray:
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5)

    own = np.zeros(0) if context is None else swish(linear("own", context))
    there = [
        standardized(swish(linear(f"embeddings.{kind}", np.concatenate([own, entity]))))
        for kind, sensor in enumerate(sensors)
        for entity in sensor
        if (entity**2).sum() >= 0.01
    ]
    results = []
    for entity in there:
        taken = []
        for head in np.split(np.arange(EMBEDDING), 4):
            query = linear("query", entity)[head]
            weights = np.exp([query @ linear("key", other)[head] / np.sqrt(EMBEDDING) for other in there])
            values = np.array([linear("value", other)[head] for other in there])
            taken.append(weights / weights.sum() @ values)
        results.append(standardized(entity + linear("output", np.concatenate(taken))))
    return np.mean(results, axis=0)


@pytest.mark.parametrize("context", [0, CONTEXT])
def test_masked_arithmetic_is_attention_over_those_that_are_there(context: int) -> None:
    made = attention(context=context)
    entities, beside = seen(6)
    together = made(entities, beside if context else None).detach().numpy()
    for row in range(6):
        arrays = [sensor[row].double().numpy() for sensor in entities]
        plain = of_one_agent(made, arrays, beside[row].double().numpy() if context else None)
        np.testing.assert_allclose(together[row], plain, atol=1e-5)


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


def test_one_agents_entities_are_nobody_elses_business() -> None:
    made = attention()
    entities, beside = seen(6)
    before = made(entities, beside)
    entities[0][2] += 1.0
    after = made(entities, beside)
    changed = (after - before).abs().amax(dim=1) > 1e-6
    assert changed.tolist() == [False, False, True, False, False, False]


def test_layers_begin_in_ml_agents_scale() -> None:
    torch.manual_seed(3)
    made = EntityAttention(SENSORS, CONTEXT)
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        else:
            assert parameter.std().item() == pytest.approx(math.sqrt(0.125 / 128), rel=0.05)


@pytest.mark.probe
def test_the_closest_entity_is_found() -> None:
    """The nearest entity's position is learned, given the agent's own as context."""
    torch.manual_seed(4)
    made, head = EntityAttention([ObservationSpec("all", (5, 3))], 3), nn.Linear(EMBEDDING, 3)
    adam = torch.optim.Adam([*made.parameters(), *head.parameters()], lr=1e-3)

    def loss(rows: int) -> torch.Tensor:
        places, own = torch.rand(rows, 5, 3), torch.rand(rows, 3)
        nearest = (places - own.unsqueeze(1)).square().sum(dim=2).argmin(dim=1)
        return nn.functional.mse_loss(head(made([places], own)), places[torch.arange(rows), nearest])

    for _ in range(500):
        adam.zero_grad()
        loss(100).backward()
        adam.step()
    # To answer with a place near the agent's own, whatever is there, would cost 0.04.
    assert loss(2000).item() < 0.02


@pytest.mark.probe
def test_the_index_of_the_smallest_number_is_found() -> None:
    torch.manual_seed(5)
    made, head = EntityAttention([ObservationSpec("all", (4, 5))], 0), nn.Linear(EMBEDDING, 4)
    adam = torch.optim.Adam([*made.parameters(), *head.parameters()], lr=1e-3)
    falling = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.0, total_iters=300)

    def loss(rows: int) -> torch.Tensor:
        numbers = torch.rand(rows, 4, 1)
        entities = torch.cat([torch.eye(4).expand(rows, 4, 4), numbers], dim=2)
        order = torch.argsort(torch.rand(rows, 4), dim=1).unsqueeze(2).expand(rows, 4, 5)
        smallest = numbers[:, :, 0].argmin(dim=1)
        return nn.functional.cross_entropy(head(made([entities.gather(1, order)], None)), smallest)

    before = loss(2000).item()
    for _ in range(300):
        adam.zero_grad()
        loss(64).backward()
        adam.step()
        falling.step()
    assert before > 1.0
    assert loss(2000).item() < 0.1
