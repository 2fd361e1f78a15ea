"""The gRPC edge in both of its forms: served by the reader itself, and by threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unity_bridge.transport.endpoint import Endpoint
from unity_bridge.transport.inbox import Inbox, can_serve_directly


@pytest.fixture(params=[True, False], ids=["direct", "threads"])
def inbox(request: pytest.FixtureRequest) -> Inbox:
    if request.param and not can_serve_directly():
        pytest.skip("the installed grpcio has another core interface than ours stands on")
    return Inbox(direct=request.param)


@pytest.fixture
def endpoint(inbox: Inbox) -> Iterator[Endpoint]:
    opened = Endpoint("127.0.0.1", 0, inbox, capacity=2)
    yield opened
    opened.stop()
