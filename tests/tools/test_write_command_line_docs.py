"""The page of the command line says what the parsers say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = REPOSITORY / "tools" / "write_command_line_docs.py"
    spec = importlib.util.spec_from_file_location("write_command_line_docs", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_not_stale(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    stale = tool.main(["--check"], REPOSITORY)
    assert stale == 0, capsys.readouterr().out


def test_every_argument_has_a_meaning(tool: ModuleType) -> None:
    assert "|  |" not in tool.page(tool.read_commands())
