"""Simulator to trainer: lines that a person at the trainer should read."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from unity_bridge.errors import WireError
from unity_bridge.side_channels.framing import SideChannelRecord

NOTICES = UUID("0c7be4d1-92a5-5a36-8d0f-41f2b9f3c7e8")
"""A channel of this project; Unity knows nothing of it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A line for the trainer's log."""

    topic: str
    """The topic, a word without line breaks: simulators of a run that say one thing have one topic."""

    text: str


def notice_record(notice: Notice) -> SideChannelRecord:
    """The notice as a message on its channel: the topic, a line break and the text, in UTF-8."""
    return SideChannelRecord(NOTICES, f"{notice.topic}\n{notice.text}".encode())


def parse_notice(body: bytes) -> Notice:
    """Parses a message on the channel.

    Raises:
        WireError: it is no text, or has no topic.
    """
    try:
        topic, line_break, text = body.decode().partition("\n")
    except UnicodeDecodeError:
        raise WireError(f"notice: expected a text in UTF-8, got {len(body)} other bytes") from None
    if not (topic and line_break):
        raise WireError("notice: expected a topic and a text, got one line")
    return Notice(topic, text)
