"""Folders of runs, with what tests need in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes the folder of a run: its summaries as (step, wall_s, mean_return), and what else is given."""

    def make(
        name: str,
        summaries: Sequence[tuple[int, float, float | None]] = (),
        *,
        seed: int = 0,
        behavior: str = "Ball",
        settings: Mapping[str, Any] | None = None,
        rows: Sequence[Mapping[str, Any]] = (),
    ) -> Path:
        folder = tmp_path / "results" / name
        folder.mkdir(parents=True)
        options = {
            "behaviors": {behavior: {"trainer_type": "ppo", **(settings or {})}},
            "env_settings": {"env_path": "sim:3dball", "seed": seed},
            "checkpoint_settings": {"run_id": name},
        }
        (folder / "configuration.yaml").write_text(yaml.safe_dump(options), encoding="utf-8")
        lines = [
            {"behavior": behavior, "step": step, "wall_s": wall_s, "mean_return": value}
            for step, wall_s, value in summaries
        ]
        text = "".join(json.dumps(line) + "\n" for line in (*lines, *rows))
        (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
        return folder

    return make
