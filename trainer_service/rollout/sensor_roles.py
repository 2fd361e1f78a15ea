"""Roles of sensors, which decide how a learner uses them.

A simulator may give its sensors any names. One name has a meaning, ``global_state``, and is documented. The sensors
that the trainer adds are told by a flag, so a simulator's sensor of the same name is an ordinary one.
"""

from __future__ import annotations

import enum

from unity_bridge.specs import GLOBAL_STATE, ObservationSpec


class SensorRole(enum.Enum):
    """The role of a sensor for a learner."""

    OBSERVATION = "observation"
    """An ordinary sensor of the simulator, which the agent sees."""

    GLOBAL_STATE = GLOBAL_STATE
    """The simulator's global state for central critics, which agents must not see."""

    AGENT_ID = "agent_id"
    """The index of the agent in its group, as one-hot; added by the trainer."""

    TEAM_OBSERVATIONS = "team_observations"
    """The group's observations, a block per agent, and in it one sensor after another; added by the trainer."""

    def added(self, size: int) -> ObservationSpec:
        """A sensor of this role that the trainer adds: a vector."""
        return ObservationSpec(self.value, (size,), added=True)


_ADDED = {SensorRole.AGENT_ID.value, SensorRole.TEAM_OBSERVATIONS.value}


def role_of(sensor: ObservationSpec) -> SensorRole:
    """The role of a sensor."""
    if sensor.added and sensor.name in _ADDED:
        return SensorRole(sensor.name)
    return SensorRole.GLOBAL_STATE if sensor.name == GLOBAL_STATE else SensorRole.OBSERVATION
