"""Learning from what others have shown."""

from trainer_service.imitation.demonstrations import DemonstratedSteps, Demonstrations, DemonstrationStore

__all__ = ["DemonstratedSteps", "DemonstrationStore", "Demonstrations"]
