"""Saves beside the loop: what is written while training goes on, and what waits for it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numbered_lives import SPEC, lives
from recorded_runs import behavior_of, listed, recorder_of

from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, hold_replay
from trainer_service.running.runs.checkpoint import checkpoint_digest, load_checkpoint, save_checkpoint
from trainer_service.running.runs.files import SaveError
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.replay_file import ReplayFile, ReplayStamp

WRITE = "trainer_service.running.training.saving.save_checkpoint"


def replaying() -> Behavior:
    """A behavior with a buffer of two trajectories of four steps."""
    hyper = {"save_replay_buffer": True, "buffer_size": 8, "batch_size": 2}
    return behavior_of(SPEC, trainer_type="sac", hyperparameters=hyper)


class Disk:
    """A disk that writes when it is told to."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def write(self, *arguments: Any, **keywords: Any) -> None:
        assert self.free.wait(60), "nobody let the disk write"
        save_checkpoint(*arguments, **keywords)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    slow = Disk()
    monkeypatch.setattr(WRITE, slow.write)
    yield slow
    slow.free.set()


@contextmanager
def broken(monkeypatch: pytest.MonkeyPatch, error: Exception) -> Iterator[None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(WRITE, fail)
        yield


def test_training_goes_on_while_a_checkpoint_is_written(folder: RunFolder, disk: Disk) -> None:
    ball = behavior_of()
    records = recorder_of(folder, ball)
    network = checkpoint_of(ball).algorithm["network"].values()
    weights = [each for each in network if each.is_floating_point()]
    before = [each.clone() for each in weights]
    ball.step = 100
    records.write_due(ball)
    ball.step = 130
    for each in weights:  # views of the weights themselves, as an update changes them
        each.add_(1.0)
    records.write_due(ball)
    assert not folder.checkpoint("B").exists()
    assert listed(folder) == []
    disk.free.set()
    records.wait()
    saved = load_checkpoint(folder.checkpoint("B"))
    assert (saved.step, listed(folder)) == (100, [100])
    found = [each for each in saved.algorithm["network"].values() if each.is_floating_point()]
    assert all(map(torch.equal, found, before))
    records.finish([ball])
    assert (load_checkpoint(folder.checkpoint("B")).step, listed(folder)) == (130, [100, 130])


def test_a_replay_buffer_is_saved_as_it_was_while_it_fills(folder: RunFolder, disk: Disk) -> None:
    ball = replaying()
    records = recorder_of(folder, ball)
    for number in (10, 20):
        ball.learner.record(lives([4], [False], number))
    expected = {name: array.tolist() for name, array in (ball.learner.replay_state() or {}).items()}
    ball.step = 100
    records.write_due(ball)
    for number in (30, 40, 50):
        ball.learner.record(lives([4], [False], number))
    disk.free.set()
    records.wait()
    saved: dict[str, np.ndarray] = {}
    ReplayFile(folder.replay("B")).load(saved.update)
    assert {name: saved[name].tolist() for name in expected} == expected


class Killed(BaseException):
    """The end of a process, where it happens."""


@pytest.mark.parametrize("at", range(5))
def test_a_kill_within_a_save_leaves_a_checkpoint_with_its_replay_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    ball = replaying()

    def save(folder: RunFolder) -> None:
        ball.step += 100
        ball.learner.record(lives([4], [False], ball.step - 3))  # its last reward is the step
        paths = folder.checkpoint("B"), folder.numbered("B", ball.step)
        save_checkpoint(checkpoint_of(ball), *paths, replay=hold_replay(ball, folder.replay("B")))

    real, renamed = os.replace, []

    def die(*arguments: Any) -> None:
        if len(renamed) == at:
            raise Killed
        renamed.append(arguments)
        real(*arguments)

    with RunFolder.open(tmp_path, "run") as folder:
        save(folder)
        with monkeypatch.context() as patched, suppress(Killed):
            patched.setattr(os, "replace", die)
            patched.setattr(Path, "unlink", lambda *_: None)  # nothing is tidied by a process that is killed
            save(folder)
    with RunFolder.open(tmp_path, "run", resume=True) as folder:
        path = folder.checkpoint("B")
        saved: dict[str, np.ndarray] = {}
        stamp = ReplayFile(folder.replay("B")).load(saved.update)
        step = 100 if at == 0 else 200
        assert stamp == ReplayStamp(step, checkpoint_digest(path))
        assert load_checkpoint(path).step == step == saved["steps.task_rewards"][-1]
        assert not list(folder.behavior("B").glob(".*"))


def test_an_autosave_is_left_out_while_another_is_written(folder: RunFolder, disk: Disk) -> None:
    ball = behavior_of()
    records = recorder_of(folder, ball, autosave_s=0.0)
    for ball.step in (7, 8, 9):  # waits for ever if it waited
        records.write_due(ball)
    disk.free.set()
    records.wait()
    assert load_checkpoint(folder.checkpoint("B")).step == 7
    records.write_due(ball)
    records.wait()
    assert load_checkpoint(folder.checkpoint("B")).step == 9
    assert listed(folder) == []


def test_a_full_disk_is_told_later_and_tried_again(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ball, full, now = behavior_of(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 1000.0
    monkeypatch.setattr("trainer_service.running.training.recorder.time.monotonic", lambda: now)
    records = recorder_of(folder, ball, expected=["B"])
    for ball.step in (100, 150):
        with broken(monkeypatch, SaveError(folder.checkpoint("B"), full)):
            records.write_due(ball)
            records.wait()
        assert caplog.text.count("No space left on device. The run continues; the next try is in 60 s") == 1
    now += 60.0
    records.write_due(ball)
    records.wait()
    assert listed(folder) == [150]


def test_an_unexpected_error_of_the_thread_ends_the_run(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ball = behavior_of()
    records = recorder_of(folder, ball)
    ball.step = 100
    with broken(monkeypatch, ZeroDivisionError("a bug")):
        records.write_due(ball)
        with pytest.raises(ZeroDivisionError, match="a bug"):
            records.wait()
    records.finish([ball])
    assert listed(folder) == [100]


@pytest.mark.parametrize("trainer_type", ["mappo", "poca", "coma"])
def test_a_rollout_of_agents_without_a_group_is_saved(mlagents_style, configure, trainer_type: str) -> None:
    sizes = {"batch_size": 64, "buffer_size": 256}
    config = configure("Basic", trainer_type=trainer_type, max_steps=300, hyperparameters=sizes)
    line = ("learn", config, "--env=sim:basic", "--run-id=alone", "--seed=1")
    said = mlagents_style(*line)
    assert said.code == 0, said.err
    said = mlagents_style(*line, "--resume", "--max-steps=400")
    assert said.code == 0, said.err
    assert "Resuming 'Basic' from step 300." in said.out
