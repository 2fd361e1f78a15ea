"""The part of each minibatch that one of several learner ranks computes, and the sums over all ranks.

All ranks hold the same experience, draw the same permutations and the same noise, and compute some rows of each
minibatch. The mean over a minibatch is Σ_r share_r · mean_r. So gradients weighted by the ranks' shares add up to the
gradient of the whole minibatch: synchronous data parallelism, Goyal et al. 2017 (arXiv:1706.02677), section 2.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.ops.distributions import standard_exponential, standard_normal


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A rank's rows of a minibatch."""

    rows: slice | NDArray[np.int64]
    """Its rows in the whole minibatch."""

    count: int
    """Number of rows of the whole minibatch."""

    share: float = 1.0
    """The weight of its rows' mean in the mean of the minibatch."""

    copies: int = 1
    """Number of ranks that compute the same rows: all if there are fewer rows than ranks, otherwise 1."""


class Shard:
    """A learner without other ranks, which computes whole minibatches; also the interface of learner ranks."""

    rank = 0
    world = 1
    """Number of learner ranks."""

    def rows(self, count: int) -> slice:
        """The rank's rows of ``count``: every ``world``-th row; all rows if there are fewer rows than ranks."""
        return slice(None) if self.world == 1 or count < self.world else slice(self.rank, count, self.world)

    def part(self, count: int) -> Part:
        """The rank's part of a minibatch of ``count`` rows."""
        if self.world == 1:
            return Part(slice(None), count)
        if count < self.world:
            return Part(slice(None), count, 1.0 / self.world, self.world)
        rows = self.rows(count)
        return Part(rows, count, len(range(*rows.indices(count))) / count)

    def part_of_sequences(self, lengths: NDArray[np.int64]) -> tuple[slice, Part]:
        """The rank's part of a minibatch of concatenated sequences: its sequences, and their rows.

        lengths: rows of each sequence, [N].
        """
        part, count = self.part(len(lengths)), int(lengths.sum())
        sequences = self.rows(len(lengths))
        if self.world == 1 or part.copies > 1:
            return sequences, Part(slice(None), count, part.share, part.copies)
        own = np.zeros(len(lengths), np.bool_)
        own[sequences] = True
        rows = np.flatnonzero(np.repeat(own, lengths))
        return sequences, Part(rows, count, len(rows) / count)

    def add_up(self, tensor: Tensor) -> Tensor:
        """Sums a tensor over all ranks, in place. Returns it."""
        return tensor

    def weighted(self, mean: Tensor, share: float) -> Tensor:
        """The rank's addend of a mean over a minibatch. mean: over the rank's rows."""
        return mean if self.world == 1 else mean * share

    def mean(self, values: Tensor, count: Tensor | int) -> Tensor:
        """The rank's addend of a mean over ``count`` numbers. values: the rank's numbers, of any shape."""
        return values.mean() if self.world == 1 else values.sum() / count

    def collected(self, own: Tensor, part: Part) -> Tensor:
        """The rows of all ranks in their order, without gradients. own: the rank's rows, [B_r, …]. Returns [B, …]."""
        if self.world == 1 or part.copies > 1:
            return own
        # Added to zeros, so every number is unchanged.
        rows = own.new_zeros((part.count, *own.shape[1:]))
        rows[part.rows] = own
        return self.add_up(rows)

    def normal(self, like: Tensor, part: Part, generator: torch.Generator, *, times: int = 1) -> Tensor:
        """The rank's rows of draws with mean 0 and deviation 1 for the whole minibatch. Shape kept.

        times: number of repetitions of the part's rows in ``like``.
        """
        if self.world == 1:
            return standard_normal(like, generator)
        drawn = standard_normal(_of_all_rows(like, times * part.count), generator)
        return torch.cat([rows[part.rows] for rows in drawn.chunk(times)])

    def exponential(self, like: Tensor, part: Part, generator: torch.Generator) -> Tensor:
        """The rank's rows of draws of an exponential distribution with mean 1, like ``normal``. Shape kept."""
        if self.world == 1:
            return standard_exponential(like, generator)
        return standard_exponential(_of_all_rows(like, part.count), generator)[part.rows]


SINGLE_RANK = Shard()
"""A learner without other ranks."""


def _of_all_rows(like: Tensor, count: int) -> Tensor:
    """An empty tensor with ``count`` rows, in the memory layout of ``like``, which defines the order of draws."""
    shape = (count, *like.shape[1:])
    strides: list[int] = list(like.stride())
    order = sorted(range(len(shape)), key=lambda dimension: -strides[dimension])
    places = [order.index(dimension) for dimension in range(len(shape))]
    return like.new_empty([shape[dimension] for dimension in order]).permute(places)
