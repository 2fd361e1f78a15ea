"""What a run writes and when, without simulators."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest
import torch

from trainer_service.algorithms import Compute
from trainer_service.behavior import Behavior
from trainer_service.checkpoint import load_checkpoint
from trainer_service.config import parse_run_options
from trainer_service.console import Console
from trainer_service.files import SaveError
from trainer_service.metrics import JsonlWriter
from trainer_service.recorder import Recorder
from trainer_service.run import RunFolder
from trainer_service.status import TrainingStatus
from trainer_service.timers import Timers
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("o", (2,)),), ActionSpec(1))


def behavior(**settings: object) -> Behavior:
    options = parse_run_options({"behaviors": {"B": settings}}).options
    return Behavior("B", SPEC, options.behaviors["B"], Compute(torch.device("cpu"), 1))


def recorder(folder: RunFolder, **options: object) -> Recorder:
    writers = [JsonlWriter(folder.metrics)]
    return Recorder(folder, Console(tty=False), writers, Timers(), TrainingStatus(), **options)  # type: ignore[arg-type]


def names(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.behavior("B").glob("*.pt"))


def test_checkpoints_come_at_their_interval_and_old_ones_go(tmp_path: Path) -> None:
    ball = behavior(checkpoint_interval=100, keep_checkpoints=2)
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder)
        records.watch(ball)
        for step in (50, 99, 100, 150, 205, 299, 310):
            ball.step = step
            records.report(ball)
        assert names(folder) == ["B-205.pt", "B-310.pt", "checkpoint.pt"]
        assert load_checkpoint(folder.checkpoint("B")).step == 310
        status = folder.read_status(torch_version=torch.__version__).behavior("B")
    assert [record.steps for record in status.checkpoints] == [205, 310]


def test_between_them_only_the_newest_state_is_renewed(tmp_path: Path) -> None:
    ball = behavior(checkpoint_interval=1000)
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder, autosave_s=0.0)
        records.watch(ball)
        ball.step = 7
        records.report(ball)
        assert names(folder) == ["checkpoint.pt"]
        assert load_checkpoint(folder.checkpoint("B")).step == 7


def test_a_full_disk_costs_a_warning_and_the_last_good_checkpoint_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ball = behavior(checkpoint_interval=100)
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder)
        records.watch(ball)
        ball.step = 100
        records.report(ball)

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, logger="trainer_service"):
            patched.setattr(os, "fsync", full)
            ball.step = 200
            records.report(ball)
            assert "No space left on device" in caplog.text
            assert "The run goes on" in caplog.text
            with pytest.raises(SaveError, match=r"cannot write '.*': No space left"):
                records.finish([ball])
        assert load_checkpoint(folder.checkpoint("B")).step == 100
        assert not list(folder.path.rglob("*.tmp"))


def test_weights_that_are_no_numbers_never_replace_good_ones(tmp_path: Path) -> None:
    ball = behavior(checkpoint_interval=100)
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder)
        records.watch(ball)
        ball.step = 100
        records.report(ball)
        ball.diverged = True
        ball.step = 200
        records.report(ball)
        records.finish([ball])
        assert load_checkpoint(folder.checkpoint("B")).step == 100


def test_a_folder_opened_to_be_read_gets_nothing(tmp_path: Path) -> None:
    ball = behavior(checkpoint_interval=1)
    folder = RunFolder.open(tmp_path, "run", inference=True)
    records = Recorder(folder, Console(tty=False), [], Timers(), TrainingStatus(), autosave_s=0.0)
    records.watch(ball)
    ball.step = 10
    records.report(ball)
    records.finish([ball])
    assert list(tmp_path.iterdir()) == []


def test_a_behavior_that_never_shows_up_is_named_at_the_first_summary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ball = behavior(summary_freq=10)
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder, expected=["B", "Balll"])
        records.watch(ball)
        with caplog.at_level(logging.WARNING, logger="trainer_service"):
            ball.step = 9
            records.report(ball)
            assert caplog.text == ""
            ball.step = 10
            records.report(ball)
    assert "No simulator has declared 'Balll'" in caplog.text
    assert "declared were 'B'" in caplog.text
