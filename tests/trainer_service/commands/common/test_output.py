from __future__ import annotations

import ast
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import trainer_service.commands
from trainer_service.cli import main
from trainer_service.commands.common.output import note, print_results, say
from trainer_service.config import RunOptions, parse_run_options


def options_of(run_id: str, results_dir: str, env: str | None = "sim:basic") -> RunOptions:
    saved = {"run_id": run_id, "results_dir": results_dir}
    settings = {"default_settings": {}, "checkpoint_settings": saved, "env_settings": {"env_path": env}}
    return parse_run_options(settings).options


@pytest.mark.parametrize(
    ("run_id", "results_dir"),
    [
        ("$(touch pwn)", "results"),
        ("läuf 1", "my results; rm *"),
        ("it's `id` & more", "~"),
        ("plain", "results"),
    ],
)
def test_suggested_commands_reach_a_shell_as_they_are_meant(
    capsys: pytest.CaptureFixture[str], run_id: str, results_dir: str
) -> None:
    print_results(options_of(run_id, results_dir), Path(results_dir, run_id), ["Ball"], interrupted=False)
    said = capsys.readouterr().out
    location = "" if results_dir == "results" else f" --results-dir {shlex.quote(results_dir)}"
    assert f"  curves: tensorboard --logdir {shlex.quote(results_dir)}\n" in said
    assert f"  score:  mlagents-style evaluate {shlex.quote(run_id)}{location}\n" in said


def test_the_score_of_a_run_of_attached_simulators_needs_an_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_results(options_of("x", "results", None), Path("results/x"), ["Ball"], interrupted=False)
    assert "  score:  mlagents-style evaluate x --env ENV\n" in capsys.readouterr().out


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
