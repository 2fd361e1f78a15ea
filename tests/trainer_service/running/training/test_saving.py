"""Saves beside the loop: what is written while training goes on, and what waits for it."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainer_service.config import parse_run_options
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, hold_replay
from trainer_service.running.interop.onnx_export import export_policy
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.timers import Timers
from trainer_service.running.runs.checkpoint import checkpoint_digest, load_checkpoint, save_checkpoint
from trainer_service.running.runs.files import SaveError
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.replay_file import ReplayFile, ReplayStamp
from trainer_service.running.runs.status import TrainingStatus
from trainer_service.running.training.recorder import Outputs, Recorder
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("o", (2,)),), ActionSpec(1))
WRITE = "trainer_service.running.training.saving.save_checkpoint"


def behavior(**settings: object) -> Behavior:
    options = parse_run_options({"behaviors": {"B": {"checkpoint_interval": 100, **settings}}}).options
    return Behavior("B", SPEC, options.behaviors["B"], Compute(torch.device("cpu"), 1))


def recorder(folder: RunFolder, ball: Behavior, **options: Any) -> Recorder:
    outputs = Outputs(folder, Console(tty=False), [], Timers(), export_policy)
    records = Recorder(outputs, TrainingStatus(), **options)
    records.add(ball)
    return records


def steps(number: float) -> Trajectories:
    """A trajectory of four steps, in which everything is that number."""
    return Trajectories(
        observations=(np.full((4, 2), number, np.float32),),
        continuous_actions=np.full((4, 1), number, np.float32),
        discrete_actions=np.zeros((4, 0), np.int64),
        allowed_actions=np.ones((4, 0), np.bool_),
        log_probs=np.zeros(4, np.float32),
        memories=np.zeros((4, 0), np.float32),
        rewards=np.full(4, number, np.float32),
        group_rewards=np.zeros(4, np.float32),
        lengths=np.array([4]),
        final_observations=(np.full((1, 2), number, np.float32),),
        final_allowed_actions=np.ones((1, 0), np.bool_),
        final_memories=np.zeros((1, 0), np.float32),
        terminated=np.array([False]),
    )


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


def numbered(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.behavior("B").glob("B-*.safetensors"))


def listed(folder: RunFolder) -> list[int]:
    if not folder.status.exists():
        return []
    status = folder.read_status(torch_version=torch.__version__).behavior("B")
    return [record.steps for record in status.checkpoints]


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, disk: Disk) -> None:
    ball = behavior()
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder, ball)
        weights = [
            each for each in checkpoint_of(ball).algorithm["network"].values() if each.is_floating_point()
        ]
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


def test_a_replay_buffer_is_saved_as_it_was_while_it_fills(tmp_path: Path, disk: Disk) -> None:
    hyper = {"save_replay_buffer": True, "buffer_size": 8, "batch_size": 2}
    ball = behavior(trainer_type="sac", hyperparameters=hyper)
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder, ball)
        for number in (1.0, 2.0):
            ball.learner.record(steps(number))
        expected = {name: array.copy() for name, array in (ball.learner.replay_state() or {}).items()}
        ball.step = 100
        records.write_due(ball)
        for number in (3.0, 4.0, 5.0):
            ball.learner.record(steps(number))
        disk.free.set()
        records.wait()
        saved: dict[str, np.ndarray] = {}
        ReplayFile(folder.replay("B")).load(saved.update)
        assert {name: saved[name].tolist() for name in expected} == {
            name: array.tolist() for name, array in expected.items()
        }


class Killed(BaseException):
    """The end of a process, where it happens."""


@pytest.mark.parametrize("at", range(5))
def test_a_kill_between_two_files_of_a_save_leaves_a_checkpoint_with_its_replay_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    hyper = {"save_replay_buffer": True, "buffer_size": 8, "batch_size": 2}
    ball = behavior(trainer_type="sac", hyperparameters=hyper)

    def save(folder: RunFolder) -> None:
        ball.step += 100
        ball.learner.record(steps(ball.step))
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


def test_an_autosave_is_left_out_while_another_is_written(tmp_path: Path, disk: Disk) -> None:
    ball = behavior(checkpoint_interval=1000)
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder, ball, autosave_s=0.0)
        for ball.step in (7, 8, 9):  # waits for ever if it waited
            records.write_due(ball)
        disk.free.set()
        records.wait()
        assert load_checkpoint(folder.checkpoint("B")).step == 7
        records.write_due(ball)
        records.wait()
        assert load_checkpoint(folder.checkpoint("B")).step == 9


def test_a_full_disk_is_told_later_and_the_end_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ball, full = behavior(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with RunFolder.open(tmp_path, "run") as folder, caplog.at_level(logging.WARNING, "trainer_service"):
        records = recorder(folder, ball)
        ball.step = 100
        with broken(monkeypatch, SaveError(folder.checkpoint("B"), full)):
            records.write_due(ball)
            records.wait()
        assert caplog.text.count("No space left on device. The run continues; the next try is in 60 s") == 1
        ball.step = 250
        records.write_due(ball)
        assert (numbered(folder), listed(folder)) == ([], [])
        records.finish([ball])
        assert (numbered(folder), listed(folder)) == (["B-250.safetensors"], [250])


def test_an_unexpected_error_of_the_thread_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ball = behavior()
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder, ball)
        ball.step = 100
        with broken(monkeypatch, ZeroDivisionError("a bug")):
            records.write_due(ball)
            with pytest.raises(ZeroDivisionError, match="a bug"):
                records.wait()
        records.finish([ball])
        assert listed(folder) == [100]
