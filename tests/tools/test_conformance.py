"""The tool finds the real ML-Agents, or says why there is none."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def tool(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("conformance", repository / "tools" / "conformance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def runs(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """The commands that would be run, with their variables; each would end with code 5."""
    calls: list[tuple[list[str], dict[str, str]]] = []

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append((command, env))
        return subprocess.CompletedProcess(command, 5)

    monkeypatch.setattr(tool.subprocess, "run", run)
    monkeypatch.setattr(tool, "describe", str)
    return calls


@pytest.fixture
def cannot_be_made(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(folder: Path) -> Path:
        raise tool.PeerError("no Python 3.10 found")

    monkeypatch.setattr(tool, "prepare", prepare)


def test_the_tests_run_against_an_environment_that_is_named(
    tool: ModuleType, runs: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mlagents-learn").touch(0o755)
    assert tool.main(["-x"], {"MLAGENTS_PEER": str(tmp_path)}, tmp_path / "other") == 5
    ((command, env),) = runs
    assert command[-2:] == [str(tool.TESTS), "-x"]
    assert env["MLAGENTS_PEER"] == str(tmp_path)


def test_one_that_is_made_leaves_a_stamp(
    tool: ModuleType, runs: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tool, "prepare", lambda folder: folder / "venv")
    assert tool.main([], {}, tmp_path) == 5
    assert runs[0][1]["MLAGENTS_PEER"] == str(tmp_path / "venv")
    assert (tmp_path / tool.STAMP).exists()


@pytest.mark.usefixtures("cannot_be_made")
@pytest.mark.parametrize(
    ("environ", "could_be_made", "code"),
    [({}, False, 0), ({}, True, 0), ({"CI": "true"}, False, 0), ({"CI": "true"}, True, 1)],
)
def test_missing_environment_fails_only_in_ci(
    environ: dict[str, str],
    could_be_made: bool,
    code: int,
    tool: ModuleType,
    runs: list[Any],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    if could_be_made:
        (tmp_path / tool.STAMP).touch()
    assert tool.main([], environ, tmp_path) == code
    assert runs == []
    assert "no Python 3.10 found" in capsys.readouterr().out


def test_a_named_environment_without_the_trainer_is_a_mistake(
    tool: ModuleType, runs: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert tool.main([], {"MLAGENTS_PEER": str(tmp_path)}, tmp_path) == 2
    assert runs == []
    assert f"MLAGENTS_PEER: {tmp_path} has no bin/mlagents-learn" in capsys.readouterr().out


@pytest.mark.process
def test_the_page_names_every_check_with_its_cases(repository: Path) -> None:
    """The table of docs/conformance.md against what pytest collects."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "tests/conformance"]
    collected = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout
    cases = Counter(re.findall(r"::(test_\w+)", collected))
    page = (repository / "docs" / "conformance.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `(test_\w+)` \| (\d+) \|", page, re.MULTILINE)) == {
        name: str(number) for name, number in cases.items()
    }
    assert f"The {cases.total()} cases" in page
