"""From a list of sensors to one feature vector per agent."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unity_bridge.specs import ObservationSpec


class ObservationEncoder(nn.Module):
    """Vector sensors side by side, in sensor order.

    Raises ValueError, naming the sensor, for what this build cannot encode yet.
    """

    def __init__(self, sensors: Sequence[ObservationSpec]) -> None:
        super().__init__()
        for sensor in sensors:
            if len(sensor.shape) != 1:
                raise ValueError(
                    f"sensor '{sensor.name}' has shape {sensor.shape}; only vector sensors are built so far"
                )
        if not sensors:
            raise ValueError("the behavior has no sensors: there is nothing to decide from")
        self.output_size = sum(sensor.size for sensor in sensors)

    def forward(self, observations: Sequence[Tensor]) -> Tensor:
        """One tensor [B, size] per sensor to [B, output_size]."""
        return observations[0] if len(observations) == 1 else torch.cat(list(observations), dim=-1)
