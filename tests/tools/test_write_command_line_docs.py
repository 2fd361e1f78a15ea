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


def test_check_names_a_stale_page_and_does_not_change_it(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "docs" / "command-line.md"
    page.parent.mkdir()
    page.write_text("old")
    table = tmp_path / tool.TABLE
    table.parent.mkdir(parents=True)
    table.write_text("old")
    assert tool.main(["--check"], tmp_path) == 1
    assert "python tools/write_command_line_docs.py" in capsys.readouterr().out
    assert (page.read_text(), table.read_text()) == ("old", "old")
    assert tool.main([], tmp_path) == 0
    commands = tool.read_commands()
    assert page.read_text(encoding="utf-8") == tool.page(commands)
    assert table.read_text(encoding="utf-8") == tool.table(commands)


def test_every_argument_has_a_meaning(tool: ModuleType) -> None:
    assert "|  |" not in tool.page(tool.read_commands())


def test_rows_show_values_choices_and_defaults(tool: ModuleType) -> None:
    text = tool.page(tool.read_commands())
    assert "| `--seed N` | " in text
    assert "| `--group-by {config,name,run}` | " in text
    assert "`--isolate`, `--no-isolate`" in text
    assert "| `[NAME …]` | " in text
    assert "(default 100) |" in text
    assert "--tensorflow" not in text  # accepted for old scripts, and hidden
