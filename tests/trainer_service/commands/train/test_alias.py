"""The alias mlagents-learn can be switched on and off, and never replaces the real program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_service.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs with a stand-in that says what it was called with."""
    folder = tmp_path / "with blanks" / "bin"
    folder.mkdir(parents=True)
    program = folder / "mlagents-style"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "alias"])
    return folder


@pytest.fixture
def script(folder: Path) -> Path:
    return folder / ("mlagents-learn.cmd" if sys.platform == "win32" else "mlagents-learn")


@pytest.mark.process
@pytest.mark.skipif(os.name != "posix", reason="the stand-in is a script for a shell")
def test_switched_on_it_hands_every_word_to_learn(folder: Path, script: Path) -> None:
    assert main(["alias"]) == 0
    said = subprocess.run([script, "a b.yaml", "--env-args", "*"], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["learn", "a b.yaml", "--env-args", "*"]


@pytest.mark.parametrize("flags", [[], ["--remove"]], ids=["on", "off"])
def test_the_real_program_stays(script: Path, capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    script.write_text("from mlagents.trainers.learn import main")
    assert main(["alias", *flags]) == 2
    assert "is ML-Agents' own program, which stays as it is" in capsys.readouterr().err
    assert script.read_text() == "from mlagents.trainers.learn import main"


def test_without_an_installed_program_there_is_no_alias(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "__main__.py")])
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / name))
    assert main(["alias"]) == 2
    assert f"no program mlagents-style in {tmp_path / 'scripts'}" in capsys.readouterr().err
