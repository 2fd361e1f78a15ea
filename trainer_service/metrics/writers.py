"""Writers of summaries: their protocol, and the two that need no file of their own."""

from __future__ import annotations

import logging
from typing import Protocol

from trainer_service.metrics.summary import Series, Summary, summary_line
from trainer_service.metrics.timers import Timers

_logger = logging.getLogger(__name__)


class SummaryWriter(Protocol):
    """Protocol of whatever keeps or shows summaries."""

    def write(self, summary: Summary) -> None:
        """Writes one more summary. Raises SaveError."""

    def truncate_after(self, behavior: str, step: int) -> None:
        """Removes summaries after ``step``: a run that resumes there writes them again. Raises SaveError."""

    def close(self) -> None:
        """Closes the writer; nothing is written afterwards."""


class ConsoleWriter:
    """A writer that logs one line per summary, in the words that ML-Agents' users grep for."""

    def write(self, summary: Summary) -> None:
        """Logs ``summary_line``."""
        _logger.info("%s", summary_line(summary))

    def truncate_after(self, behavior: str, step: int) -> None:
        """Does nothing: a logged line cannot be taken back."""

    def close(self) -> None:
        """Does nothing."""


class GaugeWriter:
    """A writer of every statistic's latest value and range to timers.json, as in ML-Agents."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def write(self, summary: Summary) -> None:
        """Sets gauges such as ``Ball.Policy.Entropy.mean`` and ``Ball.Policy.Entropy.sum`` for each statistic."""
        own = {"Is Training": Series.of(summary.is_training), "Step": Series.of(summary.step)}
        for tag, series in {**summary.tagged(), **own}.items():
            name = f"{summary.behavior}.{tag}".replace("/", ".").replace(" ", "")
            self._timers.gauge(f"{name}.mean", series.mean)
            self._timers.gauge(f"{name}.sum", series.total)

    def truncate_after(self, behavior: str, step: int) -> None:
        """Does nothing: gauges begin anew with every process."""

    def close(self) -> None:
        """Does nothing: the owner of the timers writes them."""
