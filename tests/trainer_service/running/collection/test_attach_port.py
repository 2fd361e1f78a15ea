"""The port for simulators and callers warns of what other machines may do there."""

from __future__ import annotations

import pytest

from trainer_service.running.collection.attach_port import AttachPort


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_a_port_without_tls_that_others_reach_is_warned_of(
    host: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert AttachPort(host=host, insecure_listen=True).access() is None
    assert ("Other machines reach this port" in caplog.text) is warned
