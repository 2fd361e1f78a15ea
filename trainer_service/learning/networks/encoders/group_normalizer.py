"""Normalization of whole groups' observations, with the statistics of single agents."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from unity_bridge.specs import ObservationSpec


class GroupNormalizer(ObservationNormalizer):
    """Normalizes the observations of a group by the statistics of single agents' sensors.

    The last two sensors are the group's observations, one block per agent, and an agent's one-hot index. A block of
    zeros stays zeros: its agent is absent.
    """

    def __init__(
        self, sensors: Sequence[ObservationSpec], *, normalize: bool, has_sensor: Tensor | None = None
    ) -> None:
        """sensors: the agent's own, vectors; then these two. has_sensor: as in ObservationNormalizer."""
        own, num_agents = sensors[:-2], sensors[-1].size
        super().__init__(own, normalize=normalize, has_sensor=has_sensor)
        normalizers = list(self._normalizers)
        sizes = [sensor.size for sensor in own]
        group = _Blocks(normalizers, sizes, num_agents, has_sensor) if normalize else nn.Identity()
        self._normalizers.extend([group, nn.Identity()])

    def some(self, sensors: Sequence[int], observations: Sequence[Tensor]) -> list[Tensor]:
        """Normalizes all of an agent's own sensors like ObservationNormalizer. Zeros stay zeros here too.

        So the inputs in learning equal the inputs of the deciding agents.
        """
        presence = _presence(torch.cat(list(observations), dim=-1))
        return [sensor * presence for sensor in super().some(sensors, observations)]


class _Blocks(nn.Module):
    """Normalizes each of n blocks of [B, n·d] as one agent's sensors."""

    has_column: Tensor | None
    """1 if the agent of a block has a column. [n, d]; None if all agents have all columns."""

    def __init__(
        self,
        normalizers: Sequence[nn.Module],
        sizes: Sequence[int],
        num_agents: int,
        has_sensor: Tensor | None,
    ) -> None:
        super().__init__()
        columns = None
        if has_sensor is not None:
            columns = has_sensor[:, : len(sizes)].repeat_interleave(torch.tensor(sizes), dim=1)
        self.register_buffer("has_column", columns, persistent=False)
        # In a tuple they are not submodules of this module, since the state of the outer module already contains them.
        self._single = tuple(normalizers)
        self._sizes = tuple(sizes)
        self._num_agents = num_agents

    def forward(self, group: Tensor) -> Tensor:
        blocks = group.reshape(-1, self._num_agents, sum(self._sizes))
        presence = _presence(blocks)
        scaled, start = [], 0
        for normalizer, width in zip(self._single, self._sizes, strict=True):
            scaled.append(normalizer(blocks[:, :, start : start + width]))
            start += width
        together = torch.cat(scaled, dim=2) * presence
        if self.has_column is not None:
            together = together * self.has_column
        return together.reshape(-1, self._num_agents * sum(self._sizes))


def _presence(blocks: Tensor) -> Tensor:
    """Returns 1 for blocks with a nonzero number, otherwise 0. [..., d] to [..., 1]"""
    # Arithmetic instead of a condition, since old inference engines have no Where.
    size = blocks.abs().sum(dim=-1, keepdim=True)
    return torch.lt(0.0 * size, size).to(blocks.dtype)
