"""Files that a run writes and when, without simulators."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path

import pytest
import torch

from trainer_service.config import parse_run_options
from trainer_service.learning.algorithms import Compute
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.curriculum import Curriculum, LessonHistory, Progress
from trainer_service.running.interop.onnx_export import export_policy
from trainer_service.running.metrics import JsonlWriter
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.tensorboard import TensorBoardWriter
from trainer_service.running.metrics.timers import Timers
from trainer_service.running.runs.checkpoint import NotFiniteError, load_checkpoint
from trainer_service.running.runs.files import SaveError
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.status import TrainingStatus
from trainer_service.running.training.recorder import Outputs, Recorder
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("o", (2,)),), ActionSpec(1))


def behavior(**settings: object) -> Behavior:
    options = parse_run_options({"behaviors": {"B": settings}}).options
    return Behavior("B", SPEC, options.behaviors["B"], Compute(torch.device("cpu"), 1))


class PatientRecorder(Recorder):
    """A recorder that waits for what it writes, so that tests may look at it."""

    def write_due(self, behavior: Behavior) -> None:
        super().write_due(behavior)
        self.wait()


def recorder(folder: RunFolder, **options: object) -> Recorder:
    writers = [JsonlWriter(folder.metrics)]
    outputs = Outputs(folder, Console(tty=False), writers, Timers(), export_policy)
    return PatientRecorder(outputs, TrainingStatus(), **options)  # type: ignore[arg-type]


def full(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def names(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.behavior("B").glob("*.safetensors"))


def test_checkpoints_come_at_their_interval_and_old_ones_go(tmp_path: Path) -> None:
    ball = behavior(checkpoint_interval=100, keep_checkpoints=2)
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder)
        records.add(ball)
        for step in (50, 99, 100, 150, 205, 299, 310):
            ball.step = step
            records.write_due(ball)
        assert names(folder) == ["B-205.safetensors", "B-310.safetensors", "checkpoint.safetensors"]
        assert load_checkpoint(folder.checkpoint("B")).step == 310
        status = folder.read_status(torch_version=torch.__version__).behavior("B")
    assert [record.steps for record in status.checkpoints] == [205, 310]


def test_a_full_disk_costs_a_warning_and_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ball = behavior(checkpoint_interval=100)
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder)
        records.add(ball)
        ball.step = 100
        records.write_due(ball)

        with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, logger="trainer_service"):
            patched.setattr(os, "fsync", full)
            ball.step = 200
            records.write_due(ball)
            assert "No space left on device" in caplog.text
            assert "The run continues" in caplog.text
            failures = ball.summarize(wall_s=1.0).series["Saving/Failures"]
            assert failures.total == 1.0
            with pytest.raises(SaveError, match=r"cannot write '.*': No space left"):
                records.finish([ball])
        assert load_checkpoint(folder.checkpoint("B")).step == 100
        assert not list(folder.path.rglob("*.tmp"))


def test_weights_that_are_not_finite_never_replace_good_ones(tmp_path: Path) -> None:
    ball = behavior(checkpoint_interval=100)
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder)
        records.add(ball)
        ball.step = 100
        records.write_due(ball)
        ball.diverged = True
        ball.step = 200
        records.write_due(ball)
        records.finish([ball])
        assert load_checkpoint(folder.checkpoint("B")).step == 100
        assert folder.final_model("B").read_bytes() == folder.numbered("B", 100, ".onnx").read_bytes()


def test_a_weight_that_is_not_finite_is_never_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ball = behavior(checkpoint_interval=100)
    with RunFolder.open(tmp_path, "run") as folder:
        records = watched(folder, ball, autosave_s=0.0)
        ball.step = 100
        records.write_due(ball)
        good = folder.checkpoint("B").read_bytes()
        moments = checkpoint_of(ball).algorithm["network"]
        name, weights = next((name, each) for name, each in moments.items() if each.is_floating_point())
        weights.view(-1)[0] = torch.inf
        for ball.step in (150, 200):
            records.write_due(ball)
        assert f"'B' is not saved at step 150: algorithm.network.{name} is NaN or infinite" in caplog.text
        with pytest.raises(NotFiniteError, match="not saved at step 200"):
            records.finish([ball])
        assert folder.checkpoint("B").read_bytes() == good
        assert names(folder) == ["B-100.safetensors", "checkpoint.safetensors"]


def test_a_behavior_that_cannot_be_saved_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, ball = behavior(), behavior()
    lost.name = "A"
    monkeypatch.setattr(lost.learner, "state_dict", lambda: 1 // 0)
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder, expected=["A", "B"])
        for each in (lost, ball):
            records.add(each)
        with pytest.raises(ZeroDivisionError):
            records.finish([lost, ball])
        assert folder.checkpoint("B").exists()


def test_a_missing_behavior_is_named_at_the_first_summary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ball = behavior(summary_freq=10)
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder, expected=["B", "Balll"])
        records.add(ball)
        with caplog.at_level(logging.WARNING, logger="trainer_service"):
            ball.step = 9
            records.write_due(ball)
            assert caplog.text == ""
            ball.step = 10
            records.write_due(ball)
    assert "No simulator has declared 'Balll'" in caplog.text
    assert "declared were 'B'" in caplog.text


def watched(folder: RunFolder, ball: Behavior, **options: object) -> Recorder:
    records = recorder(folder, expected=["B"], **options)
    records.add(ball)
    return records


def test_a_checkpoint_due_at_the_end_is_saved_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ball = behavior(checkpoint_interval=100)
    with RunFolder.open(tmp_path, "run") as folder, caplog.at_level(logging.INFO, logger="trainer_service"):
        records = watched(folder, ball)
        ball.step = 100
        records.write_due(ball)
        saved = folder.checkpoint("B").stat().st_mtime_ns
        records.finish([ball])
        assert folder.checkpoint("B").stat().st_mtime_ns == saved
        assert len([message for message in caplog.messages if message.startswith("Saved ")]) == 1
        status = folder.read_status(torch_version=torch.__version__).behavior("B")
        assert folder.final_model("B").read_bytes() == folder.numbered("B", 100, ".onnx").read_bytes()
    assert [record.steps for record in status.checkpoints] == [100]
    assert status.final_checkpoint is not None
    assert Path(status.final_checkpoint.file_path) == folder.final_model("B")


@pytest.mark.parametrize("budget", [{"max_steps": 150}, {"max_episodes": 2}])
def test_a_finished_behavior_is_saved_at_once_and_never_again(budget: dict[str, int], tmp_path: Path) -> None:
    quick = behavior(**budget, checkpoint_interval=100)
    with RunFolder.open(tmp_path, "run") as folder:
        records = watched(folder, quick, autosave_s=0.0)
        for step in (100, 160, 200, 300, 470):  # it goes on acting while others learn
            quick.step = step
            quick.episodes = step // 80
            records.write_due(quick)
        records.finish([quick])
        assert names(folder) == ["B-100.safetensors", "B-160.safetensors", "checkpoint.safetensors"]
        assert load_checkpoint(folder.checkpoint("B")).step == 160
        status = folder.read_status(torch_version=torch.__version__).behavior("B")
    assert status.final_checkpoint is not None
    assert status.final_checkpoint.steps == 160


def course() -> Curriculum:
    criteria = {"behavior": "B", "threshold": 5.0, "min_lesson_length": 2}
    lessons = [{"name": "low", "value": 1, "completion_criteria": criteria}, {"name": "high", "value": 2}]
    options = parse_run_options(
        {"behaviors": {"B": {}}, "environment_parameters": {"height": {"curriculum": lessons}}}
    ).options
    return Curriculum(options.environment_parameters or {})


def stored(folder: RunFolder) -> TrainingStatus:
    return folder.read_status(torch_version=torch.__version__)


def test_lessons_are_stored_with_the_weights_that_have_met_them(tmp_path: Path) -> None:
    ball, lessons = behavior(checkpoint_interval=100), course()
    with RunFolder.open(tmp_path, "run") as folder:
        records = watched(folder, ball, curriculum=lessons)
        lessons.advance({"B": Progress(0.1, (4.0,))})
        ball.step = 100
        records.write_due(ball)
        lessons.advance({"B": Progress(0.2, (3.0,))})
        ball.step = 150
        records.write_due(ball)  # nothing is saved, so nothing more is remembered
        assert stored(folder).behavior("B").lesson_history == LessonHistory((4.0,), {})
        assert stored(folder).lessons == {"height": 0}
        records.finish([ball])
        assert stored(folder).behavior("B").lesson_history == LessonHistory((3.0, 4.0), {"height": 3.5})


def test_a_new_lesson_autosaves_all_behaviors_at_once(tmp_path: Path) -> None:
    ball, lessons = behavior(), course()
    with RunFolder.open(tmp_path, "run") as folder:
        records = watched(folder, ball, curriculum=lessons)
        ball.step = 42
        assert lessons.advance({"B": Progress(0.1, (6.0, 6.0))})
        records.autosave([ball])
        assert load_checkpoint(folder.checkpoint("B")).step == 42
        assert stored(folder).lessons == {"height": 1}
        assert stored(folder).behavior("B").lesson_history == LessonHistory()
        assert names(folder) == ["checkpoint.safetensors"]


def test_a_lesson_that_could_not_be_stored_is_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ball, lessons = behavior(), course()
    now = 1000.0
    monkeypatch.setattr("trainer_service.running.training.recorder.time.monotonic", lambda: now)
    with RunFolder.open(tmp_path, "run") as folder:
        records = watched(folder, ball, curriculum=lessons)
        lessons.advance({"B": Progress(0.1, (6.0, 6.0))})
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            records.autosave([ball])
        assert "The run continues" in caplog.text
        assert not folder.checkpoint("B").exists()
        records.write_due(ball)
        assert not folder.checkpoint("B").exists()
        now += 60.0
        records.write_due(ball)
        assert stored(folder).lessons == {"height": 1}


def test_timers_name_the_versions_that_ml_agents_scripts_expect(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, "run") as folder:
        recorder(folder).finish([])
        metadata = json.loads(folder.timers.read_text())["metadata"]
    assert metadata["mlagents_version"] == metadata["mlagents_envs_version"] == "1.1.0"
    assert metadata["communication_protocol_version"] == "1.5.0"
    assert metadata["pytorch_version"] == torch.__version__


def test_an_unlisted_behavior_without_a_step_is_not_saved(tmp_path: Path) -> None:
    ball = behavior()
    with RunFolder.open(tmp_path, "run") as folder:
        records = recorder(folder, autosave_s=0.0)
        records.add(ball)
        records.write_due(ball)
        records.autosave([ball])
        records.finish([ball])
        assert not folder.behavior("B").exists()
        assert not folder.final_model("B").exists()


def test_a_forgotten_behavior_leaves_no_file_and_no_entry(tmp_path: Path) -> None:
    ball = behavior()
    with RunFolder.open(tmp_path, "run") as folder:
        events = TensorBoardWriter(folder.behavior)
        records = Recorder(Outputs(folder, Console(tty=False), [events], Timers()), TrainingStatus())
        events.write_settings("B", "nothing")
        records.add(ball)
        records.forget(ball)
        assert not folder.behavior("B").exists()
        records.finish([])
        assert not stored(folder).behaviors
        assert not records._next_save
