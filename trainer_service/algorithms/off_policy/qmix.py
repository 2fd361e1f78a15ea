"""QMIX, Rashid et al. 2018 (arXiv:1803.11485): the group's value grows with each agent's, by how much the state says.

The state is the simulator's, or what all agents see side by side. Acting needs neither: a mixer that is monotonic in
each agent's value leaves the best choices the best.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.algorithms.off_policy.vdn import VDN
from trainer_service.config.hyperparameters.off_policy import QMIXSettings
from trainer_service.networks.groups.group_q_network import require_vectors
from trainer_service.networks.groups.mixers import MonotonicMixer
from unity_bridge.specs import GLOBAL_STATE


class QMIX(VDN):
    """A learner of values that are mixed by a monotonic network of the state."""

    _settings_type = QMIXSettings
    _hyper: QMIXSettings

    def _make_mixer(self) -> nn.Module:
        hyper = self._hyper
        if hyper.state == "environment":
            sensors = [each for each in self._spec.observation_specs if each.name == GLOBAL_STATE]
            require_vectors("state: environment", sensors)
            size = sum(sensor.size for sensor in sensors)
        else:
            require_vectors("state: joint", self._agent_spec.observation_specs)
            size = self._num_agents * sum(sensor.size for sensor in self._agent_spec.observation_specs)
        return MonotonicMixer(
            self._num_agents,
            size,
            hyper.mixer_units,
            hyper.hypernet_units,
            layer_norm=self._settings.network_settings.layer_norm,
        )

    def _state(self, seen: Sequence[Tensor], state: Tensor | None, present: Tensor) -> Tensor:
        if state is None:
            return torch.cat(list(seen), dim=2).flatten(1)
        # All present agents were shown one and the same state.
        first = present.to(torch.uint8).argmax(dim=1)
        return state[torch.arange(len(state), device=state.device), first]
