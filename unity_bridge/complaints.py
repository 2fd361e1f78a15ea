"""What strangers say, fit to be printed: quoted, cut, and not repeated for ever."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Hashable

LONGEST_QUOTED = 60
"""Characters of a stranger's text that a message repeats."""

SAID = 10
"""How often each kind of complaint is said before it is only counted."""

MOST_KINDS = 1000
"""Kinds that are told apart; those beyond count as one."""

LONGEST_LINE = 2000
"""Characters of one line of the log."""

_OTHERS = object()

_PLAIN_VERSION = re.compile(r"[A-Za-z0-9.+_-]{1,40}")

_REORDERING = (*range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Line separators, and marks that turn the direction of what follows."""

_WRITTEN_OUT = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"},
    **{code: f"\\u{code:04x}" for code in _REORDERING},
}


def quoted(text: str) -> str:
    """A text that came from outside, in quotation marks, without control characters, and cut where it is long."""
    shown = repr(text[:LONGEST_QUOTED])
    return shown if len(text) <= LONGEST_QUOTED else f"{shown}… ({len(text)} characters)"


def harmless(text: str) -> str:
    """A text of several lines as it may be printed, whatever somebody brought into it.

    Control characters are written out, lines end where they are longer than anybody reads, and no line but the first
    begins like one of ours.
    """
    first, *others = text.translate(_WRITTEN_OUT).split("\n")
    lines = [first, *(f"  {line}" if line.startswith("[") else line for line in others)]
    return "\n".join(line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…" for line in lines)


def version_text(text: str) -> str:
    """A version that came from outside as it is, and anything else quoted."""
    return text if _PLAIN_VERSION.fullmatch(text) else quoted(text)


class Complaints:
    """Says each kind of complaint a few times, then only counts it: who repeats a mistake must not fill the log."""

    def __init__(self, logger: logging.Logger) -> None:
        """``logger`` is where they are said, as warnings if nothing else is asked for."""
        self._logger = logger
        self._counts: Counter[Hashable] = Counter()

    def say(
        self,
        kind: Hashable,
        message: str,
        *,
        most: int = SAID,
        error: BaseException | None = None,
        level: int = logging.WARNING,
    ) -> None:
        """Logs a message, unless its kind was said ``most`` times already; the last time tells that it is.

        With an ``error`` its traceback follows: for what should not have been possible.
        """
        if kind not in self._counts and len(self._counts) >= MOST_KINDS:
            kind = _OTHERS
        self._counts[kind] += 1
        if self._counts[kind] < most:
            self._logger.log(level, "%s", message, exc_info=error)
        elif self._counts[kind] == most:
            self._logger.log(
                level, "%s (said %d times; from now on only counted)", message, most, exc_info=error
            )

    def count(self, kind: Hashable) -> int:
        """How often a kind came up, said or not."""
        return self._counts[kind]
