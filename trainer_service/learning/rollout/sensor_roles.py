"""Roles of sensors, which define how a learner uses them.

A simulator may give its sensors any names. Only the documented name ``global_state`` has a meaning. A flag marks the
sensors that the trainer adds, so a simulator's sensor with the same name is an ordinary one.
"""

from __future__ import annotations

import enum

from unity_bridge.specs import GLOBAL_STATE, ObservationSpec


class SensorRole(enum.Enum):
    """The role of a sensor for a learner."""

    OBSERVATION = "observation"
    """An ordinary sensor of the simulator, which the agent observes."""

    GLOBAL_STATE = GLOBAL_STATE
    """The simulator's global state for central critics, which agents must not observe."""

    AGENT_ID = "agent_id"
    """The one-hot index of the agent in its group, added by the trainer."""

    TEAM_OBSERVATIONS = "team_observations"
    """The group's observations, agent by agent and sensor by sensor, added by the trainer."""

    def added(self, size: int) -> ObservationSpec:
        """Returns a sensor of this role, as the trainer adds it: a vector."""
        return ObservationSpec(self.value, (size,), added=True)


_ADDED = {SensorRole.AGENT_ID.value, SensorRole.TEAM_OBSERVATIONS.value}


def role_of(sensor: ObservationSpec) -> SensorRole:
    """Returns the role of a sensor."""
    if sensor.added and sensor.name in _ADDED:
        return SensorRole(sensor.name)
    return SensorRole.GLOBAL_STATE if sensor.name == GLOBAL_STATE else SensorRole.OBSERVATION
