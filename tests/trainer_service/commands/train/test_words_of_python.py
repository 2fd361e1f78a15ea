"""Errors of ``train`` name its arguments, where those of the command line name flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_service import train
from trainer_service.errors import UserError


def test_an_argument_stands_in_the_place_of_its_flag(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no run 'x' in .*\. Remove resume=True to train a new run\."):
        train("basic", env="sim:basic", run_id="x", resume=True, results_dir=tmp_path, verbose=0)


def test_a_taken_run_id_is_answered_with_arguments(tmp_path: Path) -> None:
    folder = tmp_path / "x" / "Basic"
    folder.mkdir(parents=True)
    (folder / "checkpoint.safetensors").write_bytes(b"")
    with pytest.raises(
        UserError, match=r"choose a new run_id=, use resume=True to .* or use force=True to overwrite"
    ):
        train("basic", env="sim:basic", run_id="x", results_dir=tmp_path, verbose=0)
