"""Folders of runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer_service.running.runs.folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    """The folder of a run that is new."""
    with RunFolder.open(tmp_path, "run") as opened:
        yield opened
