"""Policy and critic: shapes, what they share, and how they begin."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from trainer_service.config.network import Activation, NetworkSettings
from trainer_service.learning.networks.encoders.layers import NormedBody, make_body, with_constants
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec, ObservationType

SENSORS = (ObservationSpec("order", (3,)), ObservationSpec("trolley", (2,)))


def network(
    continuous: int = 2,
    branches: tuple[int, ...] = (3, 4),
    *,
    hidden_units: int = 16,
    shared_critic: bool = False,
) -> ActorCritic:
    torch.manual_seed(7)
    settings = NetworkSettings(hidden_units=hidden_units)
    spec = BehaviorSpec(SENSORS, ActionSpec(continuous, branches))
    return ActorCritic(spec, settings, value_heads=2, shared_critic=shared_critic)


def seen(rows: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return [torch.randn(rows, sensor.size, generator=generator) for sensor in SENSORS]


@pytest.mark.parametrize("shared_critic", [False, True])
def test_the_critic_moves_the_actors_body_only_if_shared(shared_critic: bool) -> None:
    both = network(shared_critic=shared_critic)
    both.policy_and_values(seen(5))[1].sum().backward()
    moved = [parameter.grad is not None for parameter in both.actor.parameters()]
    assert all(moved) if shared_critic else not any(moved)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        ("swish", (1.5 / (1 + math.exp(-1.5)), -0.5 / (1 + math.exp(0.5)))),
        ("relu", (1.5, 0.0)),
        ("tanh", (math.tanh(1.5), math.tanh(-0.5))),
    ],
)
def test_what_follows_a_layer_by_hand(activation: Activation, expected: tuple[float, float]) -> None:
    body = make_body(1, NetworkSettings(hidden_units=2, num_layers=1, activation=activation))
    with torch.no_grad():
        body.layers[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        body.layers[0].bias.fill_(0.5)
    torch.testing.assert_close(body(torch.ones(1, 1)), torch.tensor([expected]))


def test_a_normed_body_by_hand() -> None:
    body = NormedBody(2, 2, 1)
    with torch.no_grad():
        body.layers[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        body.layers[0].bias.copy_(torch.tensor([0.0, 3.0]))
    # (5, 1) is normalized to (1, −1), becomes (1, 2) by the layer, and (−1, 1) when normalized again.
    expected = torch.tensor([[-1.0, 1.0]])
    torch.testing.assert_close(body(torch.tensor([[5.0, 1.0]])), expected, atol=1e-4, rtol=0)


def test_a_normed_body_starts_orthogonal_and_ignores_scale() -> None:
    torch.manual_seed(1)
    body = NormedBody(6, 6, 2)
    weight = body.layers[1].weight
    torch.testing.assert_close(weight @ weight.T, 2.0 * torch.eye(6), atol=1e-5, rtol=0)
    inputs = torch.randn(4, 6)
    torch.testing.assert_close(body(inputs), body(100.0 * inputs), atol=1e-3, rtol=0)


def test_constants_among_the_inputs_keep_their_scale_by_hand() -> None:
    body = NormedBody(1, 1, 1, keep_scale=True)
    normalized = body.norms[0](with_constants(torch.tensor([[0.0], [1.0], [-1.0], [3.0]])))[:, 0]
    # (x, 1, −1) has the mean x/3 and the variance (2 x² + 6)/9, so x becomes √2 x / √(x² + 3).
    expected = torch.tensor([0.0, 0.5**0.5, -(0.5**0.5), 1.5**0.5])
    torch.testing.assert_close(normalized, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("moved", [lambda inputs: 2.0 * inputs, lambda inputs: inputs + 1.0])
@pytest.mark.parametrize("keep_scale", [False, True])
def test_only_a_normed_body_with_constants_tells_inputs_by_size_and_place(keep_scale: bool, moved) -> None:
    torch.manual_seed(1)
    body = make_body(6, NetworkSettings(hidden_units=8, layer_norm=True, keep_scale=keep_scale))
    inputs = torch.randn(4, 6)
    farthest = (body(moved(inputs)) - body(inputs)).abs().amax(dim=1)
    assert bool((farthest > 0.05).all()) if keep_scale else bool((farthest < 1e-3).all())


@pytest.mark.parametrize("settings", [NetworkSettings(layer_norm=True), NetworkSettings(activation="relu")])
def test_a_body_that_goals_cannot_write_is_refused_with_them(settings: NetworkSettings) -> None:
    goal = ObservationSpec("goal", (2,), (), ObservationType.GOAL_SIGNAL)
    spec = BehaviorSpec((goal, *SENSORS), ActionSpec(1))
    with pytest.raises(ValueError, match="goal_conditioning_type: none"):
        ActorCritic(spec, settings, value_heads=1, shared_critic=False)
    as_input = settings.model_copy(update={"goal_conditioning_type": "none"})
    ActorCritic(spec, as_input, value_heads=1, shared_critic=False)


PICTURES = (ObservationSpec("camera", (3, 20, 24)), ObservationSpec("order", (3,)))


def watching(**changes: object) -> ActorCritic:
    """A network that sees pictures too."""
    torch.manual_seed(7)
    settings = NetworkSettings(hidden_units=16, **changes)
    return ActorCritic(BehaviorSpec(PICTURES, ActionSpec(2)), settings, value_heads=1, shared_critic=False)


def as_bytes(rows: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    camera = torch.randint(0, 256, (rows, 3, 20, 24), generator=generator, dtype=torch.uint8)
    return [camera, torch.randn(rows, 3, generator=generator)]


def test_bytes_stand_for_their_share_of_255() -> None:
    both = watching()
    camera, order = as_bytes(5)
    floats = [torch.from_numpy(camera.numpy() / np.float32(255)), order]
    for answer in (both.policy, both.values, both.policy_and_values):
        torch.testing.assert_close(answer([camera, order]), answer(floats), rtol=0, atol=0)


def test_parameters_of_vector_networks_keep_their_names() -> None:
    names = [f"{trunk}.body.layers.{layer}" for trunk in ("actor", "critic") for layer in (0, 1)]
    names += ["actions.mean", "actions.logits", "value"]
    expected = {f"{name}.{kind}" for name in names for kind in ("weight", "bias")} | {"actions.log_sigma"}
    assert set(network().state_dict()) == expected
