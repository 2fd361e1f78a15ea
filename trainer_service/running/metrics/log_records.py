"""Log records as JSON, one object a line, and the record of the error that ended a run."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from trainer_service.errors import UserError
from trainer_service.running.metrics.jsonl import to_json
from trainer_service.running.metrics.writers import SUMMARY_OF_RECORD
from trainer_service.running.runs.files import with_short_paths
from unity_bridge.errors import BridgeError
from unity_bridge.untrusted_text import harmless


class JsonFormatter(logging.Formatter):
    """A formatter of one JSON object a line: ``time`` in UTC, ``level``, ``logger``, ``message``.

    The line of a summary has ``metrics``, with the keys of metrics.jsonl; that of an exception ``traceback``. All that
    is not ASCII is escaped, so that no line holds a control character.
    """

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": with_short_paths(harmless(record.getMessage())),
        }
        if (summary := getattr(record, SUMMARY_OF_RECORD, None)) is not None:
            metrics = to_json(summary)
            entry["metrics"] = {
                key: value
                for key, value in metrics.items()
                if not (isinstance(value, dict) and "edges" in value)  # a histogram, of no use in a log
            }
        if record.exc_info:
            entry["traceback"] = harmless(self.formatException(record.exc_info))
        return json.dumps(entry)


def record_of_end(error: BaseException) -> logging.LogRecord:
    """The log record of the error that ended a run; with a traceback, unless it was a user's or a simulator's."""
    is_explained = isinstance(error, UserError | BridgeError)
    text = str(error) if is_explained else f"{type(error).__name__}: {error}"
    trace = None if is_explained else (type(error), error, error.__traceback__)
    return logging.LogRecord("trainer_service", logging.ERROR, __file__, 0, text, None, trace)
