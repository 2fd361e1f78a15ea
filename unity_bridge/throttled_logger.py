"""A logger that stays quiet, however often a simulator repeats its mistake."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Mapping

MAX_LOGGED = 10
"""Messages of each kind that are logged; more are only counted."""

MAX_KINDS = 100
"""Kinds that are told apart; those beyond count as one. Some are named by simulators, which may have any number."""

DETAIL = {"is_detail": True}
"""The ``extra`` of a message that the console of a run shows only if everything is to be shown."""

_OTHERS = object()


class ThrottledLogger:
    """A logger that logs each kind of message a few times, then only counts it."""

    def __init__(self, logger: logging.Logger) -> None:
        """``logger`` gets the messages, as warnings unless ``log`` gets another level."""
        self._logger = logger
        self._counts: Counter[Hashable] = Counter()

    def log(
        self,
        kind: Hashable,
        message: str,
        *,
        most: int = MAX_LOGGED,
        error: BaseException | None = None,
        level: int = logging.WARNING,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """Logs a message, unless its kind was logged ``most`` times already. The last message says so.

        With an ``error`` its traceback follows. Use that for errors that point to a bug in the trainer.
        """
        if kind not in self._counts and len(self._counts) >= MAX_KINDS:
            kind = _OTHERS
        self._counts[kind] += 1
        if self._counts[kind] < most:
            self._logger.log(level, "%s", message, exc_info=error, extra=extra)
        elif self._counts[kind] == most:
            self._logger.log(
                level,
                "%s (said %d times; from now on only counted)",
                message,
                most,
                exc_info=error,
                extra=extra,
            )

    def count(self, kind: Hashable) -> int:
        """Number of messages of each kind, logged or not."""
        return self._counts[kind]
