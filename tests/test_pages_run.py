"""Blocks of pages run as they stand, in their order, in an empty folder: files, programs and commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import page_blocks
import pytest

from trainer_service.cli import main

REPOSITORY = Path(__file__).parents[1]

_PAGE = "a page in the browser, until Ctrl-C"
_SECONDS = "starts several trainers, see tests of the command"

SKIPPED: Mapping[str, Mapping[str, str]] = {
    "README.md": {"mlagents-style watch": _PAGE},
    "docs/automation.md": {},
    "docs/running.md": {"--seeds": _SECONDS, "compare balls": _SECONDS, "--checkpoint best": "needs a run with evaluations", "duel@200000": "needs a run of that length"},
}
"""Pages that run with every change; parts of blocks that do not, with the reason."""


def in_this_process(arguments: Sequence[str]) -> None:
    try:
        code = main(arguments)
    except SystemExit as end:  # --help
        code = int(end.code or 0)
    assert code == 0, " ".join(arguments)


@pytest.mark.process
@pytest.mark.parametrize("page", SKIPPED)
def test_blocks_run_in_the_order_of_the_page(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("gymnasium", "mpe2", "pygame"):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    page_blocks.write_builds(tmp_path)
    used = set()
    for block in page_blocks.blocks_of(REPOSITORY / page):
        if part := next((each for each in SKIPPED[page] if each in block.text), ""):
            used.add(part)
        elif block.kind == "file":
            (tmp_path / block.name).write_text(page_blocks.shortened_file(block.text))
        elif block.kind == "python":
            exec(page_blocks.shortened_program(block.text), {"__name__": "__main__"})
        else:
            in_this_process(page_blocks.shortened_command(block.text, tmp_path / "results", tmp_path))
    assert used == set(SKIPPED[page]), "a reason that no block needs any more"
    assert list((tmp_path / "results").glob("*/*.onnx"))
