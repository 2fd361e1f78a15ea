"""The trainer's own log file in a run's folder."""

from __future__ import annotations

import logging
import logging.handlers
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer_service._version import __version__
from trainer_service.running.metrics.console import LOGGERS, HarmlessFormatter
from trainer_service.running.metrics.log_records import record_of_end
from trainer_service.running.runs.files import SaveError
from trainer_service.running.runs.layout import OLDER_LOGS

LARGEST_LOG = 10 * 2**20
"""Bytes of a log file after which the next one begins."""


@contextmanager
def log_file(path: Path, *, append: bool) -> Iterator[None]:
    """A context in which everything that our packages log is written to a file as well, with its time.

    A file of ``LARGEST_LOG`` bytes becomes ``NAME.1``, an older one ``NAME.2`` and so on, and the oldest is removed. An
    error that leaves the context is the last line. Where the disk is full lines are lost, which costs the run nothing.

    Args:
        path: the file; its folder is made if it is missing.
        append: whether to append to an existing file.

    Raises:
        SaveError: the file cannot be opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not append:
            path.unlink(missing_ok=True)
        handler = _LogFile(path, maxBytes=LARGEST_LOG, backupCount=OLDER_LOGS, encoding="utf-8")
    except OSError as error:
        raise SaveError(path, error) from error
    handler.setFormatter(HarmlessFormatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(lambda record: not getattr(record, "is_secret", False))  # a run's folder is passed on
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        handler.handle(_first_record())
        yield
    except BaseException as error:
        handler.handle(record_of_end(error))
        raise
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        handler.close()


class _LogFile(logging.handlers.RotatingFileHandler):
    """A rotated file, which loses lines where the disk is full."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)

    def close(self) -> None:
        """Closes the file, without what it could not write."""
        with suppress(OSError):
            super().close()


def _first_record() -> logging.LogRecord:
    """The record with which each start of a run begins its log."""
    text = (
        f"trainer-service {__version__}, Python {platform.python_version()}, process {os.getpid()} on "
        f"{platform.node()}: {' '.join(sys.argv)}"
    )
    return logging.LogRecord("trainer_service", logging.INFO, __file__, 0, text, None, None)
