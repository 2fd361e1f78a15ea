"""Plugins' encoders of all sensors together: ``network_settings.encoder``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainer_service.config.network import OBSERVATION_ENCODER_PLUGINS
from trainer_service.plugins import guarded, make_part
from unity_bridge.specs import ObservationSpec

_ROWS = 2
"""Rows of the zeros that determine a module's number of features."""


class OwnEncoder(nn.Module):
    """A plugin's module, called with the observations by sensor name."""

    def __init__(self, sensors: Sequence[ObservationSpec], name: str, arguments: Mapping[str, Any]) -> None:
        """arguments: keyword arguments of the plugin.

        Raises ValueError if two sensors have one name, PluginError if the plugin returns no such module.
        """
        super().__init__()
        self._names = [sensor.name for sensor in sensors]
        if len(set(self._names)) < len(self._names):
            twice = next(each for each in self._names if self._names.count(each) > 1)
            raise ValueError(
                f"network_settings.encoder: {name} gets observations by sensor name, and two sensors are called "
                f"'{twice}'"
            )
        shapes = {sensor.name: sensor.shape for sensor in sensors}
        group = OBSERVATION_ENCODER_PLUGINS
        self.module = make_part(group, name, nn.Module, lambda make: make(shapes, **arguments))
        self.output_size = guarded(self._number_of_features, str(group.offered()[name]))(sensors)
        # It determines the number of rows per pass.
        self.widest = int(getattr(self.module, "widest", max(math.prod(sensor.shape) for sensor in sensors)))

    def forward(self, observations: Sequence[Tensor]) -> Tensor:
        """Maps one float tensor [B, *shape] per sensor to [B, output_size]."""
        features: Tensor = self.module.forward(dict(zip(self._names, observations, strict=True)))
        return features

    @torch.no_grad()
    def _number_of_features(self, sensors: Sequence[ObservationSpec]) -> int:
        features = self.forward([torch.zeros(_ROWS, *sensor.shape) for sensor in sensors])
        if not isinstance(features, Tensor) or features.dim() != 2 or len(features) != _ROWS:
            got = list(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise TypeError(f"expected a tensor of shape [batch, features] for {_ROWS} rows, got {got}")
        return features.shape[1]
