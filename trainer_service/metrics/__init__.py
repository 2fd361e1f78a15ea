"""Metrics of a run: statistics between two summaries, the files that keep them, the console and timers."""

from trainer_service.metrics.jsonl import JsonLines, JsonlWriter, json_key, read_rows, to_json
from trainer_service.metrics.statistics import Statistics
from trainer_service.metrics.summary import (
    FILM_TAG,
    MEMBER_REWARD,
    EpisodeStats,
    Series,
    Summary,
    format_duration,
    format_return,
    summary_line,
)
from trainer_service.metrics.tensorboard import TensorBoardWriter
from trainer_service.metrics.writers import ConsoleWriter, GaugeWriter, RunEnd, SummaryWriter

__all__ = [
    "FILM_TAG",
    "MEMBER_REWARD",
    "ConsoleWriter",
    "EpisodeStats",
    "GaugeWriter",
    "JsonLines",
    "JsonlWriter",
    "RunEnd",
    "Series",
    "Statistics",
    "Summary",
    "SummaryWriter",
    "TensorBoardWriter",
    "format_duration",
    "format_return",
    "json_key",
    "read_rows",
    "summary_line",
    "to_json",
]
