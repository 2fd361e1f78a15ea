"""Networks of several agents at once against a loop over one each, and what mixers make of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from trainer_service.config import NetworkSettings
from trainer_service.learning.networks.encoders.layers import make_body
from trainer_service.learning.networks.groups.agent_networks import AgentNetworks
from trainer_service.learning.networks.groups.group_q_network import SharedQNetwork, make_q_network
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.learning.networks.groups.mixers import MonotonicMixer
from trainer_service.learning.networks.groups.stacked import make_stacked_body
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

NUM_AGENTS = 3
EYES, EARS = ObservationSpec("eyes", (4,)), ObservationSpec("ears", (2,))
OWN = BehaviorSpec((EYES, EARS), ActionSpec(0, (3, 2)))
SETTINGS = NetworkSettings(hidden_units=16, num_layers=2)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(5)


def own_networks(spec: BehaviorSpec = OWN) -> AgentNetworks:
    sensors = range(len(spec.observation_specs))
    return make_q_network(
        spec, SETTINGS, agent_sensors=sensors, num_agents=NUM_AGENTS, share="none", ids=False
    )


def shared(*, ids: int = NUM_AGENTS) -> SharedQNetwork:
    return SharedQNetwork(OWN, SETTINGS, agent_sensors=[0, 1], ids=ids)


def group(joint_steps: int = 7) -> list[Tensor]:
    return [torch.randn(joint_steps, NUM_AGENTS, 4), torch.randn(joint_steps, NUM_AGENTS, 2)]


def rows_of(seen: Sequence[Tensor]) -> list[Tensor]:
    """Returns the observations agent by agent, ids last."""
    who = torch.eye(NUM_AGENTS).repeat(len(seen[0]), 1)
    return [*(sensor.flatten(0, 1) for sensor in seen), who]


BODIES: dict[str, tuple[int, dict[str, Any]]] = {
    "swish": (NUM_AGENTS, {}),
    "relu": (NUM_AGENTS, {"activation": "relu"}),
    "tanh": (NUM_AGENTS, {"activation": "tanh"}),
    "normed": (NUM_AGENTS, {"layer_norm": True}),
    "normed-with-scale": (NUM_AGENTS, {"layer_norm": True, "keep_scale": True}),
    "one-normed": (1, {"layer_norm": True}),
}
"""How many bodies lie side by side, and their settings."""


@pytest.mark.parametrize("kind", BODIES)
def test_layers_side_by_side_are_as_many_layers(kind: str) -> None:
    count, changes = BODIES[kind]
    settings = NetworkSettings(hidden_units=16, num_layers=2, **changes)
    stacked, features = make_stacked_body(count, 6, settings), torch.randn(9, count, 6)
    bodies = [make_body(6, settings) for _ in range(count)]
    pairs = [pair for k, body in enumerate(bodies) for pair in parameters_beside(stacked, body, k)]
    with torch.no_grad():
        for ours, theirs in pairs:
            theirs.copy_(ours.normal_(std=0.5))
    together = stacked(features)
    one_by_one = torch.stack([body(features[:, k]) for k, body in enumerate(bodies)], dim=1)
    torch.testing.assert_close(together, one_by_one, atol=1e-5, rtol=1e-5)
    weights = torch.randn_like(together)
    (together * weights).sum().backward()
    (one_by_one * weights).sum().backward()
    for k, body in enumerate(bodies):
        for ours, theirs in parameters_beside(stacked, body, k, lambda each: each.grad):
            torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    for k in range(count):
        torch.testing.assert_close(stacked.of(k, features[:, k]), together[:, k], atol=1e-5, rtol=1e-5)


def parameters_beside(
    stacked: Any, body: Any, k: int, of: Callable[[Any], Any] = lambda each: each
) -> Iterator[tuple[Tensor, Tensor]]:
    """A stacked body's parameters of one agent, each with what it is in a body alone; or something else of them."""
    for ours, theirs in zip(stacked.layers, body.layers, strict=True):
        yield of(ours.weight)[k], of(theirs.weight).t()
        yield of(ours.bias)[k, 0], of(theirs.bias)
    norms = zip(stacked.scales, stacked.shifts, body.norms, strict=True) if hasattr(body, "norms") else ()
    for scale, shift, norm in norms:
        yield of(scale)[k], of(norm.weight)
        yield of(shift)[k], of(norm.bias)


@pytest.mark.parametrize("make", [own_networks, shared])
def test_an_agent_decides_by_the_values_that_the_group_learns(make) -> None:
    network, seen = make(), group()
    values = network.group_outputs(GroupInput(seen)).flatten(0, 1)
    rows = rows_of(seen)
    torch.testing.assert_close(network.outputs(rows), values, atol=1e-6, rtol=1e-5)
    order = torch.randperm(len(values))[:10]
    some = network.outputs([sensor[order] for sensor in rows])
    torch.testing.assert_close(some, values[order], atol=1e-6, rtol=1e-5)
    assert network.outputs([sensor[:0] for sensor in rows]).shape == (0, 5)


def test_separate_networks_know_nothing_of_each_other() -> None:
    network, seen = own_networks(), group()
    before = network.group_outputs(GroupInput(seen))
    seen[0][:, 1] += 1.0
    after = network.group_outputs(GroupInput(seen))
    assert torch.equal(before[:, [0, 2]], after[:, [0, 2]])
    assert not torch.equal(before[:, 1], after[:, 1])


def test_networks_of_their_own_refuse_pictures() -> None:
    spec = BehaviorSpec((ObservationSpec("camera", (3, 36, 36)),), OWN.action_spec)
    with pytest.raises(ValueError, match=r"share: none .* 'camera' has shape \(3, 36, 36\)"):
        own_networks(spec)
    SharedQNetwork(spec, SETTINGS, agent_sensors=[0], ids=2)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_mixer_is_monotonic_in_each_agents_value(layer_norm: bool) -> None:
    for _ in range(20):
        mixer, state = MonotonicMixer(NUM_AGENTS, 6, 8, 16, layer_norm=layer_norm), 3 * torch.randn(50, 6)
        values = (3 * torch.randn(50, NUM_AGENTS)).requires_grad_()
        (slopes,) = torch.autograd.grad(mixer(values, state).sum(), values)
        assert float(slopes.min()) >= 0.0
        assert float(slopes.max()) > 0.0


def test_a_mixer_in_numbers() -> None:
    mixer = MonotonicMixer(2, 1, 2, 1)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.zero_()
        mixer.first_weights[2].bias.copy_(torch.tensor([1.0, -2.0, -3.0, 4.0]))
        mixer.first_bias.bias.copy_(torch.tensor([0.5, -20.0]))
        mixer.second_weights[2].bias.copy_(torch.tensor([-2.0, 1.0]))
        mixer.second_bias[2].bias.fill_(0.25)
    # hidden: 1·1 + 3·2 + ½ = 7½, and 2·1 + 4·2 − 20 = −10, of which elu makes e⁻¹⁰ − 1.
    total = mixer(torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    assert total.item() == pytest.approx(2 * 7.5 + (np.exp(-10.0) - 1) + 0.25)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_normalized_mixer_is_as_steep_far_out(layer_norm: bool) -> None:
    # Else each target raises the next where states drift outwards: on spread, values grew without end.
    mixer, state = MonotonicMixer(NUM_AGENTS, 6, 8, 16, layer_norm=layer_norm), torch.randn(50, 6)
    values = torch.randn(50, NUM_AGENTS).requires_grad_()
    near, far = (
        torch.autograd.grad(mixer(values, scale * state).sum(), values)[0].mean() for scale in (1.0, 100.0)
    )
    assert (float(far / near) == pytest.approx(1.0, abs=0.01)) == layer_norm
    assert layer_norm or far > 20 * near


@pytest.mark.parametrize("keep_scale", [False, True])
def test_a_normalized_mixer_tells_states_by_size_if_asked_but_stays_bounded(keep_scale: bool) -> None:
    mixer = MonotonicMixer(NUM_AGENTS, 6, 8, 16, layer_norm=True, keep_scale=keep_scale)
    state, values = torch.randn(50, 6), torch.randn(50, NUM_AGENTS)
    once, twice, far, farther = (mixer(values, times * state).detach() for times in (1.0, 2.0, 1e4, 1e5))
    assert torch.allclose(once, twice, atol=1e-3) != keep_scale
    torch.testing.assert_close(far, farther, atol=1e-2, rtol=0)
