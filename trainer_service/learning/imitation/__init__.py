"""Imitation learning from demonstrations."""

from trainer_service.learning.imitation.demonstrations import (
    DemonstratedSteps,
    Demonstrations,
    DemonstrationStore,
    check_fit,
    read_all,
)

__all__ = ["DemonstratedSteps", "DemonstrationStore", "Demonstrations", "check_fit", "read_all"]
