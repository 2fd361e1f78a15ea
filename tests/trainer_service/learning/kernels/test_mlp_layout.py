"""An MLP policy as offsets: which network is one, and that the offsets are right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.kernels.mlp_layout import layout_of
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
