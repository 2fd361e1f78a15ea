"""Calls of a relay: numbered exchanges, so that one that is sent again gets the same reply and counts once.

A relay numbers the exchanges of each conversation from 1 on, in gRPC's metadata. It sends an exchange again when it
lost the line before the reply came; the trainer then answers with the same reply.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote

from unity_bridge.transport.endpoint import Call, Source
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

_MOST_SESSIONS = 4096


class RelayedCall(Call):
    """One exchange of a relayed simulator. It keeps its reply, for the case that the relay sends the exchange again."""

    __slots__ = ("_reply", "number", "report")

    def __init__(
        self, endpoint: Source, session: str, number: int, data: bytes, respond: Respond, report: str
    ) -> None:
        super().__init__(endpoint, _PREFIX + session, data, respond)
        self.number = number
        self.report = report
        self._reply: bytes | str | None = None

    def answer(self, data: Any) -> None:
        """Sends a message back, on the line that the exchange was last sent on."""
        self._reply = data
        self._respond(data)

    def refuse(self, text: str) -> None:
        """Fails the call with status INVALID_ARGUMENT and this text."""
        self._reply = text
        super().refuse(text)

    def repeat(self, again: RelayedCall) -> None:
        """Moves to the line of the same exchange, sent again; answers there if this one is answered."""
        self._respond(None)
        self._respond = again._respond
        if isinstance(self._reply, str):
            super().refuse(self._reply)
        elif self._reply is not None:
            self._respond(self._reply)


class RelayedCalls:
    """The latest exchange of each relayed conversation."""

    def __init__(self) -> None:
        self._latest: dict[str, RelayedCall] = {}

    def admit(self, call: RelayedCall) -> bool:
        """Whether an exchange is the next of its conversation. Any other is answered here: again, or with a refusal."""
        latest = self._latest.pop(call.peer, None)
        if latest is None and call.number > 1:
            call.refuse(UNKNOWN_SESSION)
            return False
        if latest is not None and call.number != latest.number + 1:
            self._latest[call.peer] = latest
            if call.number == latest.number:
                latest.repeat(call)
            else:
                call.refuse(
                    f"exchange {call.number}: expected {latest.number + 1}, or {latest.number} once more"
                )
            return False
        self._latest[call.peer] = call  # the last of the dictionary
        if len(self._latest) > _MOST_SESSIONS:
            del self._latest[next(iter(self._latest))]
        return True


def relayed_call(endpoint: Source, data: bytes, respond: Respond, metadata: Metadata) -> RelayedCall | None:
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
