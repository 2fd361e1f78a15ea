"""The module ``mlagents.trainers.stats`` for ML-Agents' plugins: its names, as a writer uses them.

Written from its documented interface; see docs/tracking.md.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from trainer_service.running.metrics.summary import EpisodeStats, Series, Summary, summary_line
from trainer_service.running.metrics.tensorboard import TensorBoardWriter
from unity_bridge import mlagents_alias

mlagents_alias.install()  # before anything imports what follows
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod  # noqa: E402

__all__ = [
    "ConsoleWriter",
    "GaugeWriter",
    "StatsAggregationMethod",
    "StatsPropertyType",
    "StatsReporter",
    "StatsSummary",
    "StatsWriter",
    "TensorboardWriter",
]

_REWARD = "Environment/Cumulative Reward"
_LENGTH = "Environment/Episode Length"

_logger = logging.getLogger(__name__)


class StatsSummary(NamedTuple):
    """All values of one statistic between two summaries."""

    full_dist: list[float]
    aggregation_method: StatsAggregationMethod

    @staticmethod
    def empty() -> StatsSummary:
        """The summary of no values."""
        return StatsSummary([], StatsAggregationMethod.AVERAGE)

    @property
    def mean(self) -> float:
        return float(np.mean(self.full_dist))

    @property
    def std(self) -> float:
        return float(np.std(self.full_dist))

    @property
    def num(self) -> int:
        return len(self.full_dist)

    @property
    def sum(self) -> float:
        return float(np.sum(self.full_dist))

    @property
    def aggregated_value(self) -> float:
        """The one number that stands for the values: their sum or mean."""
        return self.sum if self.aggregation_method == StatsAggregationMethod.SUM else self.mean


class StatsPropertyType(Enum):
    """Kinds of properties that a writer may be told of."""

    HYPERPARAMETERS = "hyperparameters"
    SELF_PLAY = "selfplay"


class StatsWriter(ABC):
    """A base of ML-Agents' writers; ``category`` is a behavior's name."""

    def on_add_stat(  # noqa: B027 (a plugin need not overwrite it)
        self,
        category: str,
        key: str,
        value: float,
        aggregation: StatsAggregationMethod = StatsAggregationMethod.AVERAGE,
    ) -> None:
        """Called with every single value, here before the summary that it is part of."""

    @abstractmethod
    def write_stats(self, category: str, values: dict[str, StatsSummary], step: int) -> None:
        """Called with every summary."""

    def add_property(  # noqa: B027 (nor this one)
        self, category: str, property_type: StatsPropertyType, value: Any
    ) -> None:
        """Called with a behavior's settings, and where it plays against itself."""


class ConsoleWriter(StatsWriter):
    """A writer of lines to the log. The run has its own; this is for plugins that build on it."""

    def write_stats(self, category: str, values: dict[str, StatsSummary], step: int) -> None:
        _logger.info("%s", summary_line(_summary(category, values, step)))


class GaugeWriter(StatsWriter):
    """A writer that leaves gauges to the run, which has its own."""

    def write_stats(self, category: str, values: dict[str, StatsSummary], step: int) -> None:
        """Does nothing."""


class TensorboardWriter(StatsWriter):
    """A writer to event files of its own beside the run's, for plugins that put further values on TensorBoard."""

    def __init__(
        self, base_dir: str, clear_past_data: bool = False, hidden_keys: list[str] | None = None
    ) -> None:
        """clear_past_data: without effect, for nothing of a run is deleted on a plugin's word."""
        self.base_dir = base_dir
        self.hidden_keys = hidden_keys or []
        self._writer = TensorBoardWriter(lambda category: Path(base_dir, category))

    def write_stats(self, category: str, values: dict[str, StatsSummary], step: int) -> None:
        shown = {key: value for key, value in values.items() if key not in self.hidden_keys}
        self._writer.write(_summary(category, shown, step))

    def close(self) -> None:
        """Closes the files."""
        self._writer.close()


class StatsReporter:
    """The list of writers, which plugins look through and add to."""

    writers: ClassVar[list[StatsWriter]] = []

    @staticmethod
    def add_writer(writer: StatsWriter) -> None:
        """Lets a writer be told of everything from now on."""
        StatsReporter.writers.append(writer)


def _summary(category: str, values: Mapping[str, StatsSummary], step: int) -> Summary:
    """Statistics in ML-Agents' form as a summary of ours."""
    returns, lengths = (
        np.atleast_1d(np.array(values[key].full_dist if key in values else [], np.float64))
        for key in (_REWARD, _LENGTH)
    )
    if len(lengths) != len(returns):
        lengths = np.full(len(returns), lengths.mean() if len(lengths) else np.nan)
    return Summary(
        behavior=category,
        step=step,
        wall_s=0.0,
        steps_per_s=0.0,
        is_training="Is Training" not in values or values["Is Training"].aggregated_value > 0,
        stats=EpisodeStats(returns, lengths),
        series={key: Series.of(value.aggregated_value) for key, value in values.items()},
    )
