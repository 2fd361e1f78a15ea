"""Writers of summaries: their base, and the two that need no file of their own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

from trainer_service.running.metrics.summary import Series, Summary, summary_line
from trainer_service.running.metrics.timers import Timers

RunEnd = Literal["finished", "interrupted", "failed"]
"""How a run ended: by itself or by a stop rule, by a signal, by an error."""

SUMMARY_OF_RECORD = "summary"
"""The attribute of a log record that holds the summary that its line is of."""

_logger = logging.getLogger(__name__)


class SummaryWriter:
    """The base class of writers, which store or show a run's summaries. Only ``write`` must be overwritten.

    All methods are called one after the other. Those of a run's own files raise SaveError where they cannot write.
    """

    def open(self) -> None:
        """Called once, before everything else."""

    def write(self, summary: Summary) -> None:
        """Writes one more summary."""
        raise NotImplementedError

    def write_settings(self, behavior: str, text: str) -> None:
        """Called when a behavior shows up. ``text`` is the YAML of a configuration with this behavior alone."""

    def write_evaluation(self, summary: Summary) -> None:
        """Writes the scores of an evaluation in the middle of the run, with tags such as
        ``Evaluation/Cumulative Reward``."""

    def write_film(self, behavior: str, step: int, film: Path) -> None:
        """Called with the film of an evaluation, an animated GIF in the run's folder that stays there."""

    def truncate_after(self, behavior: str, step: int) -> None:
        """Removes summaries after ``step`` where that can be done: a run that resumes there writes them again."""

    def forget(self, behavior: str) -> None:
        """Called when a behavior is gone before its first step: its summaries may be removed."""

    def close(self, end: RunEnd = "finished") -> None:
        """Closes the writer; nothing is written afterwards."""

    def join(self) -> None:
        """Waits, within reason, until the closed writer has sent everything. Called when all writers are closed."""


class ConsoleWriter(SummaryWriter):
    """A writer that logs one line per summary, in the words that ML-Agents' users grep for."""

    def write(self, summary: Summary) -> None:
        """Logs ``summary_line``, with the summary itself for handlers that write more than its text."""
        _logger.info("%s", summary_line(summary), extra={SUMMARY_OF_RECORD: summary})


class GaugeWriter(SummaryWriter):
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
