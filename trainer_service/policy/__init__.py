"""A trained policy to act with: on arrays, and on the spaces of a Gymnasium environment."""

from trainer_service.policy.policy import (
    Policy,
    by_behavior,
    checkpoints_of,
    chosen_checkpoints,
    load_policy,
    random_policy,
)

__all__ = [
    "Policy",
    "by_behavior",
    "checkpoints_of",
    "chosen_checkpoints",
    "load_policy",
    "random_policy",
]
