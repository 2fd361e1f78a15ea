"""Files that a run writes and when, without simulators."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_runs import behavior_of, listed, recorder_of, stored, write_at

from trainer_service.config import parse_run_options
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.curriculum import Curriculum, LessonHistory, LessonState, Progress
from trainer_service.running.metrics import RunEnd, Summary, SummaryWriter
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.tensorboard import TensorBoardWriter
from trainer_service.running.metrics.timers import Timers
from trainer_service.running.runs.checkpoint import NotFiniteError, load_checkpoint
from trainer_service.running.runs.files import SaveError
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.status import TrainingStatus
from trainer_service.running.training.recorder import Outputs, Recorder


def full(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def names(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in folder.behavior("B").glob("*.safetensors"))


def saved_step(folder: RunFolder) -> int:
    return load_checkpoint(folder.checkpoint("B")).step


def test_checkpoints_come_at_their_interval_and_old_ones_go(folder: RunFolder) -> None:
    ball = behavior_of(keep_checkpoints=2)
    write_at(recorder_of(folder, ball), ball, 50, 99, 100, 150, 205, 299, 310)
    assert names(folder) == ["B-205.safetensors", "B-310.safetensors", "checkpoint.safetensors"]
    assert saved_step(folder) == 310
    assert listed(folder) == [205, 310]


def test_a_full_disk_costs_a_warning_and_no_checkpoint(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ball = behavior_of()
    records = recorder_of(folder, ball)
    write_at(records, ball, 100)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        write_at(records, ball, 200)
        assert "No space left on device" in caplog.text
        assert "The run continues" in caplog.text
        assert ball.summarize(wall_s=1.0).series["Saving/Failures"].total == 1.0
        with pytest.raises(SaveError, match=r"cannot write '.*': No space left"):
            records.finish([ball])
    assert saved_step(folder) == 100
    assert not list(folder.path.rglob("*.tmp"))


def test_an_end_that_was_not_saved_is_the_end_of_the_run(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ball = behavior_of()
    records = recorder_of(folder, ball)
    write_at(records, ball, 100)
    monkeypatch.setattr(ball.learner, "state_dict", lambda: 1 // 0)
    write_at(records, ball, 150)
    with pytest.raises(ZeroDivisionError):
        records.finish([ball], "finished", "its budget, which is used up")
    told = json.loads(folder.timers.read_text())["metadata"]
    assert (told["end"], told["ended_by"]) == ("failed", "integer division or modulo by zero")


class Full(SummaryWriter):
    """A writer whose file finds no room at its end."""

    def write(self, summary: Summary) -> None: ...

    def close(self, end: RunEnd) -> None:
        raise SaveError(Path("events"), OSError(28, "No space left on device"))


def test_a_file_of_summaries_that_is_full_costs_no_other_end(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    ball = behavior_of()
    records = recorder_of(folder, ball)
    records._writers = [Full(), *records._writers]
    write_at(records, ball, 100)
    records.finish([ball])
    assert "cannot write 'events': No space left on device" in caplog.text
    assert json.loads(folder.timers.read_text())["metadata"]["end"] == "finished"


def test_weights_that_are_not_finite_never_replace_good_ones(folder: RunFolder) -> None:
    ball = behavior_of()
    records = recorder_of(folder, ball)
    write_at(records, ball, 100)
    ball.diverged = True
    write_at(records, ball, 200)
    records.finish([ball])
    assert saved_step(folder) == 100
    assert folder.final_model("B").read_bytes() == folder.numbered("B", 100, ".onnx").read_bytes()


def test_a_weight_that_is_not_finite_is_never_written(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    ball = behavior_of()
    records = recorder_of(folder, ball, autosave_s=0.0)
    write_at(records, ball, 100)
    good = folder.checkpoint("B").read_bytes()
    network = checkpoint_of(ball).algorithm["network"]
    name, weights = next((name, each) for name, each in network.items() if each.is_floating_point())
    weights.view(-1)[0] = torch.inf
    write_at(records, ball, 150, 200)
    assert f"'B' is not saved at step 150: algorithm.network.{name} is NaN or infinite" in caplog.text
    with pytest.raises(NotFiniteError, match="not saved at step 200"):
        records.finish([ball])
    assert folder.checkpoint("B").read_bytes() == good
    assert names(folder) == ["B-100.safetensors", "checkpoint.safetensors"]


def test_a_behavior_that_cannot_be_saved_costs_no_other(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, ball = behavior_of(), behavior_of()
    lost.name = "A"
    monkeypatch.setattr(lost.learner, "state_dict", lambda: 1 // 0)
    records = recorder_of(folder, lost, ball, expected=["A", "B"])
    with pytest.raises(ZeroDivisionError):
        records.finish([lost, ball])
    assert folder.checkpoint("B").exists()


def test_a_missing_behavior_is_named_at_the_first_summary(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    ball = behavior_of(summary_freq=10)
    records = recorder_of(folder, ball, expected=["B", "Balll"])
    write_at(records, ball, 9)
    assert caplog.text == ""
    write_at(records, ball, 10)
    assert "No simulator has declared 'Balll'" in caplog.text
    assert "declared were 'B'" in caplog.text


def test_a_checkpoint_due_at_the_end_is_saved_once(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    ball = behavior_of()
    with caplog.at_level(logging.INFO, logger="trainer_service"):
        records = recorder_of(folder, ball)
        write_at(records, ball, 100)
        saved = folder.checkpoint("B").stat().st_mtime_ns
        records.finish([ball])
    assert folder.checkpoint("B").stat().st_mtime_ns == saved
    assert len([message for message in caplog.messages if message.startswith("Saved ")]) == 1
    assert folder.final_model("B").read_bytes() == folder.numbered("B", 100, ".onnx").read_bytes()
    assert listed(folder) == [100]
    final = stored(folder).behavior("B").final_checkpoint
    assert final is not None
    assert Path(final.file_path) == folder.final_model("B")


@pytest.mark.parametrize("budget", [{"max_steps": 150}, {"max_episodes": 2}])
def test_a_finished_behavior_is_saved_at_once_and_never_again(
    budget: dict[str, int], folder: RunFolder
) -> None:
    quick = behavior_of(**budget)
    records = recorder_of(folder, quick, expected=["B"], autosave_s=0.0)
    for step in (100, 160, 200, 300, 470):  # it goes on acting while others learn
        quick.episodes = step // 80
        write_at(records, quick, step)
    records.finish([quick])
    assert names(folder) == ["B-100.safetensors", "B-160.safetensors", "checkpoint.safetensors"]
    assert saved_step(folder) == 160
    final = stored(folder).behavior("B").final_checkpoint
    assert final is not None
    assert final.steps == 160


@pytest.fixture
def course() -> Curriculum:
    """Two lessons, of which the first ends by two returns above 5."""
    criteria = {"behavior": "B", "threshold": 5.0, "min_lesson_length": 2}
    lessons = [{"name": "low", "value": 1, "completion_criteria": criteria}, {"name": "high", "value": 2}]
    sections: dict[str, Any] = {"environment_parameters": {"height": {"curriculum": lessons}}}
    options = parse_run_options({"behaviors": {"B": {}}, **sections}).options
    return Curriculum(options.environment_parameters or {})


def test_lessons_are_stored_with_the_weights_that_have_met_them(
    folder: RunFolder, course: Curriculum
) -> None:
    ball = behavior_of()
    records = recorder_of(folder, ball, curriculum=course)
    course.advance({"B": Progress(0.1, (4.0,))})
    write_at(records, ball, 100)
    course.advance({"B": Progress(0.2, (3.0,))})
    write_at(records, ball, 150)  # nothing is saved, so nothing more is remembered
    assert stored(folder).behavior("B").lesson_history == LessonHistory((4.0,), {})
    assert stored(folder).lessons == {"height": 0}
    records.finish([ball])
    assert stored(folder).behavior("B").lesson_history == LessonHistory((3.0, 4.0), {"height": 3.5})


def test_a_new_lesson_autosaves_all_behaviors_at_once(folder: RunFolder, course: Curriculum) -> None:
    ball = behavior_of()
    records = recorder_of(folder, ball, expected=["B"], curriculum=course)
    ball.step = 42
    assert course.advance({"B": Progress(0.1, (6.0, 6.0))})
    records.autosave([ball])
    assert saved_step(folder) == 42
    assert stored(folder).lessons == {"height": 1}
    assert load_checkpoint(folder.checkpoint("B")).lessons == LessonState({"height": 1}, LessonHistory())
    assert stored(folder).behavior("B").lesson_history == LessonHistory()
    assert names(folder) == ["checkpoint.safetensors"]


def test_a_lesson_that_could_not_be_stored_is_stored_later(
    folder: RunFolder, course: Curriculum, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ball, now = behavior_of(), 1000.0
    monkeypatch.setattr("trainer_service.running.training.recorder.time.monotonic", lambda: now)
    records = recorder_of(folder, ball, expected=["B"], curriculum=course)
    course.advance({"B": Progress(0.1, (6.0, 6.0))})
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        records.autosave([ball])
    assert "The run continues" in caplog.text
    write_at(records, ball, 0)
    assert not folder.checkpoint("B").exists()
    now += 60.0
    write_at(records, ball, 0)
    assert stored(folder).lessons == {"height": 1}


def test_timers_name_the_versions_that_ml_agents_scripts_expect(folder: RunFolder) -> None:
    recorder_of(folder).finish([])
    metadata = json.loads(folder.timers.read_text())["metadata"]
    assert metadata["mlagents_version"] == metadata["mlagents_envs_version"] == "1.1.0"
    assert metadata["communication_protocol_version"] == "1.5.0"
    assert metadata["pytorch_version"] == torch.__version__


def test_an_unlisted_behavior_without_a_step_is_not_saved(folder: RunFolder) -> None:
    ball = behavior_of()
    records = recorder_of(folder, ball, autosave_s=0.0)
    write_at(records, ball, 0)
    records.autosave([ball])
    records.finish([ball])
    assert not folder.behavior("B").exists()
    assert not folder.final_model("B").exists()


def test_a_forgotten_behavior_leaves_no_file_and_no_entry(folder: RunFolder) -> None:
    ball, events = behavior_of(), TensorBoardWriter(folder.behavior)
    records = Recorder(Outputs(folder, Console(tty=False), [events], Timers()), TrainingStatus())
    events.write_settings("B", "nothing")
    records.add(ball)
    records.forget(ball)
    assert not folder.behavior("B").exists()
    records.finish([])
    assert not stored(folder).behaviors
    assert not records._next_save
