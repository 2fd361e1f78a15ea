"""An encoder of all sensors: a layer for each of them, then their features side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn


class PerSensor(nn.Module):
    """The encoder ``encoder: per_sensor``; ``encoder_kwargs: {features: 32}`` are the features of each sensor."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], *, features: int = 16) -> None:
        """shapes: of each sensor by its name, without the batch dimension."""
        super().__init__()
        # Names may hold a dot, which a key of a ModuleDict must not.
        self._names = list(shapes)
        self.layers = nn.ModuleList(nn.Linear(math.prod(shapes[name]), features) for name in self._names)

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Maps one tensor [B, *shape] per sensor to [B, features]. Their number is found by calling it."""
        encoded = [
            layer(observations[name].flatten(1)).relu()
            for name, layer in zip(self._names, self.layers, strict=True)
        ]
        return torch.cat(encoded, dim=1)
