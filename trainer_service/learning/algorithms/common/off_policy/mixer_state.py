"""The state of a mixer: the simulator's global state, or all agents' concatenated observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from trainer_service.learning.algorithms.common.observation_selection import sensors_of
from trainer_service.learning.algorithms.common.off_policy.group_replay import GroupView
from trainer_service.learning.algorithms.common.off_policy.joint_minibatch import JointMinibatch
from trainer_service.learning.networks.groups.agent_networks import require_vectors
from trainer_service.learning.networks.members import observed_columns, sensors_of_agents
from trainer_service.learning.rollout.sensor_roles import SensorRole


class MixerState:
    """Returns the state of B joint steps, [B, size], from their minibatch."""

    def __init__(self, view: GroupView, kind: Literal["joint", "environment"], device: torch.device) -> None:
        """kind: ``joint`` for all agents' observations, ``environment`` for the simulator's ``global_state``.

        Raises ValueError if a sensor is not a vector.
        """
        self._columns: Tensor | None = None
        """Columns of all members' concatenated observations that are not padding; None for all."""
        self._shown: Tensor | None = None
        """Whether the agent of an index has the global state. [n]; None if all agents have it."""
        self.size = (
            self._environment_size(view, device) if kind == "environment" else self._joint_size(view, device)
        )

    def _environment_size(self, view: GroupView, device: torch.device) -> int:
        number = sensors_of(view.spec, SensorRole.GLOBAL_STATE)[0]
        sensor = view.spec.observation_specs[number]
        require_vectors("state: environment", [sensor])
        has_sensor = sensors_of_agents(view.spec)
        if has_sensor is not None:
            self._shown = has_sensor[:, number].to(device) > 0
        return sensor.size

    def _joint_size(self, view: GroupView, device: torch.device) -> int:
        sensors = view.agent_spec.observation_specs
        require_vectors("state: joint", sensors)
        columns = observed_columns(view.agent_spec, range(len(sensors)))
        if columns is None:
            return view.num_agents * sum(sensor.size for sensor in sensors)
        self._columns = columns.to(device)
        return len(columns)

    def now(self, batch: JointMinibatch) -> Tensor:
        """The state of the group's decision."""
        return self._of(batch.observations, batch.state, batch.present)

    def next(self, batch: JointMinibatch) -> Tensor:
        """The state of its next decision."""
        return self._of(batch.next_observations, batch.next_state, batch.next_present)

    def _of(self, seen: Sequence[Tensor], state: Tensor | None, present: Tensor) -> Tensor:
        """seen: the agents' observations; state: the simulator's, [B, n, S]."""
        if state is None:
            joint = torch.cat(list(seen), dim=2).flatten(1)
            return joint if self._columns is None else joint[:, self._columns]
        # All present agents with a global state have the same one.
        shown = present if self._shown is None else present & self._shown
        first = shown.to(torch.uint8).argmax(dim=1)
        return state[torch.arange(len(state), device=state.device), first]
