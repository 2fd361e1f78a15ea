"""Learning from what others have shown."""

from trainer_service.imitation.demonstrations import (
    DemonstratedSteps,
    Demonstrations,
    DemonstrationStore,
    read_all,
)

__all__ = ["DemonstratedSteps", "DemonstrationStore", "Demonstrations", "read_all"]
