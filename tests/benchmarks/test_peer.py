from __future__ import annotations

import sys
from pathlib import Path

import pytest
from measuring import peer
from measuring.peer import PeerError, Recipe, describe, learn_command, prepare

pytestmark = pytest.mark.process

linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the real trainer is run on Linux"
)


def test_an_environment_without_the_trainer_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=rf"{tmp_path.name} has no bin/mlagents-learn"):
        learn_command(tmp_path)


def test_the_trainer_of_an_environment_is_found(tmp_path: Path) -> None:
    command = tmp_path / "bin" / "mlagents-learn"
    command.parent.mkdir()
    command.touch(0o755)
    assert learn_command(tmp_path) == command


@linux_only
@pytest.mark.parametrize(("version", "flatters"), [("3 10", False), ("3 11", True)])
def test_a_python_that_slows_the_trainer_down_is_told(tmp_path: Path, version: str, flatters: bool) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\necho {version}\n")
    python.chmod(0o755)
    described = describe(tmp_path)
    assert f"Python {version.replace(' ', '.')}" in described
    assert ("flatter" in described) is flatters


@linux_only
def test_what_is_installed_is_used_again(tmp_path: Path) -> None:
    (tmp_path / "installed").touch()
    assert prepare(tmp_path) == tmp_path / "venv"


@linux_only
def test_without_a_suitable_python_the_reason_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "RECIPES", (Recipe((2, 1), ()),))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerError, match=r"no Python 2\.1 found"):
        prepare(tmp_path / "peer")


@linux_only
def test_elsewhere_it_is_not_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(PeerError, match="Linux only"):
        prepare(tmp_path)
