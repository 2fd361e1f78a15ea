"""Learning from demonstrations beside rewards: the ``behavioral_cloning`` of a behavior."""

from __future__ import annotations

from trainer_service.config.section import Section
from trainer_service.config.values import Count, NonNegative, PositiveCount, Text


class BehavioralCloningSettings(Section):
    """Supervised steps towards the demonstrated actions, between policy updates."""

    demo_path: Text
    """A .demo file or a folder of them."""

    steps: Count = 0
    """Agent steps over which the cloning fades out; 0 never fades."""

    strength: NonNegative = 1.0
    """What the trainer's initial learning rate is multiplied by for cloning."""

    samples_per_update: Count = 0
    """Demonstrated steps of each pass, drawn anew; 0 uses all of them."""

    num_epoch: PositiveCount | None = None
    """Passes after each policy update; null means 3."""

    batch_size: PositiveCount | None = None
    """Steps of one gradient step; null means the trainer's batch_size."""

    def has_faded_out(self, step: int) -> bool:
        """Whether it has faded out at this step."""
        return 0 < self.steps <= step
