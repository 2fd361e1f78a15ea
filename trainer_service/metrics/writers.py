"""Who gets the summaries, and the two that need no file of their own."""

from __future__ import annotations

import logging
from typing import Protocol

from trainer_service.metrics.summary import Series, Summary, summary_line
from trainer_service.metrics.timers import Timers

_logger = logging.getLogger(__name__)


class SummaryWriter(Protocol):
    """Keeps or shows summaries."""

    def write(self, summary: Summary) -> None:
        """Takes one more summary. Raises SaveError."""

    def truncate_after(self, behavior: str, step: int) -> None:
        """Forgets what lies beyond ``step``: a run that resumes there will say it again. Raises SaveError."""

    def close(self) -> None:
        """Finishes; nothing is written afterwards."""


class ConsoleWriter:
    """Logs one line per summary, in the words that ML-Agents' users grep for."""

    def write(self, summary: Summary) -> None:
        """Logs ``summary_line``."""
        _logger.info("%s", summary_line(summary))

    def truncate_after(self, behavior: str, step: int) -> None:
        """Nothing to do: what was said was said."""

    def close(self) -> None:
        """Nothing to do."""


class GaugeWriter:
    """Keeps the latest value and the range of every statistic in timers.json, as ML-Agents does."""

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
        """Nothing to do: gauges begin anew with every process."""

    def close(self) -> None:
        """Nothing to do: the timers are written by whoever owns them."""
