"""Metrics of a run: statistics between two summaries, the files that keep them, the console and timers."""

from trainer_service.running.metrics.jsonl import JsonLines as JsonLines
from trainer_service.running.metrics.jsonl import JsonlWriter as JsonlWriter
from trainer_service.running.metrics.jsonl import json_key as json_key
from trainer_service.running.metrics.jsonl import read_rows as read_rows
from trainer_service.running.metrics.jsonl import to_json as to_json
from trainer_service.running.metrics.statistics import Statistics as Statistics
from trainer_service.running.metrics.summary import FILM_TAG as FILM_TAG
from trainer_service.running.metrics.summary import MEMBER_REWARD as MEMBER_REWARD
from trainer_service.running.metrics.summary import EpisodeStats as EpisodeStats
from trainer_service.running.metrics.summary import Series as Series
from trainer_service.running.metrics.summary import Summary as Summary
from trainer_service.running.metrics.summary import format_duration as format_duration
from trainer_service.running.metrics.summary import format_return as format_return
from trainer_service.running.metrics.summary import short_number as short_number
from trainer_service.running.metrics.summary import summary_line as summary_line
from trainer_service.running.metrics.writers import ConsoleWriter as ConsoleWriter
from trainer_service.running.metrics.writers import GaugeWriter as GaugeWriter
from trainer_service.running.metrics.writers import RunEnd as RunEnd
from trainer_service.running.metrics.writers import SummaryWriter as SummaryWriter
