"""The sensors that each trainer type uses."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import GroupOnPolicySettings
from trainer_service.errors import UserError
from trainer_service.learning.rollout.observation_selector import ObservationSelector, make_selector
from trainer_service.learning.rollout.sensor_roles import SensorRole, role_of
from unity_bridge.specs import GLOBAL_STATE, BehaviorSpec

MAX_UNASKED_GROUP_SIZE = 256
"""The largest group size for networks if ``group_size`` is not set."""


def with_group_size(settings: TrainerSettings, group: int) -> TrainerSettings:
    """Returns settings for groups of this size, if the settings have none.

    Raises UserError for groups above ``MAX_UNASKED_GROUP_SIZE``.
    """
    hyper = settings.hyperparameters
    sized = hyper.with_group_size(group)
    if sized is hyper:
        return settings
    if group > MAX_UNASKED_GROUP_SIZE and hyper.max_group_size is not None:
        raise UserError(
            f"got a group of at least {group} agents, expected at most {MAX_UNASKED_GROUP_SIZE}; for a larger group "
            "set hyperparameters.group_size"
        )
    return settings.model_copy(update={"hyperparameters": sized})


def with_sharing(settings: TrainerSettings, spec: BehaviorSpec) -> TrainerSettings:
    """Returns settings with the sharing of networks, for a heterogeneous group or one behavior."""
    hyper = settings.hyperparameters
    decided = hyper.with_sharing(team=bool(spec.members))
    return settings if decided is hyper else settings.model_copy(update={"hyperparameters": decided})


def selector_for(spec: BehaviorSpec, settings: TrainerSettings) -> ObservationSelector:
    """Returns the selector of the learner's sensors. Raises ValueError if the settings or agents lack a sensor."""
    hyper = settings.hyperparameters
    states = sensors_of(spec, SensorRole.GLOBAL_STATE)
    if states and len(states) == len(spec.observation_specs):
        raise ValueError(
            f"its only sensor is named '{GLOBAL_STATE}', which is for critics of groups, and no policy is shown it: "
            "give it another name"
        )
    if hyper.needs_global_state:
        _require_one_global_state(spec)
    num_agents = hyper.num_agents if hyper.needs_agent_index else 0
    return make_selector(
        spec, with_state=hyper.needs_global_state, num_agents=num_agents, shows_group=hyper.communicates
    )


def actor_sensors(spec: BehaviorSpec, hyper: GroupOnPolicySettings) -> list[int]:
    """Sensors of an actor: never the global state, and ids only if it serves several agents."""
    sees_ids = hyper.agent_ids and hyper.sharing != "none"
    return sensors_except(
        spec, {SensorRole.GLOBAL_STATE} if sees_ids else {SensorRole.GLOBAL_STATE, SensorRole.AGENT_ID}
    )


def sensors_except(spec: BehaviorSpec, hidden: Container[SensorRole]) -> list[int]:
    """Numbers of the sensors with other roles."""
    return [i for i, sensor in enumerate(spec.observation_specs) if role_of(sensor) not in hidden]


def sensors_of(spec: BehaviorSpec, role: SensorRole) -> list[int]:
    """Numbers of the sensors with this role."""
    return [i for i, sensor in enumerate(spec.observation_specs) if role_of(sensor) is role]


def with_sensors(spec: BehaviorSpec, sensors: Sequence[int]) -> BehaviorSpec:
    """Returns the behavior with only these sensors."""
    return replace(spec, observation_specs=tuple(spec.observation_specs[i] for i in sensors))


def _require_one_global_state(spec: BehaviorSpec) -> None:
    states = [spec.observation_specs[i] for i in sensors_of(spec, SensorRole.GLOBAL_STATE)]
    if not states:
        found = ", ".join(sensor.name for sensor in spec.observation_specs)
        raise ValueError(
            f"hyperparameters.state: environment needs a sensor named '{GLOBAL_STATE}', which the simulator does "
            f"not have (it has {found}); 'joint' does without"
        )
    if len(states) > 1:
        shapes = " and ".join(str(sensor.shape) for sensor in states)
        raise ValueError(
            f"hyperparameters.state: environment needs one '{GLOBAL_STATE}' for the whole team, whose members have "
            f"some of shapes {shapes}; 'joint' does without"
        )
