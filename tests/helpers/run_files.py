"""What runs leave in their folders: rows of metrics, checkpoints, and how they ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from behavior_worlds import assert_equal_states, flat

from trainer_service.running.runs.checkpoint import read_content

CLOCK = {"wall_s", "steps_per_s"}


def metrics(run_id: str, file: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """Rows of a run's file, without the clock."""
    lines = Path("results", run_id, file).read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in CLOCK} for line in lines]


def checkpoint(run_id: str, behavior: str, file: str = "checkpoint.safetensors") -> dict[str, Any]:
    """The content of a behavior's checkpoint."""
    return read_content(Path("results", run_id, behavior, file))


def assert_same_state(run: str, other: str, behavior: str, file: str = "checkpoint.safetensors") -> None:
    """Asserts that two runs have saved the same of a behavior, to the last bit."""
    keys = ("algorithm", "self_play", "step")
    saved = (checkpoint(each, behavior, file) for each in (run, other))
    assert_equal_states(*(flat({key: each[key] for key in keys}) for each in saved))


def write_end(run: Path, end: str = "", ended_by: str = "?", *, final: bool = True, **steps: int) -> None:
    """Writes what a run leaves that saved its last checkpoints at these steps of behaviors.

    end: how it ended, as its timers say it; without, it wrote none. final: whether the checkpoints are of its end.
    """
    logs = run / "run_logs"
    logs.mkdir(parents=True, exist_ok=True)
    status = {}
    for name, step in steps.items():
        record = {"steps": step, "file_path": "x.safetensors", "reward": 1.0, "creation_time": 0.0}
        status[name] = {"checkpoints": [record], **({"final_checkpoint": record} if final else {})}
    (logs / "training_status.json").write_text(json.dumps(status))
    if end:
        (logs / "timers.json").write_text(json.dumps({"metadata": {"end": end, "ended_by": ended_by}}))
