"""A replay buffer and the checkpoint that a run goes on from: whether they were saved at one moment."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_runs import behavior_of, recorder_of, write_at
from replay_files import save_replay_file

from trainer_service.errors import UserError
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import load_replay, restore
from trainer_service.running.runs.checkpoint import load_checkpoint, save_checkpoint
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.training.run import restore_replay
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

CHOICES = BehaviorSpec((ObservationSpec("o", (2,)),), ActionSpec(0, (3,)))


def learner() -> Behavior:
    return behavior_of(CHOICES, trainer_type="dqn", hyperparameters={"save_replay_buffer": True})


def saved(folder: RunFolder, *steps: int) -> None:
    """Saves a behavior at each step."""
    behavior = learner()
    write_at(recorder_of(folder, behavior), behavior, *steps)


def resumed(folder: RunFolder, checkpoint: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Goes on from a checkpoint. Returns the warnings."""
    behavior = learner()
    restore(behavior, load_checkpoint(checkpoint))
    with caplog.at_level(logging.INFO, logger="trainer_service"):
        restore_replay(behavior, folder.replay("B"), checkpoint)
    assert "continues" in caplog.text
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_buffer_saved_with_its_checkpoint_is_taken_silently(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    saved(folder, 100, 200)
    for checkpoint in (folder.checkpoint("B"), folder.numbered("B", 200)):
        assert resumed(folder, checkpoint, caplog) == []


def test_a_buffer_of_another_moment_is_named_by_both_steps(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    saved(folder, 100, 200)
    (warning,) = resumed(folder, folder.numbered("B", 100), caplog)
    assert "'B' continues from step 100 with a replay buffer that was saved at step 200" in warning


def test_another_checkpoint_of_the_same_step_is_noticed(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    saved(folder, 100)
    checkpoint = folder.checkpoint("B")
    save_checkpoint(replace(load_checkpoint(checkpoint), episodes=7), checkpoint)
    (warning,) = resumed(folder, checkpoint, caplog)
    assert "from step 100 with a replay buffer that was saved at step 100" in warning


@pytest.mark.parametrize("stamp", [{}, {"saved.step": np.zeros(3)}], ids=["none", "no number"])
def test_a_buffer_without_a_readable_stamp_is_refused(stamp: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "replay.npz"
    save_replay_file(learner().learner.replay_state() or {}, path)
    with np.load(path) as arrays:
        kept = {name: array for name, array in arrays.items() if name != "saved.step"}
    np.savez(path, **kept, **stamp)
    with pytest.raises(
        UserError, match=r"replay\.npz' cannot be used: .* Remove it to continue with an empty one"
    ):
        load_replay(learner(), path)


def test_a_damaged_buffer_is_named_and_removed_by_force(mlagents_style, configure) -> None:
    files = Path("results/ppo/Basic")
    hyper = {"batch_size": 16, "buffer_size": 200, "buffer_init_steps": 40, "steps_per_update": 4}
    keeping = {"trainer_type": "sac", "hyperparameters": {**hyper, "save_replay_buffer": True}}
    configure("Basic", **keeping, max_steps=100)
    assert mlagents_style("learn", "config.yaml", "--env=sim:basic", "--seed=1").code == 0
    (rows,) = files.glob("replay-*-steps-0.npz")
    rows.write_bytes(rows.read_bytes()[:300])
    configure("Basic", **keeping, max_steps=200)
    said = mlagents_style("learn", "config.yaml", "--env=sim:basic", "--resume")
    assert said.code == 2
    assert f"replay.npz' cannot be used: '{rows.name}': it has 300 bytes" in said.err
    configure("Basic", trainer_type="sac", hyperparameters=hyper, max_steps=50)
    assert mlagents_style("learn", "config.yaml", "--env=sim:basic", "--force").code == 0
    assert not [*files.glob("replay*")]
    configure("Basic", trainer_type="sac", hyperparameters=hyper, max_steps=90)
    said = mlagents_style("learn", "config.yaml", "--env=sim:basic", "--resume")
    expected = "starts with an empty replay buffer (save_replay_buffer is false) and learns again after 40"
    assert expected in said.out + said.err
