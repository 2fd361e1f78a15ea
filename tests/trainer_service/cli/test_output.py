from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from trainer_service.cli.output import print_results
from trainer_service.config import RunOptions, parse_run_options


def options_of(run_id: str, results_dir: str) -> RunOptions:
    saved = {"run_id": run_id, "results_dir": results_dir}
    return parse_run_options({"default_settings": {}, "checkpoint_settings": saved}).options


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
    location = "" if results_dir == "results" else f" --results-dir={shlex.quote(results_dir)}"
    assert f"  curves: tensorboard --logdir {shlex.quote(results_dir)}\n" in said
    assert f"  score:  mlagents-style evaluate {shlex.quote(run_id)}{location}\n" in said
