"""Selection of observations: a learner's part of a simulator's sensors, with agent ids if it needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.group_trajectories import group_keys
from trainer_service.learning.rollout.sensor_roles import SensorRole, role_of
from unity_bridge.specs import BehaviorSpec, ObservationSpec
from unity_bridge.steps import Observation, StepBatch


@dataclass(frozen=True, slots=True, eq=False)
class ObservationSelector:
    """Selects a learner's sensors from a simulator's."""

    spec: BehaviorSpec
    """Sensors and actions of agents as the learner observes them."""

    kept_sensors: tuple[int, ...]
    """Numbers of the simulator's sensors that the learner observes, in order."""

    num_agents: int
    """Length of the agent ids, which come last; 0 without ids."""

    inputs: BehaviorSpec
    """Inputs of an exported model: all sensors of the simulator, the group's observations if used, and the ids last."""

    shows_group: bool
    """Whether each agent observes all agents of its group, before the ids."""

    @property
    def input_sensors(self) -> tuple[int, ...]:
        """Numbers of the ``inputs`` that the learner observes, in its order."""
        given = len(self.spec.observation_specs) - len(self.kept_sensors)
        size = len(self.inputs.observation_specs)
        return (*self.kept_sensors, *range(size - given, size))

    def batch(self, batch: StepBatch, agent_indices: NDArray[np.int64] | None) -> StepBatch:
        """Returns a tick with the learner's sensors. agent_indices: of each row in its group, for ids, [N].

        Raises ValueError for an invalid index.
        """
        if self.num_agents and agent_indices is not None:
            groups, first = group_keys(batch, 0), batch.num_terminal
            seen = self.rows(batch.observations, agent_indices, groups, first)
            return replace(batch, observations=tuple(seen))
        seen = [batch.observations[sensor] for sensor in self.kept_sensors]
        return batch if len(seen) == len(batch.observations) else replace(batch, observations=tuple(seen))

    def rows(
        self,
        observations: Sequence[Observation],
        agent_indices: NDArray[np.int64],
        groups: NDArray[np.int64],
        first: int = 0,
    ) -> list[Observation]:
        """Returns the learner's observations of N agents. observations: the simulator's sensors, [N, …] each.

        agent_indices, groups: each row's index and group, [N]. Rows before ``first`` belong to ended episodes: these
        agents do not observe other agents, and are not observed. Raises ValueError for an invalid index.
        """
        seen = [observations[sensor] for sensor in self.kept_sensors]
        ids = one_hot_agent_ids(agent_indices, self.num_agents)
        if not self.shows_group:
            return [*seen, ids]
        own = np.concatenate(seen, axis=1, dtype=np.float32)
        parts = (slice(None, first), slice(first, None))
        shared = [group_rows(own[part], agent_indices[part], groups[part], self.num_agents) for part in parts]
        return [*seen, np.concatenate(shared), ids]


def make_selector(
    spec: BehaviorSpec, *, with_state: bool, num_agents: int, shows_group: bool = False
) -> ObservationSelector:
    """Makes a selector. with_state: whether it keeps the global state. num_agents: length of ids; 0 for none.

    shows_group: whether agents observe their whole group. This needs ids and vector sensors. Raises ValueError for
    other sensors.
    """
    sensors = spec.observation_specs
    kept_sensors = tuple(
        i for i, sensor in enumerate(sensors) if with_state or role_of(sensor) is not SensorRole.GLOBAL_STATE
    )
    added = (SensorRole.AGENT_ID.added(num_agents),) if num_agents else ()
    if shows_group:
        added = (_group_sensor([sensors[i] for i in kept_sensors], num_agents), *added)
    shown = (*(sensors[i] for i in kept_sensors), *added)
    inputs = replace(spec, observation_specs=(*sensors, *added))
    return ObservationSelector(
        replace(spec, observation_specs=shown), kept_sensors, num_agents, inputs, shows_group
    )


def _group_sensor(sensors: Sequence[ObservationSpec], num_agents: int) -> ObservationSpec:
    for sensor in sensors:
        if len(sensor.shape) != 1:
            raise ValueError(
                f"agents that tell each other what they see need sensors that are vectors; '{sensor.name}' has "
                f"shape {sensor.shape}"
            )
    return SensorRole.TEAM_OBSERVATIONS.added(num_agents * sum(sensor.size for sensor in sensors))


def group_rows(
    own: NDArray[np.float32], agent_indices: NDArray[np.int64], groups: NDArray[np.int64], num_agents: int
) -> NDArray[np.float32]:
    """Returns the observations of each row's group, in the order of agent indices; zeros for absent agents.

    own: [N, d]; agent_indices, groups: of each row, [N]. Returns [N, num_agents·d].
    """
    _, group = np.unique(groups, return_inverse=True)
    size = int(group.max(initial=-1)) + 1
    everyone = np.zeros((size, num_agents, own.shape[1]), np.float32)
    everyone[group, agent_indices] = own
    rows: NDArray[np.float32] = everyone.reshape(size, num_agents * own.shape[1])[group]
    return rows


def one_hot_agent_ids(agent_indices: NDArray[np.int64], num_agents: int) -> NDArray[np.float32]:
    """Maps agent indices, [N], to one-hot rows, [N, num_agents]. Raises ValueError for an invalid index."""
    if len(agent_indices) and int(agent_indices.max()) >= num_agents:
        raise ValueError(
            f"got a group of at least {int(agent_indices.max()) + 1} agents, expected at most {num_agents}"
        )
    if len(agent_indices) and int(agent_indices.min()) < 0:
        raise ValueError(f"agent indices are counted from 0, got {int(agent_indices.min())}")
    hot: NDArray[np.float32] = (agent_indices[:, None] == np.arange(num_agents)).astype(np.float32)
    return hot
