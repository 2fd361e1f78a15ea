"""Checks that a learner supports its settings and its behavior, before anything starts."""

from __future__ import annotations

from typing import TypeVar

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.common import Hyperparameters
from unity_bridge.specs import ActionSpec

Kind = TypeVar("Kind", bound=Hyperparameters)


def require_settings(settings: TrainerSettings, kind: type[Kind]) -> Kind:
    """Returns the hyperparameters in their type. Raises ValueError if they are another learner's."""
    hyper = settings.hyperparameters
    if not isinstance(hyper, kind):
        raise ValueError(f"expected {kind.__name__}, got {type(hyper).__name__}")
    return hyper


def require_discrete(name: str, actions: ActionSpec) -> None:
    """Raises ValueError if any action is not discrete."""
    if actions.continuous_size:
        raise ValueError(
            f"{name} needs discrete actions; the behavior has {actions.continuous_size} continuous"
        )


def require_continuous(name: str, actions: ActionSpec) -> None:
    """Raises ValueError if any action is not continuous."""
    if actions.discrete_branches or not actions.continuous_size:
        raise ValueError(
            f"{name} needs continuous actions alone; the behavior has {actions.continuous_size} "
            f"continuous and {len(actions.discrete_branches)} discrete"
        )


def require_actions(settings: TrainerSettings, actions: ActionSpec) -> None:
    """Raises ValueError if there are no actions and the learner requires some."""
    none = not actions.continuous_size and not actions.discrete_size
    if none and settings.hyperparameters.needs_actions:
        raise ValueError(f"{settings.trainer_type} needs actions to learn; the behavior has none")
