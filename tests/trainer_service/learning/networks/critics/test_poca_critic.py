"""POCA's critic equals the plain form that it saves work on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from trainer_service.config import MemorySettings, NetworkSettings
from trainer_service.learning.networks.critics.poca_critic import POCACritic
from trainer_service.learning.networks.encoders.layers import standardized
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

CHOICES, HEADS = 4, 4
SPEC = BehaviorSpec((ObservationSpec("eyes", (5,)),), ActionSpec(2, (CHOICES,)))
MEMBERS = torch.tensor(
    [[0, 1, 2, 3], [-1, 4, -1, 5], [6, 7, 8, 9], [-1, -1, 10, -1], [11, -1, 12, 13], [14, 15, -1, -1]]
)
FILLED = torch.tensor([[True, True, True, True], [True, True, False, False]])
MEMORY = MemorySettings(memory_size=8, sequence_length=4)


def plainly(critic: POCACritic, seen: Tensor, done: Tensor, filled: Tensor | None) -> tuple[Tensor, Tensor]:
    """The critic's equations as one attention after the other, with absent agents masked."""
    members = MEMBERS
    at, there = members.clamp(min=0), (members >= 0).float()
    units = critic.query.in_features
    without = functional.silu(critic.seen(seen))[at]
    acting = functional.silu(critic.seen_acting(torch.cat([seen, done], dim=1)))[at]

    def heads(table: Tensor) -> Tensor:
        return table.view(*members.shape, HEADS, units // HEADS).transpose(1, 2)

    def valued(entities: Tensor) -> Tensor:
        entities = standardized(entities, units)
        query, key, mix = (heads(layer(entities)) for layer in (critic.query, critic.key, critic.mix))
        scores = query @ key.transpose(-1, -2) / units**0.5
        weights = torch.softmax(scores.masked_fill(there[:, None, None] == 0, -1e6), dim=-1)
        mixed = (weights @ mix).transpose(1, 2).reshape(entities.shape)
        attended = standardized(entities + critic.output(mixed), units) * there.unsqueeze(2)
        number = there.sum(dim=1, keepdim=True)
        features = critic.body.forward(attended.sum(dim=1) / number)
        if critic.memory is not None and filled is not None:
            start = features.new_zeros((len(filled), critic.memory.size))
            features = critic.memory.unroll(features, start, filled)
        return critic.value.forward(torch.cat([features, 2.0 * number / 4.0 - 1.0], dim=1)).squeeze(1)

    baselines = []
    for k in range(members.shape[1]):
        one = (torch.arange(members.shape[1]) == k).view(1, -1, 1)
        baselines.append(valued(torch.where(one, without, acting)))
    return valued(without), torch.stack(baselines, dim=1)


@pytest.mark.parametrize("memory", [None, MEMORY], ids=["without memory", "with memory"])
def test_values_baselines_and_gradients_equal_separate_attentions(memory: MemorySettings | None) -> None:
    torch.manual_seed(1)
    critic = POCACritic(
        SPEC, NetworkSettings(hidden_units=16, num_layers=2, memory=memory), agent_sensors=[0], signals=2
    )
    with torch.no_grad():
        for layer in (critic.query, critic.key, critic.mix, critic.output):
            # Otherwise everybody attends to everybody alike, and next to nothing depends on it.
            layer.weight.normal_(0.0, 0.5)
            layer.bias.normal_(0.0, 0.5)
    seen = torch.randn(16, 5)
    done = torch.cat([torch.randn(16, 2), torch.eye(CHOICES)[torch.randint(CHOICES, (16,))]], dim=1)
    filled, there = None if memory is None else FILLED, MEMBERS >= 0
    shares = torch.randn(len(MEMBERS), 2), torch.randn(int(there.sum()), 2)

    def results(values: Tensor, baselines: Tensor) -> list[Tensor]:
        total = (shares[0] * values).sum() + (shares[1] * baselines[there]).sum()
        return [values, baselines[there], *torch.autograd.grad(total, list(critic.parameters()))]

    ours = results(*critic.forward([seen], done, MEMBERS, filled))
    assert float(critic.most) == 4.0
    theirs = results(*plainly(critic, seen, done, filled))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-5)
