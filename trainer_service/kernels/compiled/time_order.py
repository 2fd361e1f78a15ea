"""Sequences as the compiled kernel takes them: step after step, at each step the longest sequence first."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import byref
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.kernels.compiled import library
from trainer_service.networks.encoders.memory import Sequences


class TimeOrder(NamedTuple):
    """N sequences of R steps in all, which lie end to end, in the order of time."""

    rows: Tensor
    """Where each step lies. int64 [R]"""

    active: NDArray[np.int64]
    """How many sequences have so many steps, [longest]."""

    memories: Tensor
    """Before the first step, the longest sequence's first. [N, memory size]"""

    @classmethod
    def of(cls, sequences: Sequences) -> TimeOrder:
        """sequences: at least one, and none is empty."""
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
        """Where that lies. Valid while this is there."""
        return byref(
            library.Sequences(
                steps=len(self.active),
                active=self.active.ctypes.data,
                memories=self.memories.data_ptr(),
                memory_size=self.memories.shape[1],
            )
        )


def groups(sequences: Sequences, rows: int) -> Iterator[tuple[slice, Sequences]]:
    """Sequences that lie end to end, in groups of about so many rows: the rows of each group, and its sequences."""
    ends = np.cumsum(sequences.filled.sum(dim=1).numpy())
    first = start = 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, start + rows, side="right")), first + 1)
        end = int(ends[last - 1])
        yield slice(start, end), Sequences(sequences.memories[first:last], sequences.filled[first:last])
        first, start = last, end
