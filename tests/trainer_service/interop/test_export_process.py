"""Models that a process of its own writes, beside a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer_service.interop.export_process import export_beside
from trainer_service.interop.onnx_export import ExportError
from trainer_service.training import saving

pytestmark = pytest.mark.process


def models(run: str) -> dict[str, bytes]:
    folder = Path("results", run)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.onnx")}


def test_large_models_are_those_that_the_run_itself_would_write(
    mlagents_style: Callable[..., Any], configure: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure("Basic", max_steps=100)
    for run, least in (("small", 2**23), ("large", 0)):
        monkeypatch.setattr(saving, "LARGE_MODELS", least)
        said = mlagents_style("learn", "config.yaml", "--env=sim:basic", f"--run-id={run}", "--seed=1")
        assert said.code == 0, said.err
        assert "Exported results" in said.out
        assert "[WARNING]" not in said.out
    assert len(models("small")) == 2
    assert models("large") == models("small")


def test_what_cannot_be_exported_costs_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "results" / "run" / "Ball" / "Ball-100.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no checkpoint")
    with pytest.raises(ExportError, match=r"^checkpoint '.*Ball-100\.safetensors' is damaged"):
        export_beside(path)
