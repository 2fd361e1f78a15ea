from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import trainer_service.commands
from trainer_service.cli import main
from trainer_service.commands.common.output import note, say


@pytest.mark.parametrize(("printed", "stream"), [(say, 0), (note, 1)])
def test_text_from_outside_is_printed_without_its_effects(
    capsys: pytest.CaptureFixture[str], printed: Callable[[object], None], stream: int
) -> None:
    printed("key \x1b[31m\r\n[INFO] forged \u202e")
    assert capsys.readouterr()[stream] == "key \\x1b[31m\\x0d\n  [INFO] forged \\u202e\n"


def test_a_checked_files_keys_are_written_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "forged.yaml"
    file.write_text('"\\e[31m\\r\\n[INFO] forged": 1\n')
    assert main(["check", str(file)]) == 2
    said = capsys.readouterr()
    assert not {"\x1b", "\r"} & set(said.out + said.err)
    assert "\n[INFO]" not in said.err


def test_commands_print_only_by_the_functions_that_escape() -> None:
    folder = Path(trainer_service.commands.__file__).parent
    printing = {
        path.name
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing == {"output.py"}
