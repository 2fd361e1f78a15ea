"""Folders of runs, with what tests need in them, and runs that were hardly trained."""

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


@pytest.fixture(scope="session")
def results(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with the runs ``basic`` and ``pole``, which were hardly trained, only to be read."""
    from trainer_service.cli import main

    folder = tmp_path_factory.mktemp("hardly-trained")
    settings = {"trainer_type": "ppo", "max_steps": 30, "network_settings": {"hidden_units": 8}}
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump({"default_settings": settings}))
    for run_id, env in (("basic", "sim:basic"), ("pole", "gym:CartPole-v1")):
        line = ["learn", str(config), f"--env={env}", f"--run-id={run_id}", "--seed=1"]
        assert main([*line, f"--results-dir={folder / 'results'}", "--env-args", "--agents", "4"]) == 0
    return folder / "results"
