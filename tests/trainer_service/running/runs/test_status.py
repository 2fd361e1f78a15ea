import json
import logging
from pathlib import Path
from typing import Any

import pytest

import trainer_service
from trainer_service.errors import UserError
from trainer_service.running.runs.status import (
    BehaviorStatus,
    CheckpointRecord,
    TrainingStatus,
    prune_checkpoints,
    read_status,
)


def record(step: int, reward: float | None = 1.5) -> CheckpointRecord:
    return CheckpointRecord(
        steps=step,
        file_path=f"results/run/Ball/Ball-{step}.onnx",
        reward=reward,
        creation_time=1700000000.25,
        auxiliary_file_paths=(f"results/run/Ball/Ball-{step}.safetensors",),
    )


def saved(*steps: int) -> BehaviorStatus:
    return BehaviorStatus(tuple(record(step) for step in steps))


def test_the_layout_is_that_of_ml_agents() -> None:
    status = TrainingStatus(
        behaviors={"Ball": BehaviorStatus((record(500),), final_checkpoint=record(998, None), elo=1200.5)},
        lessons={"size": 2},
        torch_version="2.9.0",
    )
    assert json.loads(status.to_json()) == {
        "metadata": {
            "stats_format_version": "0.3.0",
            "mlagents_version": "1.1.0",
            "torch_version": "2.9.0",
            "trainer_service_version": trainer_service.__version__,
        },
        "Ball": {
            "elo": 1200.5,
            "checkpoints": [
                {
                    "steps": 500,
                    "file_path": "results/run/Ball/Ball-500.onnx",
                    "reward": 1.5,
                    "creation_time": 1700000000.25,
                    "auxillary_file_paths": ["results/run/Ball/Ball-500.safetensors"],
                }
            ],
            "final_checkpoint": {
                "steps": 998,
                "file_path": "results/run/Ball/Ball-998.onnx",
                "reward": None,
                "creation_time": 1700000000.25,
                "auxillary_file_paths": ["results/run/Ball/Ball-998.safetensors"],
            },
        },
        "size": {"lesson_num": 2},
    }


def test_a_written_status_is_read_unchanged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    status = TrainingStatus(
        behaviors={"Ball": BehaviorStatus((record(1), record(2, None)), record(3), elo=1.0), "Pad": saved(7)},
        lessons={"size": 2, "Ball": 1},
        torch_version="2.9.0",
    )
    (tmp_path / "status.json").write_text(status.to_json())
    assert read_status(tmp_path / "status.json", torch_version="2.9.0") == status
    assert caplog.messages == []


def test_saving_twice_at_one_step_lists_it_once() -> None:
    again = record(2, reward=9.0)
    assert saved(1, 2).with_checkpoint(again).checkpoints == (record(1), again)


@pytest.mark.parametrize(
    ("keep", "kept", "dropped"),
    [(5, (1, 2, 3), ()), (3, (1, 2, 3), ()), (2, (2, 3), (1,)), (1, (3,), (1, 2)), (0, (3,), (1, 2))],
)
def test_the_newest_checkpoints_are_kept(keep: int, kept: tuple[int, ...], dropped: tuple[int, ...]) -> None:
    status, files = prune_checkpoints(saved(1, 2, 3), keep)
    assert status == saved(*kept)
    assert files == {f"Ball-{step}{suffix}" for step in dropped for suffix in (".onnx", ".safetensors")}


def test_pruning_spares_a_file_that_a_kept_checkpoint_needs() -> None:
    shared = "Ball/Ball-1.safetensors"
    old = CheckpointRecord(1, "Ball/Ball-1.onnx", None, 0.0, (shared,))
    new = CheckpointRecord(2, "Ball/Ball-2.onnx", None, 0.0, (shared,))
    assert prune_checkpoints(BehaviorStatus((old, new)), 1)[1] == {"Ball-1.onnx"}


def test_a_missing_file_is_an_empty_status_and_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    status = read_status(tmp_path / "status.json", torch_version="2.9.0")
    assert status == TrainingStatus(torch_version="2.9.0")
    assert "status.json" in caplog.text
    assert "not found" in caplog.text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b"[]", "expected an object, got list"),
        (b"\xff\xfe", "utf-8"),
        (b'{"Ball": {"checkpoints": [{"steps": 5}]}}', "key 'reward' is missing"),
        (b'{"Ball": {"checkpoints": 5}}', "not iterable"),
        (b'{"size": {"lesson_num": "third"}}', "third"),
        (b'{"size": {"lesson_num": 1e999}}', "infinity"),
        (b"[" * 100_000, "cannot read"),
    ],
)
def test_a_damaged_status_is_refused_with_a_remedy(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_status(path, torch_version="2.9.0")
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)
    assert "delete the file" in str(caught.value)


@pytest.mark.parametrize(
    ("metadata", "warning"),
    [
        (None, "does not say which versions"),
        ({"torch_version": "1.0"}, "torch_version 1.0, this is 2.9.0"),
    ],
)
def test_other_versions_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, metadata: dict[str, Any] | None, warning: str
) -> None:
    document = json.loads(TrainingStatus(torch_version="2.9.0").to_json())
    if metadata is None:
        del document["metadata"]
    else:
        document["metadata"].update(metadata)
    (tmp_path / "status.json").write_text(json.dumps(document))
    read_status(tmp_path / "status.json", torch_version="2.9.0")
    assert [entry.levelno for entry in caplog.records] == [logging.WARNING]
    assert warning in caplog.text
