"""The order of sequences for the compiled kernel: step by step, at each step the longest sequence first."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import byref
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.learning.kernels.compiled import library
from trainer_service.learning.networks.encoders.memory import Sequences


class TimeOrder(NamedTuple):
    """N concatenated sequences of R steps in total, rearranged in the order of time."""

    rows: Tensor
    """Row of each step. int64 [R]"""

    active: NDArray[np.int64]
    """Number of sequences that have each step, [longest]."""

    memories: Tensor
    """Memories before the first step, the longest sequence's first. [N, memory size]"""

    @classmethod
    def of(cls, sequences: Sequences) -> TimeOrder:
        """Rearranges sequences. There must be at least one, and none may be empty."""
        lengths = sequences.filled.sum(dim=1).numpy()
        longest_first = np.argsort(-lengths, kind="stable")
        starts = (np.cumsum(lengths) - lengths)[longest_first]
        steps = np.arange(lengths.max())[:, None]
        there = steps < lengths[longest_first]
        return cls(
            rows=torch.from_numpy((starts + steps)[there]),
            active=there.sum(axis=1),
            memories=sequences.memories[torch.from_numpy(longest_first)],
        )

    def for_c(self) -> Any:
        """Pointers to the order. Valid as long as this object exists."""
        return byref(
            library.Sequences(
                steps=len(self.active),
                active=self.active.ctypes.data,
                memories=library.pointer(self.memories, torch.float32, self.memories.numel()),
                memory_size=self.memories.shape[1],
            )
        )


def groups(sequences: Sequences, rows: int) -> Iterator[tuple[slice, Sequences]]:
    """Yields groups of about ``rows`` rows of concatenated sequences: the rows and the sequences of each group."""
    ends = np.cumsum(sequences.filled.sum(dim=1).numpy())
    first = start = 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, start + rows, side="right")), first + 1)
        end = int(ends[last - 1])
        yield slice(start, end), Sequences(sequences.memories[first:last], sequences.filled[first:last])
        first, start = last, end
