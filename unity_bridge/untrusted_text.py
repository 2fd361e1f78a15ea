"""Text that came from outside, made fit to be printed: quoted, cut, and without control characters."""

from __future__ import annotations

import re

_LONGEST_REASON = 200
"""Characters of an error's first line that a message repeats."""

LONGEST_QUOTED = 60
"""Characters of a text from outside that a message repeats."""

LONGEST_LINE = 2000
"""Characters of one line of the log."""

_PLAIN_VERSION = re.compile(r"[A-Za-z0-9.+_-]{1,40}")

_REORDERING = (*range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Line separators, and marks that change the direction of the text after them."""

_SURROGATES = range(0xD800, 0xE000)
"""Halves of characters: how Python reads bytes of a name that are no text. No file and no terminal takes them."""

_WRITTEN_OUT = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"},
    **{code: f"\\u{code:04x}" for code in (*_REORDERING, *_SURROGATES)},
}


def quoted(text: str) -> str:
    """Returns a text from outside in quotation marks, without control characters, and cut where it is long."""
    shown = repr(text[:LONGEST_QUOTED])
    return shown if len(text) <= LONGEST_QUOTED else f"{shown}… ({len(text)} characters)"


def printable(text: str) -> str:
    """Returns a text from outside with its control characters, and what cannot be encoded, written out."""
    return text.translate(_WRITTEN_OUT)


def first_line(error: BaseException) -> str:
    """Returns an error's message as one printable line; its type where it says nothing."""
    return printable((str(error).strip() or type(error).__name__).splitlines()[0][:_LONGEST_REASON])


def harmless(text: str) -> str:
    """Returns a text of several lines as it may be printed, whatever its sender put into it.

    Control characters are written out, very long lines are cut, and no line but the first begins like one of ours.
    """
    first, *others = printable(text).split("\n")
    lines = [first, *(f"  {line}" if line.startswith("[") else line for line in others)]
    return "\n".join(line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…" for line in lines)


def version_text(text: str) -> str:
    """Returns a version that came from outside as it is, and anything else quoted."""
    return text if _PLAIN_VERSION.fullmatch(text) else quoted(text)
