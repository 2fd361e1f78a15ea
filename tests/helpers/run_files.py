"""What runs of the current folder wrote: rows of metrics, and checkpoints."""

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
