"""Folders of a user, and ports that other machines could reach."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from secured_ports import SecuredPort, secured_port

from unity_bridge.remote import access
from unity_bridge.remote.private_files import FOLDER_VARIABLE
from unity_bridge.transport.inbox import can_serve_directly


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user who has nothing yet."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "user"))
    monkeypatch.setattr("unity_bridge.transport.inbox._WATCH_S", 0.05)  # files are looked at as often
    return tmp_path / "user"


@pytest.fixture
def certificates() -> None:
    """Skips where none can be made."""
    pytest.importorskip("cryptography")


@pytest.fixture
def port(certificates: None) -> Iterator[SecuredPort]:
    with secured_port(access.RemoteAccess.open()) as opened:
        yield opened


@pytest.fixture(params=[True, False], ids=["direct", "threads"])
def either_port(request: pytest.FixtureRequest, certificates: None) -> Iterator[SecuredPort]:
    """A port of each of the two servers."""
    if request.param and not can_serve_directly():
        pytest.skip("the installed grpcio has another core interface than ours stands on")
    with secured_port(access.RemoteAccess.open(), direct=request.param) as opened:
        yield opened
