"""Runs that stop and go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

EPISODE = 18  # agent steps of one episode of the treadmill's three agents

# Updates come after 4 episodes, so a stop after 8 lies between two rollouts and one after 6 in a rollout.
AT_AN_UPDATE, IN_BETWEEN = 8 * EPISODE, 6 * EPISODE


@pytest.fixture
def train(mlagents_style, program, configure):
    """Trains on the treadmill up to a step count."""
    treadmill = program("treadmill")

    def run(run_id: str, max_steps: int, *flags: str, **settings: Any):
        hyperparameters = {
            "batch_size": 32,
            "buffer_size": 4 * EPISODE,
            "learning_rate_schedule": "constant",
            "learning_rate": 0.01,
        }
        network = {"normalize": True, "hidden_units": 8, "num_layers": 1}
        configure(
            "Treadmill",
            **{
                "hyperparameters": hyperparameters,
                "network_settings": network,
                "max_steps": max_steps,
                "summary_freq": EPISODE,
                "checkpoint_interval": 1000,
                **settings,
            },
        )
        said = mlagents_style(
            "learn", "config.yaml", f"--env={treadmill}", f"--run-id={run_id}", "--seed=5", *flags
        )
        assert said.code == 0, said.err
        return said

    return run


def checkpoint(run_id: str) -> dict[str, Any]:
    return torch.load(Path("results", run_id, "Treadmill", "checkpoint.pt"), weights_only=True)


def tensors(content: Any, path: str = "") -> dict[str, Any]:
    """Every leaf of nested dicts and lists, by its path."""
    if isinstance(content, dict):
        items = content.items()
    elif isinstance(content, list | tuple):
        items = enumerate(content)
    else:
        return {path: content}
    leaves: dict[str, Any] = {}
    for key, value in items:
        leaves.update(tensors(value, f"{path}/{key}"))
    return leaves


def assert_same_state(run: str, other: str) -> None:
    left, right = (tensors(checkpoint(name)["algorithm"]) for name in (run, other))
    assert left.keys() == right.keys()
    for name, value in left.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, right[name]), f"{name} differs"
        else:
            assert value == right[name], f"{name} differs"


def metrics(run_id: str) -> list[dict[str, Any]]:
    """What metrics.jsonl says, without the clock."""
    lines = Path("results", run_id, "metrics.jsonl").read_text().splitlines()
    clock = {"wall_s", "steps_per_s"}
    return [{key: value for key, value in json.loads(line).items() if key not in clock} for line in lines]


@pytest.mark.parametrize("steps", [AT_AN_UPDATE, IN_BETWEEN], ids=["at-an-update", "in-between"])
def test_a_run_that_is_resumed_goes_on_bit_for_bit(train, steps: int) -> None:
    train("straight", 2 * steps)
    train("parted", steps)
    assert (checkpoint("parted")["algorithm"]["collected"] is None) == (steps == AT_AN_UPDATE)
    train("parted", 2 * steps, "--resume")
    assert checkpoint("parted")["step"] == 2 * steps
    assert_same_state("parted", "straight")
    assert metrics("parted") == metrics("straight")


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("steps", [AT_AN_UPDATE, IN_BETWEEN], ids=["at-an-update", "in-between"])
def test_a_run_with_memory_that_is_resumed_goes_on_bit_for_bit(train, steps: int, kind: str) -> None:
    memory = {"memory_size": 4, "sequence_length": 3, "type": kind}
    network = {"normalize": True, "hidden_units": 8, "num_layers": 1, "memory": memory}
    train("straight", 2 * steps, network_settings=network)
    train("parted", steps, network_settings=network)
    if steps == IN_BETWEEN:
        collected = checkpoint("parted")["algorithm"]["collected"]
        assert collected["memories"].abs().max() > 0
    train("parted", 2 * steps, "--resume", network_settings=network)
    assert_same_state("parted", "straight")
    assert metrics("parted") == metrics("straight")


def test_learning_changes_every_part_of_the_state(train) -> None:
    # What the test above compares would be equal for nothing if training left it alone.
    train("short", AT_AN_UPDATE)
    train("long", 2 * AT_AN_UPDATE)
    short, long = (tensors(checkpoint(name)["algorithm"]) for name in ("short", "long"))
    for name, value in short.items():
        if isinstance(value, torch.Tensor) and "/collected" not in name:
            assert not torch.equal(value, long[name]), f"{name} stayed as it was"


def test_another_seed_is_another_run(train) -> None:
    train("one", AT_AN_UPDATE)
    train("two", AT_AN_UPDATE, "--seed=6")
    with pytest.raises(AssertionError, match="differs"):
        assert_same_state("one", "two")


def test_a_finished_run_that_is_resumed_ends_at_once(train) -> None:
    train("done", AT_AN_UPDATE)
    said = train("done", AT_AN_UPDATE, "--resume")
    assert f"Resuming 'Treadmill' from step {AT_AN_UPDATE}." in said.out
    assert checkpoint("done")["step"] == AT_AN_UPDATE
    assert [line["step"] for line in metrics("done")] == list(range(EPISODE, AT_AN_UPDATE + 1, EPISODE))


def test_what_a_killed_run_said_after_its_last_checkpoint_is_said_again(train) -> None:
    train("killed", AT_AN_UPDATE, checkpoint_interval=2 * EPISODE)
    folder = Path("results/killed/Treadmill")
    earlier = folder / f"Treadmill-{4 * EPISODE}.pt"
    (folder / "checkpoint.pt").write_bytes(earlier.read_bytes())
    straight = metrics("killed")
    train("killed", AT_AN_UPDATE, "--resume", checkpoint_interval=2 * EPISODE)
    assert metrics("killed") == straight


def test_what_a_run_once_started_from_does_not_undo_what_it_has_learned_since(train) -> None:
    train("teacher", AT_AN_UPDATE)
    weights = "results/teacher/Treadmill/checkpoint.pt"
    said = train("pupil", AT_AN_UPDATE, init_path=weights)
    assert f"Starting 'Treadmill' from step 0 with the weights of '{weights}'." in said.out
    said = train("pupil", 2 * AT_AN_UPDATE, "--resume", init_path=weights)
    assert f"Resuming 'Treadmill' from step {AT_AN_UPDATE}." in said.out
    assert "'Treadmill' resumes from its own checkpoint: init_path is for its start only." in said.out
