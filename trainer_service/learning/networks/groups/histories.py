"""The order of groups' observations for networks with memory. P places, B joint steps, n agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from trainer_service.config.network import MemorySettings
from trainer_service.learning.networks.encoders.memory import Memory, Sequences, make_memory


class Histories(NamedTuple):
    """Places of agents' sequences, sequence after sequence. All places of a sequence are of one agent."""

    rows: Tensor
    """The row of the group's observations at each place. int64 [P]"""

    agents: Tensor
    """The index of each place's agent. int64 [P]"""

    sequences: Sequences
    """The sequences of the places."""

    selected: Tensor
    """Places of the agents at the selected joint steps; arbitrary for absent agents. int64 [B, n]"""

    present: Tensor
    """Presence of members in the groups' observations. bool [R, n]"""

    def places(self, groups: Tensor) -> Tensor:
        """Gathers values of whole groups by place. [R, n, …] to [P, …]"""
        return groups[self.rows, self.agents]

    def without_memories(self, size: int) -> Histories:
        """The same histories, with empty memories at their starts. size: floats of a memory."""
        memories = self.sequences.memories.new_zeros((len(self.sequences.filled), size))
        return self._replace(sequences=self.sequences._replace(memories=memories))

    def of(self, agents: slice) -> Histories | None:
        """Returns the histories of these agents, numbered from 0 except in ``present``; None if there are none."""
        if agents == slice(None):
            return self
        members = self.agents.new_tensor(range(*agents.indices(self.selected.shape[1])))
        mine = torch.isin(self.agents, members)
        if not bool(mine.any()):
            return None
        memories, filled = self.sequences
        lengths = filled.sum(dim=1)
        its = mine[lengths.cumsum(dim=0) - lengths]
        filled = filled[its][:, : int(lengths[its].max())]
        numbers = (mine.cumsum(dim=0) - 1).clamp(min=0)
        return Histories(
            self.rows[mine],
            self.agents[mine] - members[0],
            Sequences(memories[its], filled),
            numbers[self.selected[:, agents]],
            self.present,
        )


class GroupInput(NamedTuple):
    """Observations of group members, with memory also the earlier observations."""

    observations: Sequence[Tensor]
    """Normalized, zeros for absent members: one [B, n, …] per sensor; with memory, of all groups of the places."""

    histories: Histories | None = None

    @property
    def required_histories(self) -> Histories:
        """The histories. Raises ValueError without any."""
        if self.histories is None:
            raise ValueError("networks with memory are shown sequences")
        return self.histories


class StackedMemory(nn.Module):
    """A recurrent layer for each of ``count`` agents or kinds of agents, or one for all agents."""

    layer_of: Tensor | None
    """The one-hot layer of each agent. [n, count]; None if each has its own."""

    def __init__(
        self, count: int, inputs: int, settings: MemorySettings, layer_of: Sequence[int] | None = None
    ) -> None:
        """layer_of: the layer of each agent, if several share one; None if each has its own, or all share one."""
        super().__init__()
        self.each = nn.ModuleList(make_memory(inputs, settings) for _ in range(count))
        one_hot = None if layer_of is None else torch.eye(count)[list(layer_of)]
        self.register_buffer("layer_of", one_hot, persistent=False)
        self.size = self.of(0).size
        self.output_size = self.of(0).output_size

    def of(self, agent: int) -> Memory:
        """Returns one agent's layer."""
        return cast(Memory, self.each[agent if len(self.each) > 1 else 0])

    def unroll(self, features: Tensor, histories: Histories) -> Tensor:
        """Applies each agent's layer to the places in time order. [P, F] to [P, output_size]"""
        memories, filled = histories.sequences
        if len(self.each) == 1:
            return self.of(0).unroll(features, memories, filled)
        lengths = filled.sum(dim=1)
        agents = histories.agents
        if self.layer_of is not None:
            agents = self.layer_of.argmax(dim=1)[agents]
        agents_of_sequences = agents[lengths.cumsum(dim=0) - lengths]
        outputs = features.new_empty((len(features), self.output_size))
        for agent in range(len(self.each)):
            mine, its = agents == agent, agents_of_sequences == agent
            longest = int(lengths[its].max()) if bool(its.any()) else 0
            if longest:
                its_filled = filled[its][:, :longest]
                outputs[mine] = self.of(agent).unroll(features[mine], memories[its], its_filled)
        return outputs

    def remembered(self, features: Tensor, seen: GroupInput) -> Tensor:
        """Features of the selected joint steps after all earlier ones, [B, n, output_size]. features: of all groups.

        Raises ValueError without histories.
        """
        histories = seen.required_histories
        return self.unroll(histories.places(features), histories)[histories.selected]

    def step(self, features: Tensor, memories: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """One step of M single agents: [M, F] and [M, size] to [M, output_size] and [M, size]. ids: one-hot [M, n]."""
        if len(self.each) == 1:
            return self.of(0).step(features, memories)
        if self.layer_of is not None:
            ids = ids @ self.layer_of
        # Every layer computes every row: a step is small, and exported models do the same.
        stepped = [self.of(agent).step(features, memories) for agent in range(len(self.each))]
        outputs, next_memories = (
            torch.stack([one[part] * ids[:, k : k + 1] for k, one in enumerate(stepped)]).sum(dim=0)
            for part in range(2)
        )
        return outputs, next_memories
