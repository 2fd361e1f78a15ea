"""An MLP policy as offsets: which network is one, and that the offsets are right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.kernels.mlp_layout import LinearLayer, MlpLayout, layout_of
from trainer_service.learning.networks.flat import FlatParameters
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec, ObservationType

VECTORS = (ObservationSpec("order", (3,)), ObservationSpec("trolley", (2,)))


def network(
    sensors: tuple[ObservationSpec, ...] = VECTORS,
    *,
    continuous: int = 2,
    branches: tuple[int, ...] = (3, 4),
    shared_critic: bool = False,
    value_heads: int = 2,
    **settings: Any,
) -> ActorCritic:
    torch.manual_seed(7)
    spec = BehaviorSpec(sensors, ActionSpec(continuous, branches))
    chosen = NetworkSettings.model_validate({"hidden_units": 16, "num_layers": 2, **settings})
    return ActorCritic(spec, chosen, value_heads=value_heads, shared_critic=shared_critic)


def forward(
    layout: MlpLayout, vector: Tensor, observations: Tensor
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Mean, logits and values by nothing but offsets."""

    def linear(layer: LinearLayer, features: Tensor) -> Tensor:
        weight = vector[layer.weight :][: layer.outputs * layer.inputs].view(layer.outputs, layer.inputs)
        return features @ weight.T + vector[layer.bias :][: layer.outputs]

    def body(layers: tuple[LinearLayer, ...]) -> Tensor:
        features = observations
        for layer in layers:
            features = nn.functional.silu(linear(layer, features))
        return features

    actor = body(layout.actor)
    return (
        None if layout.mean is None else linear(layout.mean, actor),
        None if layout.logits is None else linear(layout.logits, actor),
        linear(layout.value, actor if layout.critic is None else body(layout.critic)),
    )


@pytest.mark.parametrize("shared_critic", [False, True])
@pytest.mark.parametrize("actions", [(2, ()), (0, (3,)), (3, (3, 4))])
def test_offsets_lead_to_what_the_network_computes(
    shared_critic: bool, actions: tuple[int, tuple[int, ...]]
) -> None:
    continuous, branches = actions
    policy = network(continuous=continuous, branches=branches, shared_critic=shared_critic, num_layers=3)
    for parameter in policy.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    parameters = FlatParameters(policy.parameters())
    layout = layout_of(policy, parameters)
    assert layout is not None
    assert (layout.sensors, layout.inputs, layout.branches) == ((3, 2), 5, branches)
    observations = torch.randn(6, 5)
    expected, values = policy.policy_and_values(observations.split([3, 2], dim=1))
    mean, logits, our_values = forward(layout, parameters.vector, observations)
    torch.testing.assert_close(our_values, values)
    if mean is not None:
        assert layout.log_sigma is not None
        torch.testing.assert_close(mean, expected.mean)
        torch.testing.assert_close(parameters.vector[layout.log_sigma :][:continuous], expected.log_sigma)
    if logits is not None:
        torch.testing.assert_close(logits, expected.logits)


@pytest.mark.parametrize("shared_critic", [False, True])
def test_offsets_of_memory_lead_to_the_layers_numbers(shared_critic: bool) -> None:
    policy = network(memory={"memory_size": 8, "sequence_length": 4}, shared_critic=shared_critic)
    parameters = FlatParameters(policy.parameters())
    parameters.vector.copy_(torch.arange(float(parameters.vector.numel())))
    layout = layout_of(policy, parameters)
    assert layout is not None
    trunks = [trunk for trunk in (policy.actor, policy.critic) if trunk is not None]
    for lstm, trunk in zip(layout.lstms, trunks, strict=True):
        assert trunk.memory is not None
        weights, recurrent, bias, second_bias = trunk.memory.lstm.all_weights[0]
        for layer, numbers, added in (
            (lstm.from_features, weights, bias),
            (lstm.from_memory, recurrent, second_bias),
        ):
            assert (layer.outputs, layer.inputs) == tuple(numbers.shape)
            assert (layer.weight, layer.bias) == (numbers[0, 0], added[0])


class OwnActorCritic(ActorCritic):
    """What a plugin may do with it."""


def plugged() -> ActorCritic:
    changed = network()
    changed.__class__ = OwnActorCritic
    return changed


def replaced() -> ActorCritic:
    changed = network()
    changed.value = nn.Linear(16, 2, bias=False)
    return changed


def frozen() -> ActorCritic:
    changed = network()
    changed.value.bias.requires_grad_(False)
    return changed


def extended() -> ActorCritic:
    changed = network()
    changed.register_parameter("temperature", nn.Parameter(torch.ones(1)))
    return changed


GOAL = ObservationSpec("goal", (2,), observation_type=ObservationType.GOAL_SIGNAL)


@pytest.mark.parametrize(
    "other",
    [
        network((ObservationSpec("camera", (3, 20, 20)),)),
        network((ObservationSpec("matrix", (3, 2)),)),
        network((*VECTORS, GOAL)),
        network(memory={"memory_size": 8, "sequence_length": 4, "type": "gru"}),
        network(layer_norm=True),
        network(activation="relu"),
        plugged(),
        replaced(),
        frozen(),
        extended(),
        nn.Linear(3, 2),
    ],
    ids=["picture", "matrix", "goal", "gru", "norm", "relu", "class", "layer", "frozen", "more", "other"],
)
def test_whatever_is_no_mlp_policy_has_no_layout(other: nn.Module) -> None:
    assert layout_of(other, FlatParameters(other.parameters())) is None


def test_a_network_that_is_not_in_the_vector_has_no_layout() -> None:
    assert layout_of(network(), FlatParameters(network().parameters())) is None
