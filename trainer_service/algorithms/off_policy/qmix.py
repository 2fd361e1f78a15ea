"""QMIX, Rashid et al. 2018 (arXiv:1803.11485): the group's value grows with each agent's, by how much the state says.

The state is the simulator's, or what all agents see side by side. Acting needs neither: a mixer that is monotonic in
each agent's value leaves the best choices the best.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.algorithms.common.observation_selection import sensors_of
from trainer_service.algorithms.off_policy.vdn import VDN
from trainer_service.config.hyperparameters.off_policy import QMIXSettings
from trainer_service.networks.groups.group_q_network import require_vectors
from trainer_service.networks.groups.mixers import MonotonicMixer
from trainer_service.networks.members import observed_columns, sensors_of_agents
from trainer_service.rollout.sensor_roles import SensorRole


class QMIX(VDN):
    """A learner of values that are mixed by a monotonic network of the state."""

    _settings_type = QMIXSettings
    _hyper: QMIXSettings
    _columns: Tensor | None = None
    """What is not padding of all members' observations side by side; None where all is."""
    _shown: Tensor | None = None
    """Whether the agent of an index is shown the global state. [n]; None where everyone is."""

    def _make_mixer(self) -> nn.Module:
        hyper = self._hyper
        return MonotonicMixer(
            self._num_agents,
            self._environment_state() if hyper.state == "environment" else self._joint_state(),
            hyper.mixer_units,
            hyper.hypernet_units,
            layer_norm=self._settings.network_settings.layer_norm,
            keep_scale=self._settings.network_settings.keep_scale,
        )

    def _environment_state(self) -> int:
        """The size of the simulator's state."""
        number = sensors_of(self._spec, SensorRole.GLOBAL_STATE)[0]
        sensor = self._spec.observation_specs[number]
        require_vectors("state: environment", [sensor])
        has_sensor = sensors_of_agents(self._spec)
        if has_sensor is not None:
            self._shown = has_sensor[:, number].to(self._device) > 0
        return sensor.size

    def _joint_state(self) -> int:
        """The size of what all agents see side by side."""
        sensors = self._agent_spec.observation_specs
        require_vectors("state: joint", sensors)
        columns = observed_columns(self._agent_spec, range(len(sensors)))
        if columns is None:
            return self._num_agents * sum(sensor.size for sensor in sensors)
        self._columns = columns.to(self._device)
        return len(columns)

    def _state(self, seen: Sequence[Tensor], state: Tensor | None, present: Tensor) -> Tensor:
        if state is None:
            joint = torch.cat(list(seen), dim=2).flatten(1)
            return joint if self._columns is None else joint[:, self._columns]
        # All present agents that are shown a state were shown one and the same.
        shown = present if self._shown is None else present & self._shown
        first = shown.to(torch.uint8).argmax(dim=1)
        return state[torch.arange(len(state), device=state.device), first]
