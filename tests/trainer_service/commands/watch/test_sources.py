"""What the page of a run says of its progress."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from trainer_service.commands.watch.sources import RunSource

CONFIGURATION = "behaviors:\n  Walker:\n    trainer_type: ppo\n    max_steps: 200000\n"


def run_of(folder: Path, rows: list[dict[str, Any]]) -> RunSource:
    (folder / "configuration.yaml").write_text(CONFIGURATION, encoding="utf-8")
    lines = [json.dumps({"behavior": "Walker", "wall_s": 1.0, **row}) + "\n" for row in rows]
    (folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    return RunSource(folder, deterministic=True, seed=1)


ROWS = [
    {"step": 60_000, "mean_return": 100.0, "steps_per_s": 500.0},
    {"step": 113_040, "mean_return": 87.25, "steps_per_s": 1000.0},
]


def test_the_progress_of_a_run_is_said_in_a_line(tmp_path: Path) -> None:
    run = run_of(tmp_path, ROWS)
    assert run.progress() == "", "nothing was read"
    assert [point["return"] for point in run.curve()] == [100.0, 87.25]
    assert run.progress() == "113,040 of 200,000 steps · 87 s left · mean return 87.25 · best 100"
    (tmp_path / "run_logs").mkdir()
    (tmp_path / "run_logs" / "timers.json").write_text("{}", encoding="utf-8")
    assert run.progress() == "113,040 of 200,000 steps · ended · mean return 87.25 · best 100"


def test_no_time_is_left_of_a_run_that_was_killed(tmp_path: Path) -> None:
    run = run_of(tmp_path, ROWS)
    os.utime(tmp_path / "metrics.jsonl", (1.0, 1.0))
    run.curve()
    assert "left" not in run.progress()
