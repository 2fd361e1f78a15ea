from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def importable(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments of tests/programs are modules."""
    monkeypatch.syspath_prepend(str(repository / "tests" / "programs"))
