"""The notebooks of the documentation: their cells run, from the first to the last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def cells(notebook: Path) -> list[str]:
    """The code of a notebook, without what only installs, and with hardly any steps."""
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]
    return [_short(cell) for cell in code if not cell.startswith("%pip")]


def _short(cell: str) -> str:
    for long, short in (
        ("100_000", "500"),
        ("40_000", "500"),
        ("5_000", "250"),
        ("episodes=50", "episodes=2"),
    ):
        cell = cell.replace(long, short)
    return cell


@pytest.mark.process
@pytest.mark.thorough
def test_the_gymnasium_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells(next(path for path in NOTEBOOKS if path.name == "gymnasium.ipynb")):
        exec(cell, names)
    assert names["outcome"].steps["CartPole-v1"] >= 500
    assert names["reaching"].steps["Reach"] >= 500
    assert names["total"] > 0
    assert Path("cartpole.gif").stat().st_size > 0


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_every_cell_is_python_that_uses_names_there_are(notebook: Path) -> None:
    import trainer_service

    for cell in cells(notebook):
        compile(cell, notebook.name, "exec")
        for part in cell.split("trainer_service.")[1:]:
            assert hasattr(trainer_service, part.partition("(")[0]), part
