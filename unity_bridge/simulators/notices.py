"""Warnings of the simulator's own code on their way to people: to standard error, and into the trainer's log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from unity_bridge.side_channels import Notice, notice_record
from unity_bridge.simulators.academy import Academy

_LOGGER = logging.getLogger("unity_bridge.simulators")


@contextmanager
def relayed_warnings(academy: Academy) -> Iterator[None]:
    """Sends what modules of the simulator log with the simulator's next message, for as long as the context lasts."""
    handler = _Relay(academy)
    _LOGGER.addHandler(handler)
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)


class _Relay(logging.Handler):
    def __init__(self, academy: Academy) -> None:
        super().__init__(logging.WARNING)
        self._academy = academy

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        print(text, file=sys.stderr)
        # Simulators that have something alike to say have the topic in common, or else the place in the code.
        topic = getattr(record, "topic", f"{record.module}:{record.lineno}")
        self._academy.send(notice_record(Notice(topic, text)))
