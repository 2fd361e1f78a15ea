"""Curves are read from what runs really leave, and drawn."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def tool(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "plotting", repository / "tools" / "plot_learning_curves.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "plotting", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def summary(step: int, wall_s: float, mean_return: float | None, behavior: str = "Ball") -> dict[str, Any]:
    return {"behavior": behavior, "step": step, "wall_s": wall_s, "mean_return": mean_return}


def run_with(folder: Path, *summaries: dict[str, Any]) -> Path:
    folder.mkdir()
    lines = "".join(json.dumps(each) + "\n" for each in summaries)
    (folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
    return folder


def test_summaries_without_a_finished_episode_are_left_out(tool: ModuleType, tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", summary(10, 1.0, None), summary(20, 2.0, 5.0))
    assert tool.read_curve(run) == tool.Curve("run", (20,), (2.0,), (5.0,))


def test_the_clock_of_a_resumed_run_goes_on(tool: ModuleType, tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", *(summary(i, at, 0.0) for i, at in enumerate([1.0, 2.0, 0.5, 1.5])))
    assert tool.read_curve(run).seconds == (1.0, 2.0, 2.5, 3.5)


def test_one_of_several_behaviors_must_be_named(tool: ModuleType, tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", summary(10, 1.0, 1.0, "Cat"), summary(10, 1.0, 2.0, "Mouse"))
    with pytest.raises(tool.NoCurveError, match=r"2 behaviors \(Cat, Mouse\)"):
        tool.read_curve(run)
    assert tool.read_curve(run, "Mouse").returns == (2.0,)


def test_a_folder_that_is_no_run_is_named(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        tool.main([str(tmp_path / "nothing")])
    assert "expected the folder of a run" in capsys.readouterr().err


def test_runs_become_one_picture(tool: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs = [run_with(tmp_path / name, summary(10, 1.0, 0.0), summary(20, 2.0, 5.0)) for name in ("a", "b")]
    picture = tmp_path / "curves.png"
    assert tool.main([*map(str, runs), "--output", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
