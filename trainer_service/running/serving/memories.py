"""The memories of callers of a policy, by their ids."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray


class CallerMemories:
    """One memory for each caller, with a limit and an age. The least recent caller is forgotten first."""

    def __init__(
        self, size: int, most: int, age_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """size: floats of a memory; most: callers; age_s: seconds without a call; clock: in seconds."""
        self.size, self._most, self._age_s, self._clock = size, most, age_s, clock
        self.forgotten = 0
        self._callers: OrderedDict[str, tuple[float, NDArray[np.float32]]] = OrderedDict()
        """When each one called last, and its memory; the least recent one first."""

    def __len__(self) -> int:
        return len(self._callers)

    def read(
        self, ids: Sequence[str], begins: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Returns memories [M, size], zeros where they begin, and which of them were kept."""
        self.forget_silent()
        kept = np.array([each in self._callers for each in ids]) & ~begins
        memories = np.zeros((len(ids), self.size), np.float32)
        if kept.any():
            memories[kept] = [self._callers[ids[row]][1] for row in np.flatnonzero(kept).tolist()]
        return memories, kept

    def write(self, ids: Sequence[str], memories: NDArray[np.float32]) -> None:
        """Remembers callers, as of now."""
        now = self._clock()
        for each, memory in zip(ids, memories, strict=True):
            self._callers[each] = now, memory.copy()  # a view would keep those of all callers
            self._callers.move_to_end(each)
        while len(self._callers) > self._most:
            self._forget_first()

    def forget_silent(self) -> None:
        """Forgets callers without a call for too long."""
        oldest = self._clock() - self._age_s
        while self._callers and next(iter(self._callers.values()))[0] < oldest:
            self._forget_first()

    def _forget_first(self) -> None:
        self._callers.popitem(last=False)
        self.forgotten += 1
