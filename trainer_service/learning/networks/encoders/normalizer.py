"""Normalization of observations by running statistics."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.learning.rollout.sensor_roles import SensorRole, role_of
from trainer_service.ops.normalization import Moments, initial_moments, updated_moments, without_outliers
from unity_bridge.specs import ObservationSpec

LIMIT = 5.0
"""The largest absolute value of a normalized number, in standard deviations."""


class VectorNormalizer(nn.Module):
    """clip((x − μ)/σ, −5, 5) of one vector sensor, with running μ and σ."""

    rows: Tensor
    mean: Tensor
    sum_squares: Tensor
    # Moments have double precision; the values for acting are derived from them in single precision.
    shift: Tensor
    scale: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        for name, value in initial_moments(features)._asdict().items():
            self.register_buffer(name, value)
        self.register_buffer("shift", torch.zeros(features), persistent=False)
        self.register_buffer("scale", torch.ones(features), persistent=False)
        self.register_load_state_dict_post_hook(  # type: ignore[no-untyped-call]  # torch has no types here
            lambda module, _: module._derive()
        )

    def forward(self, observation: Tensor) -> Tensor:
        return torch.clamp((observation - self.shift) * self.scale, -LIMIT, LIMIT)

    def update(self, observations: Tensor) -> None:
        """Updates the moments with observations [N, features], outliers clipped."""
        if len(observations) == 0:
            return
        moments = Moments(self.rows, self.mean, self.sum_squares)
        ordinary = without_outliers(moments, observations.double())
        self._replace(**updated_moments(moments, ordinary)._asdict())
        self._derive()

    def _derive(self) -> None:
        self._replace(shift=self.mean.float(), scale=torch.rsqrt(self.sum_squares / self.rows).float())

    def _replace(self, **buffers: Tensor) -> None:
        """Sets buffers like assignments, without a module's checks, which cost more than the arithmetic here."""
        self._buffers.update(buffers)


class ObservationNormalizer(nn.Module):
    """Normalizes the vector sensors of a behavior, or returns all observations unchanged.

    It precedes the networks instead of being part of them. Its statistics change only between updates, so a whole
    rollout is normalized once instead of once per minibatch and network.

    In a heterogeneous group, a sensor's statistics are over agents that have it. For other agents it stays 0.
    """

    has_sensor: Tensor | None
    """1 if the agent of an index has a sensor. [n, sensors]; None if all agents have all sensors."""

    def __init__(
        self,
        sensors: Sequence[ObservationSpec],
        *,
        normalize: bool,
        has_sensor: Tensor | None = None,
    ) -> None:
        """Agent ids stay unchanged. With ``has_sensor`` they are the last sensor."""
        super().__init__()
        self.register_buffer("has_sensor", has_sensor if normalize else None, persistent=False)
        self._normalizers = nn.ModuleList(
            VectorNormalizer(sensor.size)
            if normalize and len(sensor.shape) == 1 and role_of(sensor) is not SensorRole.AGENT_ID
            else nn.Identity()
            for sensor in sensors
        )
        self.normalizes = any(map(self._is_normalized, range(len(sensors))))
        """Whether any sensor is normalized."""

    def forward(self, observations: Sequence[Tensor]) -> list[Tensor]:
        """Normalizes one tensor per sensor. Shapes kept."""
        normalized = [
            module.forward(sensor) for module, sensor in zip(self._normalizers, observations, strict=True)
        ]
        if self.has_sensor is None:
            return normalized
        has = observations[-1] @ self.has_sensor
        return [
            sensor * has[:, i : i + 1] if self._is_normalized(i) else sensor
            for i, sensor in enumerate(normalized)
        ]

    @property
    def of_sensors(self) -> list[VectorNormalizer | None]:
        """The normalizer of each sensor; None for a sensor without normalization."""
        return [module if isinstance(module, VectorNormalizer) else None for module in self._normalizers]

    def some(self, sensors: Sequence[int], observations: Sequence[Tensor]) -> list[Tensor]:
        """Normalizes the selected sensors of whole groups. [..., n, sensor's own]"""
        normalized = [self._normalizers[i](sensor) for i, sensor in zip(sensors, observations, strict=True)]
        if self.has_sensor is None:
            return normalized
        return [
            sensor * self.has_sensor[:, i : i + 1] if self._is_normalized(i) else sensor
            for i, sensor in zip(sensors, normalized, strict=True)
        ]

    def update(self, observations: Sequence[Tensor]) -> None:
        """Updates the statistics with a batch of observations, one tensor [N, …] per sensor."""
        has = None if self.has_sensor is None else observations[-1] @ self.has_sensor > 0
        for i, (module, sensor) in enumerate(zip(self._normalizers, observations, strict=True)):
            if isinstance(module, VectorNormalizer):
                module.update(sensor if has is None else sensor[has[:, i]])

    def _is_normalized(self, sensor: int) -> bool:
        return isinstance(self._normalizers[sensor], VectorNormalizer)
