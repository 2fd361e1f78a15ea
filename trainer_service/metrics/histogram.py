"""How often values lie where."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainer_service.metrics.summary import Floats

_BINS = 30


def bins(samples: Floats) -> tuple[NDArray[np.int64], Floats]:
    """How many of the samples lie in each of 30 equal bins over their range: counts [30] and edges [31]."""
    counts, edges = np.histogram(samples, bins=_BINS)
    return counts.astype(np.int64), edges


def finite(samples: Floats) -> Floats:
    """Those that have a place on a scale: a histogram needs a range."""
    return samples[np.isfinite(samples)]
