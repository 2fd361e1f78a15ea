"""The sections of the configuration that the plugins are tuned with: their docstrings become the editors' hints."""

from __future__ import annotations

from typing import ClassVar

from trainer_service.config import Hyperparameters, RewardSignalSettings
from trainer_service.config.values import NonNegative, PositiveCount, UnitInterval


class A2CSettings(Hyperparameters):
    """Advantage actor-critic (Mnih et al. 2016), in step with its simulators."""

    # What it cannot do is refused by name, before anything starts.
    supports_memory: ClassVar[bool] = False
    supports_cloning: ClassVar[bool] = False
    one_value: ClassVar[bool] = True

    batch_size: PositiveCount = 64
    """Steps of one gradient step; every step is used once."""

    buffer_size: PositiveCount = 256
    """Steps collected before an update."""

    beta: NonNegative = 0.01
    """Weight of the entropy bonus."""

    lambd: UnitInterval = 0.95
    """λ of generalized advantage estimation."""

    value_coefficient: NonNegative = 0.5
    """Weight of the critic's loss."""


class EffortSettings(RewardSignalSettings):
    """A reward for small continuous actions: minus the mean square of the sent actions."""
