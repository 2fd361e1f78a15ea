"""Minibatches of a rollout: of steps in any order, or of whole sequences for policies with memory."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from trainer_service.kernels.ppo_epoch import Minibatch
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.networks.shard import SINGLE_RANK, Shard
from trainer_service.rollout.trajectories import StepRanges, Trajectories, split_into_sequences


def minibatch_slices(rows: int, batch_size: int) -> list[slice]:
    """Slices of ``batch_size`` that cover all rows. A remainder of at least half that size is a separate minibatch.

    A smaller remainder is added to the last minibatch. Adam's steps do not depend on the gradient's size. So a noisy
    gradient of one or two rows would move all weights as far as a full minibatch.
    """
    starts = list(range(0, rows, batch_size))
    if len(starts) > 1 and 2 * (rows - starts[-1]) < batch_size:
        del starts[-1]
    return [slice(start, end) for start, end in itertools.pairwise([*starts, rows])]


class MinibatchSampler:
    """Random minibatches of the steps of one rollout, for policies without memory."""

    sequences: Sequences | None = None
    """All steps in the order of time; None without memory."""

    final_sequences: Sequences | None = None
    """The final observations as sequences of one step; None without memory."""

    def __init__(self, steps: int, batch_size: int, device: torch.device, shard: Shard = SINGLE_RANK) -> None:
        """device: of the steps. shard: this rank's part of each minibatch."""
        self.steps = steps
        self.batch_size = batch_size
        self.device = device
        self.shard = shard

    def shuffle(self, generator: torch.Generator) -> tuple[Tensor, list[Minibatch]]:
        """One epoch: all steps in random order, and the minibatches of ``batch_size`` steps in this order."""
        order = torch.randperm(self.steps, generator=generator).to(self.device)
        minibatches = []
        for whole in minibatch_slices(self.steps, self.batch_size):
            rows, share = range(whole.start, whole.stop), 1.0
            if self.shard.world > 1:
                rows, share = rows[self.shard.rows(len(rows))], self.shard.part(len(rows)).share
            minibatches.append(Minibatch(slice(rows.start, whole.stop, rows.step), share))
        return order, minibatches


class SequenceSampler(MinibatchSampler):
    """Random minibatches of whole sequences. Each starts with the agent's memory at its first step.

    These memories were computed by the acting policy, and stay the same in later epochs.
    """

    def __init__(
        self,
        trajectories: Trajectories,
        sequence_length: int,
        batch_size: int,
        device: torch.device,
        shard: Shard = SINGLE_RANK,
    ) -> None:
        """A minibatch has as many sequences as fill ``batch_size`` at full length, at least one."""
        super().__init__(len(trajectories), batch_size, device, shard)
        self._ranges = split_into_sequences(trajectories.lengths, sequence_length)
        self._sequences_per_minibatch = max(batch_size // sequence_length, 1)
        self._memories = torch.from_numpy(trajectories.memories).to(device)
        self.sequences = self._sequences(self._ranges)
        ends = torch.from_numpy(trajectories.final_memories).to(device)
        self.final_sequences = Sequences(ends, ends.new_ones((len(ends), 1), dtype=torch.bool))

    def shuffle(self, generator: torch.Generator) -> tuple[Tensor, list[Minibatch]]:
        """One epoch: sequences in random order, each in time order; only this rank's sequences."""
        order = torch.randperm(len(self._ranges), generator=generator)
        ranges = self._ranges.select(order.numpy())
        minibatches, steps = [], []
        end = 0
        for rows in minibatch_slices(len(ranges), self._sequences_per_minibatch):
            chosen = ranges.select(rows)
            sequences, part = self.shard.part_of_sequences(chosen.lengths)
            own = chosen.select(sequences)
            steps.append(own.steps())
            start, end = end, end + len(steps[-1])
            minibatches.append(Minibatch(slice(start, end), part.share, self._sequences(own)))
        return (torch.from_numpy(np.concatenate(steps)).to(self.device), minibatches)

    def _sequences(self, ranges: StepRanges) -> Sequences:
        starts, filled = torch.from_numpy(ranges.starts), torch.from_numpy(ranges.filled())
        return Sequences(self._memories[starts.to(self.device)], filled.to(self.device))
