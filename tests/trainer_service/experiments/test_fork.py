"""Copies of a run's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer_service.experiments.fork import fork_run

SAC = {
    "trainer_type": "sac",
    "hyperparameters": {
        "batch_size": 16, "buffer_size": 1000, "buffer_init_steps": 100, "save_replay_buffer": True,
    },
}  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def rows(run_id: str) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl, without the clock."""
    lines = Path("results", run_id, "metrics.jsonl").read_text().splitlines()
    clock = {"wall_s", "steps_per_s"}
    return [{key: value for key, value in json.loads(line).items() if key not in clock} for line in lines]


@pytest.mark.parametrize("settings", [{}, SAC], ids=["ppo", "sac-with-replay"])
def test_a_fork_goes_on_as_the_run_itself_would_and_leaves_it_alone(
    mlagents_style, configure, settings: dict[str, Any]
) -> None:
    configure("Basic", **settings)
    learn = "learn", "config.yaml", "--env=sim:basic", "--seed=3"
    assert mlagents_style(*learn, "--run-id=source", "--set", "stop.steps=230").code == 0
    before = contents(Path("results/source"))
    fork_run(Path("results/source"), Path("results/fork"))
    said = mlagents_style(*learn, "--run-id=fork", "--resume")
    assert said.code == 0, said.err
    assert "empty replay buffer" not in said.err
    assert contents(Path("results/source")) == before

    assert mlagents_style(*learn, "--run-id=source", "--resume").code == 0
    assert rows("fork") == rows("source")
    assert (
        Path("results/fork/Basic/checkpoint.safetensors").read_bytes()
        == Path("results/source/Basic/checkpoint.safetensors").read_bytes()
    )


def test_a_fork_replaces_what_was_there_and_is_another_run_for_trackers(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for name in ("metrics.jsonl", "run_logs/tracker-wandb.json", "Basic/checkpoint.safetensors", "notes.txt"):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (target / "Old").mkdir(parents=True)
    fork_run(source, target)
    assert contents(target).keys() == {"metrics.jsonl", "Basic/checkpoint.safetensors"}
    fork_run(source, target, same_run=True)
    assert contents(target).keys() == {
        "metrics.jsonl", "Basic/checkpoint.safetensors", "run_logs/tracker-wandb.json",
    }  # fmt: skip
    assert [entry.name for entry in tmp_path.iterdir()].count(".target.partial") == 0
