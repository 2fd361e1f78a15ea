"""Parameters as one vector, and Adam on it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from torch import nn

from trainer_service.learning.networks.flat import FlatAdam, FlatOptimizer, FlatParameters, TargetNetwork


def two_networks() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(3)
    plain = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 2))
    flat = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 2))
    flat.load_state_dict(plain.state_dict())
    return plain, flat


class PlainAdam:
    """Adam as in the paper, one parameter after the other."""

    def __init__(self, parameters: Iterable[nn.Parameter], weight_decay: float = 0.0) -> None:
        self.weight_decay = weight_decay
        self.moments = [(each, torch.zeros_like(each), torch.zeros_like(each)) for each in parameters]
        self.steps = 0

    def step(self, rate: float) -> None:
        self.steps += 1
        with torch.no_grad():
            for parameter, mean, square in self.moments:
                gradient = parameter.grad + self.weight_decay * parameter
                mean.copy_(0.9 * mean + 0.1 * gradient)
                square.copy_(0.999 * square + 0.001 * gradient**2)
                corrected = mean / (1 - 0.9**self.steps)
                deviation = (square / (1 - 0.999**self.steps)).sqrt()
                parameter.sub_(rate * corrected / (deviation + 1e-8))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_training_through_the_vector_equals_training_each_parameter(weight_decay: float) -> None:
    plain, flat = two_networks()
    vector = FlatParameters(flat.parameters())
    plain_adam = PlainAdam(plain.parameters(), weight_decay)
    flat_adam = FlatAdam(vector, weight_decay=weight_decay)
    for step in range(20):
        inputs = torch.randn(16, 4, generator=torch.Generator().manual_seed(step))
        plain.zero_grad()
        (plain(inputs) ** 2).mean().backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.05)
        plain_adam.step(1e-2)
        vector.gradient.zero_()
        (flat(inputs) ** 2).mean().backward()
        vector.reduce_gradient(max_norm=0.05)
        flat_adam.step(1e-2)
    for ours, theirs in zip(flat.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_short_gradient_is_left_alone() -> None:
    _, flat = two_networks()
    vector = FlatParameters(flat.parameters())
    (1e-6 * flat(torch.ones(1, 4)).sum()).backward()
    before = vector.gradient.clone()
    vector.reduce_gradient(max_norm=0.5)
    assert before.norm() > 0
    torch.testing.assert_close(vector.gradient, before, rtol=0, atol=0)


def test_loading_weights_reaches_the_vector() -> None:
    plain, flat = two_networks()
    vector = FlatParameters(flat.parameters())
    flat.load_state_dict({name: torch.full_like(value, 2.0) for name, value in plain.state_dict().items()})
    assert torch.all(vector.vector == 2.0)


def test_adam_continues_from_its_state() -> None:
    def trained(steps: int, vector: FlatParameters, adam: FlatAdam) -> torch.Tensor:
        for _ in range(steps):
            vector.gradient.copy_(vector.vector.sin())
            adam.step(0.01)
        return vector.vector

    _, network = two_networks()
    vector = FlatParameters(network.parameters())
    adam = FlatAdam(vector)
    trained(5, vector, adam)
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    state = {name: torch.as_tensor(value).clone() for name, value in adam.state_dict().items()}
    straight = trained(5, vector, adam).clone()

    _, other = two_networks()
    resumed = FlatParameters(other.parameters())
    other.load_state_dict(weights)
    resumed_adam = FlatAdam(resumed)
    resumed_adam.load_state_dict(state)
    torch.testing.assert_close(trained(5, resumed, resumed_adam), straight, rtol=0, atol=0)


def test_adam_shows_what_it_remembers_of_a_parameter() -> None:
    _, network = two_networks()
    vector = FlatParameters(network.parameters())
    adam = FlatAdam(vector)
    last = list(network.parameters())[2]
    vector.gradient.zero_()
    assert last.grad is not None
    last.grad.fill_(2.0)
    adam.step(0.0)
    mean, square = adam.moments(last)
    torch.testing.assert_close(mean, torch.full((2, 8), 0.2))
    torch.testing.assert_close(square, torch.full((2, 8), 0.004))
    mean.zero_()
    assert not torch.as_tensor(adam.state_dict()["mean"]).any()


def test_parameters_that_are_held_still_get_no_gradient_and_pass_one_on() -> None:
    network = nn.Linear(3, 2)
    optimizer = FlatOptimizer(network.parameters())
    inputs = torch.ones(1, 3, requires_grad=True)
    with optimizer.held_still():
        outputs = network(inputs)
    outputs.sum().backward()
    assert inputs.grad is not None
    assert not optimizer.parameters.gradient.any()
    assert all(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize(("tau", "expected"), [(0.0, 1.0), (0.25, 2.0), (1.0, 5.0)])
def test_a_target_follows_by_tau_and_moves_nothing(tau: float, expected: float) -> None:
    network = nn.Linear(1, 1, bias=False)
    online = FlatParameters(network.parameters())
    online.vector.fill_(1.0)
    target = TargetNetwork(network)
    online.vector.fill_(5.0)
    target.soft_update(online, tau)
    assert [float(each.weight.detach()) for each in (target.network, network)] == [expected, 5.0]
