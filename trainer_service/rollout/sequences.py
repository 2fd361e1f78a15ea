"""Trajectories cut into sequences that a recurrent network is unrolled over. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Integers


@dataclass(frozen=True, slots=True, eq=False)
class StepRanges:
    """N runs of steps that follow each other, among S steps that lie end to end."""

    starts: Integers
    """First step of each. Shape [N]."""

    lengths: Integers
    """Steps of each, at least one. Shape [N]."""

    def __len__(self) -> int:
        return len(self.starts)

    def chosen(self, order: Integers | slice) -> StepRanges:
        """Some of them, in this order."""
        return StepRanges(self.starts[order], self.lengths[order])

    def steps(self) -> Integers:
        """Numbers of all their steps, one run after the other. Shape [sum of lengths]."""
        before = np.cumsum(self.lengths) - self.lengths
        steps: Integers = np.repeat(self.starts - before, self.lengths) + np.arange(self.lengths.sum())
        return steps

    def filled(self) -> NDArray[np.bool_]:
        """Where there are steps when every run gets a row as long as the longest. Shape [N, L]."""
        filled: NDArray[np.bool_] = np.arange(self.lengths.max()) < self.lengths[:, None]
        return filled


def cut(lengths: Integers, longest: int) -> StepRanges:
    """Trajectories of these lengths, each in runs of ``longest`` steps from its start; the last may be shorter."""
    segments = -(-lengths // longest)
    within = np.arange(segments.sum()) - np.repeat(np.cumsum(segments) - segments, segments)
    starts = np.repeat(np.cumsum(lengths) - lengths, segments) + within * longest
    remaining = np.repeat(lengths, segments) - within * longest
    return StepRanges(starts, np.minimum(remaining, longest))
