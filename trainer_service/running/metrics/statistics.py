"""Statistics of one behavior, collected until its next summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from trainer_service.running.metrics.summary import SIMULATOR, EpisodeStats, Series, Summary, is_reserved
from unity_bridge.arrays import Floats
from unity_bridge.side_channels import Aggregation, StatMessage

MAX_NAMES = 1000
"""Limit of the names of statistics that simulators choose, for one behavior of a run."""

MAX_SAMPLES = 100_000
"""Limit of the values that are kept of one name."""


class Statistics:
    """Collector of one behavior's statistics, which become one summary."""

    def __init__(self, behavior: str) -> None:
        self._behavior = behavior
        self._names: set[str] = set()
        """Names of statistics that simulators chose."""
        self._clear()

    def add(self, tag: str, value: ArrayLike) -> None:
        """Adds one value or an array of them; the summary has the mean over all values since the last one."""
        values = np.asarray(value, dtype=np.float64)
        self._collected.setdefault(tag, _Collected()).add(float(values.sum()), values.ravel())

    def add_stat(self, stat: StatMessage, *, is_own: bool = False) -> bool:
        """Adds a named statistic; the latest message of a name decides how its values are aggregated.

        Returns False where that would be too many names: each appears in every summary from then on.

        is_own: whether it is of the trainer or a callback. A simulator's is marked if the trainer uses its name.
        """
        tag = SIMULATOR + stat.name if not is_own and is_reserved(stat.name) else stat.name
        if tag not in self._names:
            if len(self._names) >= MAX_NAMES:
                return False
            self._names.add(tag)
        if stat.aggregation is Aggregation.MOST_RECENT:
            self._collected[tag] = _Collected()
        collected = self._collected.setdefault(tag, _Collected())
        collected.add(stat.value, (stat.value,))
        collected.is_sum = stat.aggregation is Aggregation.SUM
        collected.has_histogram = stat.aggregation is Aggregation.HISTOGRAM
        return True

    def add_episodes(self, returns: ArrayLike, lengths: ArrayLike) -> None:
        """Adds finished episodes of agents.

        Args:
            returns: one per agent, shape [E] or a single number.
            lengths: of the same episodes, in decisions.
        """
        self._returns.append(_row(returns))
        self._lengths.append(_row(lengths))

    def add_counted(self, returns: ArrayLike) -> None:
        """Adds the returns that count of a behavior with groups: of groups, and of agents without one. Shape [C]."""
        self._counted.append(_row(returns))

    def add_group_episodes(self, returns: ArrayLike) -> None:
        """Adds finished episodes of groups: one return each, shape [G] or a single number."""
        self._group_returns.append(_row(returns))

    def add_replaced_values(self, count: int) -> None:
        """Counts values of simulators that could not be used, and became 0."""
        self._replaced_values += count

    def drain(self, *, step: int, wall_s: float, steps_per_s: float, is_training: bool = True) -> Summary:
        """Returns the summary since the last call, and starts from its initial state."""
        summary = self.so_far(step=step, wall_s=wall_s, steps_per_s=steps_per_s, is_training=is_training)
        self._clear()
        return summary

    def so_far(self, *, step: int, wall_s: float, steps_per_s: float, is_training: bool = True) -> Summary:
        """Returns the summary since the last ``drain``, and keeps collecting."""
        return Summary(
            behavior=self._behavior,
            step=step,
            wall_s=wall_s,
            steps_per_s=steps_per_s,
            is_training=is_training,
            stats=self._stats(),
            replaced_values=self._replaced_values,
            series={tag: each.series() for tag, each in self._collected.items() if each.count},
        )

    def _stats(self) -> EpisodeStats:
        returns = _joined(self._returns), _joined(self._lengths), _joined(self._group_returns)
        return EpisodeStats(*returns, _joined(self._counted) if self._counted else None)

    def _clear(self) -> None:
        self._collected: dict[str, _Collected] = {}
        self._returns: list[Floats] = []
        self._lengths: list[Floats] = []
        self._group_returns: list[Floats] = []
        self._counted: list[Floats] = []
        self._replaced_values = 0


@dataclass(slots=True)
class _Collected:
    """The values of one tag so far."""

    total: float = 0.0
    count: int = 0
    is_sum: bool = False
    has_histogram: bool = False
    samples: list[float] = field(default_factory=list)

    def add(self, total: float, values: Sequence[float] | Floats) -> None:
        self.total += total
        self.count += len(values)
        self.samples.extend(values[: MAX_SAMPLES - len(self.samples)])

    def series(self) -> Series:
        return Series(self.total, self.count, self.is_sum, np.array(self.samples), self.has_histogram)


def _row(values: ArrayLike) -> Floats:
    return np.atleast_1d(np.asarray(values, dtype=np.float64))


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty(0)
