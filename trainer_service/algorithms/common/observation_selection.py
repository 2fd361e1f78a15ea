"""What each trainer type is shown of its simulators."""

from __future__ import annotations

from collections.abc import Container, Sequence

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import QMIXSettings, ShareSettings, SICSettings
from trainer_service.config.hyperparameters.on_policy import (
    COMASettings,
    GroupSettings,
    MAPPOSettings,
    POCASettings,
    TeamHyperparameters,
)
from trainer_service.errors import UserError
from trainer_service.rollout.observation_selector import AGENT_ID, SensorView, view_of
from unity_bridge.specs import GLOBAL_STATE, BehaviorSpec

MOST_UNASKED = 256
"""Agents of a group that networks are made for where nobody says how many there are."""


def learns_by_group(settings: TrainerSettings) -> bool:
    """Whether the trainer type wants what a whole group did together."""
    return isinstance(settings.hyperparameters, GroupSettings)


def most_of_a_group(settings: TrainerSettings) -> int | None:
    """The most agents that a group may have for this learner; None where it does not care."""
    hyper = settings.hyperparameters
    if not isinstance(hyper, GroupSettings):
        return None
    if isinstance(hyper, POCASettings) and hyper.share == "full" and not hyper.agent_ids:
        return None
    return hyper.group_size or 1


def sized(settings: TrainerSettings, group: int) -> TrainerSettings:
    """The same, with the size of groups that was seen where none was set.

    Raises UserError for groups of which nobody said that networks shall be made for so many.
    """
    hyper = settings.hyperparameters
    if not isinstance(hyper, GroupSettings) or hyper.group_size is not None:
        return settings
    if group > MOST_UNASKED and most_of_a_group(settings) is not None:
        raise UserError(
            f"a group of at least {group} agents came; networks are made for {MOST_UNASKED} at most unless "
            "hyperparameters.group_size asks for more"
        )
    return settings.model_copy(update={"hyperparameters": hyper.model_copy(update={"group_size": group})})


def uses_state(settings: TrainerSettings) -> bool:
    """Whether its critic or mixer sees the simulator's global state."""
    hyper = settings.hyperparameters
    return isinstance(hyper, MAPPOSettings | COMASettings | QMIXSettings) and hyper.state == "environment"


def communicates(settings: TrainerSettings) -> bool:
    """Whether its agents decide from what everyone in their group sees."""
    return isinstance(settings.hyperparameters, ShareSettings | SICSettings)


def view_for(spec: BehaviorSpec, settings: TrainerSettings) -> SensorView:
    """Which sensors the learner gets. Raises ValueError where one is missing that its settings need."""
    hyper = settings.hyperparameters
    state = uses_state(settings)
    if state and not any(sensor.name == GLOBAL_STATE for sensor in spec.observation_specs):
        found = ", ".join(sensor.name for sensor in spec.observation_specs)
        raise ValueError(
            f"hyperparameters.state: environment needs a sensor named '{GLOBAL_STATE}', which the simulator does "
            f"not have (it has {found}); 'joint' does without"
        )
    places, team = 0, communicates(settings)
    if isinstance(hyper, GroupSettings) and (hyper.share == "none" or hyper.agent_ids or team):
        places = hyper.group_size or 1
    return view_of(spec, with_state=state, places=places, team=team)


def own_sensors(spec: BehaviorSpec, hyper: TeamHyperparameters) -> list[int]:
    """What an actor decides from: never the global state, and ids only where one actor serves all."""
    return sensors_except(spec, {GLOBAL_STATE, AGENT_ID} if hyper.share == "none" else {GLOBAL_STATE})


def sensors_except(spec: BehaviorSpec, hidden: Container[str]) -> list[int]:
    """Numbers of the sensors that have other names."""
    return [i for i, sensor in enumerate(spec.observation_specs) if sensor.name not in hidden]


def with_sensors(spec: BehaviorSpec, chosen: Sequence[int]) -> BehaviorSpec:
    """The behavior as somebody knows it who sees these sensors only."""
    return BehaviorSpec(tuple(spec.observation_specs[i] for i in chosen), spec.action_spec)
