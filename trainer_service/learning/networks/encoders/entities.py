"""Attention over lists of entities that may be absent: one feature vector for any number of entities.

Vaswani et al. 2017 (arXiv:1706.03762) with a residual connection, as in ML-Agents. Also as in ML-Agents, the scores
are divided by the square root of the whole embedding's size instead of a head's. Masking uses arithmetic, so that a
trace is valid for every input and exports with the oldest operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_service.learning.networks.encoders.layers import normal_linear, standardized
from trainer_service.learning.networks.products import linear
from unity_bridge.specs import ObservationSpec

EMBEDDING = 128
HEADS = 4
_ABSENT_BELOW = 0.01
_NEVER = 1e6
_DEVIATION = math.sqrt(0.125 / EMBEDDING)


class EntityAttention(nn.Module):
    """Embeds the entities of every such sensor, lets them attend to each other, and averages them."""

    def __init__(self, sensors: Sequence[ObservationSpec], context: int) -> None:
        """context: number of other features of the agent; may be 0."""
        super().__init__()
        self.own = normal_linear(context, EMBEDDING, deviation=_DEVIATION) if context else None
        beside = EMBEDDING if context else 0
        self.embeddings = nn.ModuleList(
            normal_linear(beside + sensor.shape[1], EMBEDDING, deviation=_DEVIATION) for sensor in sensors
        )
        self.query, self.key, self.value, self.output = (
            normal_linear(EMBEDDING, EMBEDDING, deviation=_DEVIATION) for _ in range(4)
        )
        self.entities = sum(sensor.shape[0] for sensor in sensors)
        self.output_size = EMBEDDING
        self.widest = self.entities * max(EMBEDDING, HEADS * self.entities)

    def forward(self, sensors: Sequence[Tensor], context: Tensor | None) -> Tensor:
        """Maps one [B, N, S] per sensor, and [B, context] unless that is 0, to [B, 128]."""
        present = torch.cat([presence(entities) for entities in sensors], dim=1)
        embedded = standardized(torch.cat(self._embedded(sensors, context), dim=1), EMBEDDING)
        attended = standardized(embedded + self._mixed(embedded, present), EMBEDDING)
        # Without entities the mean is zero, not 0/0.
        count = present.sum(dim=1, keepdim=True) + 1e-7
        return (attended * present.unsqueeze(-1)).sum(dim=1) / count

    def _embedded(self, sensors: Sequence[Tensor], context: Tensor | None) -> list[Tensor]:
        """Swish of a linear function of [own ‖ entity]. The own part is equal for all, so it is computed once."""
        layers = cast(Iterable[nn.Linear], self.embeddings)
        if self.own is None or context is None:
            return [
                functional.silu(layer.forward(entities))
                for layer, entities in zip(layers, sensors, strict=True)
            ]
        own = functional.silu(self.own.forward(context))
        embedded = []
        for layer, entities in zip(layers, sensors, strict=True):
            for_own, for_entity = layer.weight[:, :EMBEDDING], layer.weight[:, EMBEDDING:]
            shared = linear(own, for_own, layer.bias)
            embedded.append(functional.silu(linear(entities, for_entity) + shared.unsqueeze(1)))
        return embedded

    def _mixed(self, embedded: Tensor, present: Tensor) -> Tensor:
        """Attention of each entity over present entities. [B, N, 128] and [B, N] to [B, N, 128]"""
        query, key, value = (self._heads(layer(embedded)) for layer in (self.query, self.key, self.value))
        # Scaled between its two transpositions: an export would make one of them, in an order that Unity's
        # inference engines are known to get wrong.
        scores = torch.matmul(query, (key / EMBEDDING**0.5).transpose(-1, -2))
        # Absent entities get the score −10⁶.
        mask = present.reshape(-1, 1, 1, self.entities)
        weights = torch.softmax(scores * mask + (mask - 1.0) * _NEVER, dim=-1)
        mixed = torch.matmul(weights, value).permute(0, 2, 1, 3)
        return self.output.forward(mixed.reshape(-1, self.entities, EMBEDDING))

    def _heads(self, features: Tensor) -> Tensor:
        """Maps [B, N, 128] to [B, heads, N, 128/heads]."""
        return features.reshape(-1, self.entities, HEADS, EMBEDDING // HEADS).permute(0, 2, 1, 3)


def presence(entities: Tensor) -> Tensor:
    """Returns 1 for present entities, 0 for rows of (nearly) zeros: Σ x² < 0.01. [B, N, S] to [B, N]"""
    return 1.0 - ((entities**2).sum(dim=-1) < _ABSENT_BELOW).to(entities.dtype)
