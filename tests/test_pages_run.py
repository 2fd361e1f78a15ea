"""Blocks of pages run as they stand, in their order, in an empty folder: files, programs and commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import page_blocks
import pytest

from trainer_service.cli import main

SLOW = {"docs/sweeps.md"}
NEEDS = ("gymnasium", "mpe2", "pygame", "optuna")


def command(arguments: Sequence[str]) -> None:
    assert main(arguments) == 0, " ".join(arguments)


def program(text: str) -> None:
    exec(text, {"__name__": "__main__"})


@pytest.mark.process
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.thorough] if page in SLOW else [])
        for page in page_blocks.SKIPPED
    ],
)
def test_blocks_run_in_the_order_of_the_page(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in NEEDS:
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    page_blocks.run_page(page, tmp_path, command=command, program=program)
    assert list((tmp_path / "results").glob("*/*.onnx"))
