"""Calls of simulators, as events of the inbox: a message and the way back, and the end of one."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from unity_bridge.steps import Actions, Steps

# gRPC carries a status text as a header of up to 12 bytes per character, and clients take headers of 8 KiB.
_REFUSAL_CHARACTERS = 600


class Source(Hashable, Protocol):
    """The place that a call comes from: an endpoint, or a simulator in its stead."""

    @property
    def port(self) -> int: ...


class Call:
    """One message of one simulator, and the way back."""

    __slots__ = ("_respond", "data", "endpoint", "peer")

    def __init__(
        self, endpoint: Source, peer: str, data: bytes | Steps, respond: Callable[[Any], None]
    ) -> None:
        self.endpoint = endpoint
        self.peer = peer
        """The caller as gRPC names it: stable for one connection."""
        self.data = data
        """The message; steps as they are where it comes from this process."""
        self._respond = respond

    def answer(self, data: bytes | Actions) -> None:
        """Sends a message back, or actions for steps as they are. Whatever follows, the first response counts."""
        self._respond(data)

    def refuse(self, text: str) -> None:
        """Fails the call with status INVALID_ARGUMENT and this text."""
        self._respond(text[:_REFUSAL_CHARACTERS])


@dataclass(frozen=True, slots=True, eq=False)
class HangUp:
    """The event that the client of a call is gone before the call was over."""

    call: Call
