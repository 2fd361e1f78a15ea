"""What some learners cannot do, said by name before anything starts."""

from __future__ import annotations

from typing import TypeVar

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters import Hyperparameters
from trainer_service.config.rewards import RewardSignalSettings
from unity_bridge.specs import ActionSpec

Kind = TypeVar("Kind", bound=Hyperparameters)


def require_settings(settings: TrainerSettings, kind: type[Kind]) -> Kind:
    """The hyperparameters. Raises ValueError where they are another learner's."""
    hyper = settings.hyperparameters
    if not isinstance(hyper, kind):
        raise ValueError(f"{settings.trainer_type} was given the settings of {type(hyper).__name__}")
    return hyper


def require_task_alone(settings: TrainerSettings) -> RewardSignalSettings:
    """For who learns without memory, from the task's own rewards and from nothing else. Returns their signal.

    Raises ValueError where the settings ask for more.
    """
    name, signals = settings.trainer_type, settings.reward_signals
    if settings.network_settings.memory is not None:
        raise ValueError(f"{name} does not learn with memory: remove network_settings.memory")
    if list(signals) != ["extrinsic"]:
        raise ValueError(f"{name} learns from the reward signal extrinsic alone, got {', '.join(signals)}")
    if settings.behavioral_cloning is not None:
        raise ValueError(f"{name} does not learn from demonstrations: remove behavioral_cloning")
    return signals["extrinsic"]


def require_discrete(name: str, actions: ActionSpec) -> None:
    """Raises ValueError where actions are not choices alone."""
    if actions.continuous_size:
        raise ValueError(
            f"{name} needs discrete actions; the behavior has {actions.continuous_size} continuous"
        )
