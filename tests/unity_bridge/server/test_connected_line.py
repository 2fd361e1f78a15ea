"""The line of the log that says what has connected: an environment by its name, or Unity with its versions."""

from __future__ import annotations

from typing import Any

import pytest

from unity_bridge.programs.executables import Command
from unity_bridge.server.origins import Attached


@pytest.mark.parametrize(
    ("is_build", "expected"),
    [
        (None, "Unity environment"),  # the Editor
        (True, "Unity environment"),
        (False, "environment 'builds/Walker'"),
    ],
)
def test_a_program_is_a_unity_environment_where_it_is_a_build(
    make_bridge: Any, connect: Any, messages: Any, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch, is_build: bool | None, expected: str,
) -> None:  # fmt: skip
    if is_build is not None:
        command = Command(env="builds/Walker", executable=("builds/Walker",), is_unity_build=is_build)
        monkeypatch.setattr(Attached, "command", property(lambda self: command))
    caplog.set_level("INFO")
    bridge = make_bridge()
    program = connect(bridge.listen(port=0))
    bridge.answered(program.later(program.exchange, messages.introduction(package="3.0.0")))
    assert (
        f"Connected to {expected} with package version 3.0.0 and communication version 1.5.0" in caplog.text
    )
