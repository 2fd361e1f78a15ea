"""Calls of a relay: numbered exchanges, so that one that is sent again gets the same reply and counts once.

A relay numbers the exchanges of each conversation from 1 on, in gRPC's metadata. It sends an exchange again when it
lost the line before the reply came; the trainer then answers with the same reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

from unity_bridge.transport.endpoint import Call, CallSource
from unity_bridge.transport.service import Metadata, Respond

SESSION = "x-relay-session"
"""Key of the conversation's name: the relay's host, the simulator's number there, and random digits."""

EXCHANGE = "x-relay-exchange"
"""Key of the exchange's number in its conversation, from 1 on."""

REPORT = "x-relay-report"
"""Key of a text for the trainer's log, encoded as in URLs: how a process ended, and its last lines of output."""

LONGEST_REPORT = 5000
"""Characters of an encoded report; gRPC takes 8 KiB of metadata."""

UNKNOWN_SESSION = "unknown relay session: introduce the simulator again"
"""The refusal of a later exchange of a conversation that another trainer held, or that is over."""

_PREFIX = "relay:"
"""The beginning of a relayed peer's name, in place of gRPC's ``ipv4:``."""

_SESSION = re.compile(r"[A-Za-z0-9._-]{1,64}/\d{1,9}-[0-9a-f]{16}")
_NUMBER = re.compile(r"[1-9]\d{0,17}")

_READABLE = " /:;,.()[]=+'\""
"""Characters of a report that stay as they are, beside letters and digits."""

_MOST_KEPT = 256 * 2**20
"""Bytes of all replies that are kept together."""

_MOST_ENDED = 4096
"""Ended conversations whose latest exchange is kept."""

_SHORT_REPLY = 1024
"""Bytes of the longest reply that is kept after its conversation: a refusal, or the end."""


class RelayedCall(Call):
    """One exchange of a relayed simulator. It keeps its reply, for the case that the relay sends the exchange again."""

    __slots__ = ("note_size", "number", "reply", "report")

    def __init__(
        self, endpoint: CallSource, session: str, number: int, data: bytes, respond: Respond, report: str
    ) -> None:
        super().__init__(endpoint, _PREFIX + session, data, respond)
        self.number = number
        self.report = report
        self.reply: bytes | str = b""
        """The reply or the refusal; empty while the exchange waits."""
        self.note_size: Callable[[int], None] = _ignore
        """A function to call with the size of the reply."""

    def answer(self, data: Any) -> None:
        """Sends a message back, on the line that the exchange was last sent on."""
        self.reply = data
        super().answer(data)
        self.note_size(len(data))

    def refuse(self, text: str) -> None:
        """Fails the call with status INVALID_ARGUMENT and this text."""
        self.reply = text
        super().refuse(text)
        self.note_size(len(text))

    def repeat(self, again: RelayedCall) -> None:
        """Moves to the line of the same exchange, sent again; answers there if this one is answered."""
        self._respond(None)
        self._respond = again._respond
        if isinstance(self.reply, str):
            super().refuse(self.reply)
        elif self.reply:
            super().answer(self.reply)

    def forget_reply(self) -> None:
        """Keeps the reply no longer. A relay that has not got it introduces its simulator again."""
        self.reply = UNKNOWN_SESSION


class RelayedCalls:
    """The latest exchange of each relayed conversation, with its reply.

    Any visitor may name a conversation. So nothing is kept of one before its introduction is accepted, nothing but a
    short reply after its end, and what is kept of all has a limit.
    """

    def __init__(self, most: int) -> None:
        """most: conversations at once."""
        self._most = most
        self._latest: dict[str, RelayedCall] = {}
        self._ended: dict[str, RelayedCall] = {}
        self._size = 0
        """Bytes of the replies in ``_latest``."""

    def is_new(self, call: RelayedCall) -> bool:
        """Whether an exchange may be the next of its conversation. Any other is answered here."""
        latest = self._latest.get(call.peer) or self._ended.get(call.peer)
        if latest is None and call.number > 1:
            call.refuse(UNKNOWN_SESSION)
        elif latest is None and len(self._latest) >= self._most:
            call.refuse(f"expected at most {self._most} relayed simulators at once, got another")
        elif latest is not None and call.number == latest.number:
            latest.repeat(call)
        elif latest is not None and call.number != latest.number + 1:
            call.refuse(f"exchange {call.number}: expected {latest.number + 1}, or {latest.number} once more")
        else:
            return True
        return False

    def keep(self, call: RelayedCall) -> None:
        """Keeps an exchange that was read as the latest of its conversation, which continues."""
        self._take(call.peer)
        self._ended.pop(call.peer, None)
        self._latest[call.peer] = call
        call.note_size = self._note_size
        self._note_size(len(call.reply))

    def keep_last(self, call: RelayedCall) -> None:
        """Keeps an exchange that ended its conversation; one whose introduction was refused is not known here."""
        if call.peer in self._ended:
            self._ended[call.peer] = call

    def end(self, peer: str) -> None:
        """Keeps no more of a conversation that is over than a short reply to its latest exchange."""
        latest = self._take(peer)
        if latest is None:
            return
        if len(latest.reply) > _SHORT_REPLY:
            latest.forget_reply()
        self._ended[peer] = latest
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def _take(self, peer: str) -> RelayedCall | None:
        latest = self._latest.pop(peer, None)
        if latest is not None:
            latest.note_size = _ignore
            self._size -= len(latest.reply)
        return latest

    def _note_size(self, size: int) -> None:
        """Adds the size of a reply, and forgets the largest replies while there is too much of them."""
        self._size += size
        while self._size > _MOST_KEPT:
            largest = max(self._latest.values(), key=lambda call: len(call.reply))
            if len(largest.reply) <= _SHORT_REPLY:
                return
            self._size -= len(largest.reply) - len(UNKNOWN_SESSION)
            largest.forget_reply()


def _ignore(size: int) -> None:
    pass


def relayed_call(
    endpoint: CallSource, data: bytes, respond: Respond, metadata: Metadata
) -> RelayedCall | None:
    """Returns a call as an exchange of a relay; None where its metadata names none, or no valid one."""
    named = dict(metadata)
    session, number = str(named.get(SESSION)), str(named.get(EXCHANGE))
    if not _SESSION.fullmatch(session) or not _NUMBER.fullmatch(number):
        return None
    report = unquote(str(named.get(REPORT, ""))[:LONGEST_REPORT])
    return RelayedCall(endpoint, session, int(number), data, respond, report)


def exchange_metadata(session: str, number: int, report: str = "") -> tuple[tuple[str, str], ...]:
    """Returns the metadata of one exchange of a relay."""
    metadata = ((SESSION, session), (EXCHANGE, str(number)))
    return (*metadata, (REPORT, quote(report, safe=_READABLE)[:LONGEST_REPORT])) if report else metadata
