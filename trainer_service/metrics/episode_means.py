"""Means over episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = Sequence[float] | NDArray[np.floating[Any]]


def mean_or_none(values: Values) -> float | None:
    """The mean; None of no values."""
    return float(np.mean(values)) if len(values) else None


def std_or_none(values: Values) -> float | None:
    """The standard deviation of these very values, not an estimate for others; None of no values."""
    return float(np.std(values)) if len(values) else None


class EpisodeMeans:
    """The means of a record of episodes; None without any."""

    __slots__ = ()

    returns: Values
    lengths: Values
    group_returns: Values

    @property
    def mean_return(self) -> float | None:
        """The mean return of agents."""
        return mean_or_none(self.returns)

    @property
    def std_return(self) -> float | None:
        """The standard deviation of agents' returns."""
        return std_or_none(self.returns)

    @property
    def mean_length(self) -> float | None:
        """The mean length of agents' episodes, in decisions."""
        return mean_or_none(self.lengths)

    @property
    def mean_group_return(self) -> float | None:
        """The mean return of groups."""
        return mean_or_none(self.group_returns)
