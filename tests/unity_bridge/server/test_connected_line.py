"""The line of the log that says what has connected: an environment by its name, or Unity with its versions."""

from __future__ import annotations

from typing import Any

import pytest

from unity_bridge.programs.executables import Command
from unity_bridge.server.origins import Attached


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if line.startswith("Connected to ")]


def test_the_editor_is_a_unity_environment(
    make_bridge: Any, connect: Any, messages: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bridge = make_bridge()
    editor = connect(bridge.listen(port=0))
    bridge.answered(editor.later(editor.exchange, messages.introduction(package="3.0.0")))
    assert lines(caplog) == [
        "Connected to Unity environment with package version 3.0.0 and communication version 1.5.0"
    ]


@pytest.mark.parametrize(
    ("is_build", "expected"), [(True, "Unity environment"), (False, "environment 'builds/Walker'")]
)
def test_a_program_is_a_unity_environment_where_it_is_a_build(
    make_bridge: Any, connect: Any, messages: Any, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch, is_build: bool, expected: str,
) -> None:  # fmt: skip
    command = Command(env="builds/Walker", executable=("builds/Walker",), is_unity_build=is_build)
    monkeypatch.setattr(Attached, "command", property(lambda self: command))
    caplog.set_level("INFO")
    bridge = make_bridge()
    program = connect(bridge.listen(port=0))
    bridge.answered(program.later(program.exchange, messages.introduction(package="3.0.0")))
    (line,) = lines(caplog)
    assert line.startswith(f"Connected to {expected} with package version 3.0.0 and ")
