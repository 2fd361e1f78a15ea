"""Checkpoints, written and read. Messages about damaged ones are tested in test_bad_input."""

from __future__ import annotations

import errno
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainer_service.errors import UserError
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.runs.checkpoint import (
    Checkpoint,
    checkpoint_digest,
    load_checkpoint,
    parse_checkpoint,
    plain_checkpoint,
    read_content,
    save_checkpoint,
    snapshot,
    spec_mismatch,
)
from trainer_service.running.runs.tensor_file import read_values, write_values
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec, ObservationType

SPEC = BehaviorSpec(
    (
        ObservationSpec("eyes", (4,), (DimensionProperty.NONE,)),
        ObservationSpec(
            "others",
            (3, 2),
            (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE),
            ObservationType.GOAL_SIGNAL,
        ),
    ),
    ActionSpec(2, (3, 2)),
)


@pytest.fixture
def checkpoint(make_behavior) -> Checkpoint:
    made: Checkpoint = checkpoint_of(make_behavior(name="Walker"))
    return replace(made, step=77, spec=SPEC)


def test_saved_content_is_loaded_unchanged(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_checkpoint(checkpoint, tmp_path / "checkpoint.safetensors")
    loaded = load_checkpoint(tmp_path / "checkpoint.safetensors")
    assert (loaded.behavior, loaded.step) == ("Walker", 77)
    assert loaded.spec == SPEC
    assert loaded.settings == checkpoint.settings
    assert loaded.algorithm.keys() == checkpoint.algorithm.keys()
    for name, weights in checkpoint.algorithm["network"].items():
        assert torch.equal(loaded.algorithm["network"][name], weights)


def test_learner_ranks_are_told_in_which_order_pictures_are_written(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """They read recordings, and are made from a plain checkpoint."""
    shape = (3, 4, 5)
    spec = BehaviorSpec(
        (ObservationSpec("old", shape, float_order="hwc"), ObservationSpec("new", shape)), ActionSpec(1)
    )
    plain = plain_checkpoint(replace(checkpoint, spec=spec))
    sensors = parse_checkpoint(plain, tmp_path).spec.observation_specs
    assert [sensor.float_order for sensor in sensors] == ["hwc", "chw"]


def test_learner_ranks_are_told_which_sensors_the_trainer_added(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    sensors = (ObservationSpec("agent_id", (2,)), ObservationSpec("agent_id", (2,), added=True))
    spec = BehaviorSpec(sensors, ActionSpec(1))
    read = parse_checkpoint(plain_checkpoint(replace(checkpoint, spec=spec)), tmp_path).spec
    assert read.observation_specs == sensors


def test_every_path_gets_identical_bytes_and_no_leftovers(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_checkpoint(checkpoint, tmp_path / "run" / "a.safetensors", tmp_path / "run" / "b.safetensors")
    first, second = sorted((tmp_path / "run").iterdir())
    assert (first.name, second.name) == ("a.safetensors", "b.safetensors")
    assert first.read_bytes() == second.read_bytes()


def test_a_checkpoint_is_a_file_of_tensors_and_plain_values(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_checkpoint(checkpoint, tmp_path / "checkpoint.safetensors")
    assert read_values(tmp_path / "checkpoint.safetensors")["behavior"] == "Walker"


def test_a_path_with_the_suffix_of_ml_agents_finds_our_file(checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_checkpoint(checkpoint, tmp_path / "Walker-77.safetensors")
    assert load_checkpoint(tmp_path / "Walker-77.pt").step == 77


def test_a_state_of_ml_agents_of_the_same_name_goes(checkpoint: Checkpoint, tmp_path: Path) -> None:
    theirs, path = tmp_path / "checkpoint.pt", tmp_path / "checkpoint.safetensors"
    torch.save({"Policy": {}, "global_step": {}}, theirs)
    assert read_content(path).keys() == {"Policy", "global_step"}
    assert checkpoint_digest(theirs) is None
    save_checkpoint(checkpoint, path)
    assert not theirs.exists()
    assert load_checkpoint(theirs).step == 77


def test_a_state_of_ours_in_a_file_of_torch_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    torch.save(plain_checkpoint(checkpoint), tmp_path / "checkpoint.pt")
    with pytest.raises(
        UserError, match=r"checkpoint\.pt' is not a checkpoint of this trainer or of ML-Agents"
    ):
        load_checkpoint(tmp_path / "checkpoint.pt")


@pytest.mark.parametrize("key", ["episodes", "env_steps", "self_play"])
def test_a_checkpoint_without_one_of_its_keys_is_refused(
    checkpoint: Checkpoint, tmp_path: Path, key: str
) -> None:
    plain = plain_checkpoint(checkpoint)
    del plain[key]
    with pytest.raises(UserError, match=f"cannot use checkpoint .*: '{key}'"):
        parse_checkpoint(plain, tmp_path / "checkpoint.safetensors")


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"checkpoint '.*nowhere\.safetensors' does not exist"):
        load_checkpoint(tmp_path / "nowhere.safetensors")


def test_a_folder_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is damaged"):
        load_checkpoint(tmp_path)


def test_no_flipped_byte_is_loaded(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(checkpoint, path)
    written = path.read_bytes()
    weights = dict(checkpoint.algorithm["network"])
    refused = 0
    for place in np.random.default_rng(1).integers(len(written), size=100).tolist():
        path.write_bytes(written[:place] + bytes([written[place] ^ 0x10]) + written[place + 1 :])
        try:
            loaded = load_checkpoint(path)
        except UserError:
            refused += 1
        else:  # the byte meant nothing: alignment
            assert (loaded.step, loaded.settings) == (77, checkpoint.settings)
            assert all(torch.equal(loaded.algorithm["network"][name], weights[name]) for name in weights)
    assert refused > 90


def test_a_flipped_byte_is_found_by_its_checksum(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(checkpoint, path)
    written = path.read_bytes()
    place = written.index(next(iter(checkpoint.algorithm["network"].values())).numpy().tobytes())
    path.write_bytes(written[:place] + bytes([written[place] ^ 1]) + written[place + 1 :])
    with pytest.raises(UserError, match=r"is damaged: it is not what was written \(checksum\)"):
        load_checkpoint(path)


def test_a_format_of_the_future_is_named(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(checkpoint, path)
    with path.open("wb") as file:
        write_values({**plain_checkpoint(checkpoint), "format": 99}, file)
    with pytest.raises(UserError, match="has format 99; this version reads 1"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "name", ["../../esc/pwn", "/pwn", "..", "a\\b", "3DBall?team=1", "\x1b[31m", "", None, 7]
)
def test_a_behavior_whose_name_leads_elsewhere_is_refused(
    checkpoint: Checkpoint, tmp_path: Path, name
) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(replace(checkpoint, behavior=name), path)
    with pytest.raises(UserError, match=r"cannot use checkpoint '.*': .*name"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            BehaviorSpec((ObservationSpec("eyes", (5000, 5000)),), ActionSpec(1)),
            "see at most 16777216 numbers",
        ),
        (
            BehaviorSpec(1001 * (ObservationSpec("eyes", (1,)),), ActionSpec(1)),
            "at most 1000 sensors and branches",
        ),
        (BehaviorSpec((ObservationSpec("eyes", (1,)),), ActionSpec(0, 1001 * (2,))), "at most 1000 sensors"),
    ],
    ids=["numbers", "sensors", "branches"],
)
def test_a_behavior_beyond_measure_is_refused(
    checkpoint: Checkpoint, tmp_path: Path, spec: BehaviorSpec, expected: str
) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(replace(checkpoint, spec=spec), path)
    with pytest.raises(UserError, match=expected):
        load_checkpoint(path)


@pytest.mark.parametrize("step", [-1, 1.5, "7", None, True, 2**70])
def test_a_step_that_is_none_is_refused(checkpoint: Checkpoint, tmp_path: Path, step) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(replace(checkpoint, step=step), path)
    with pytest.raises(UserError, match="expected a step"):
        load_checkpoint(path)


def test_a_behavior_that_stayed_as_it_was_has_no_differences() -> None:
    assert spec_mismatch(SPEC, replace(SPEC)) is None


def test_a_sensor_may_be_renamed() -> None:
    eyes, others = SPEC.observation_specs
    renamed = replace(SPEC, observation_specs=(replace(eyes, name="camera"), others))
    assert spec_mismatch(SPEC, renamed) is None


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            replace(SPEC, action_spec=ActionSpec(2, (3, 3))),
            "actions were 2 continuous and branches [3, 2], now 2 continuous and branches [3, 3]",
        ),
        (replace(SPEC, observation_specs=SPEC.observation_specs[:1]), "it had 2 sensors, now 1"),
        (
            replace(SPEC, observation_specs=(ObservationSpec("eyes", (5,)), SPEC.observation_specs[1])),
            "sensor 'eyes' had shape (4,), now (5,)",
        ),
        (
            replace(SPEC, observation_specs=(SPEC.observation_specs[0], ObservationSpec("others", (3, 2)))),
            "sensor 'others' was GOAL_SIGNAL, now DEFAULT",
        ),
    ],
)
def test_a_changed_spec_is_described_in_words(changed: BehaviorSpec, expected: str) -> None:
    assert spec_mismatch(SPEC, changed) == expected


def test_a_snapshot_keeps_its_numbers_and_shares_as_the_original_did(checkpoint: Checkpoint) -> None:
    vector = torch.arange(6.0)
    parts = {
        "whole": vector,
        "parts": [vector[:2], vector[2:].view(2, 2)],
        "other": {"count": torch.tensor(3)},
    }
    copied = snapshot(replace(checkpoint, algorithm=parts, self_play={"rating": 7.0})).algorithm
    vector.zero_()
    assert copied["whole"].tolist() == [0, 1, 2, 3, 4, 5]
    assert copied["parts"][1].tolist() == [[2, 3], [4, 5]]
    assert copied["other"]["count"].item() == 3
    copied["whole"][3] = 9.0
    assert copied["parts"][1].tolist() == [[2, 9], [4, 5]]


def test_a_snapshot_is_written_as_the_original_would_be(checkpoint: Checkpoint, tmp_path: Path) -> None:
    for name, each in {"straight": checkpoint, "copied": snapshot(checkpoint)}.items():
        save_checkpoint(each, tmp_path / name)
    straight, copied = (load_checkpoint(tmp_path / name).algorithm for name in ("straight", "copied"))
    sizes = [(tmp_path / name).stat().st_size for name in ("straight", "copied")]
    assert abs(sizes[0] - sizes[1]) < 4096  # layers' versions, which nothing reads
    assert repr(straight) == repr(copied)


class SmallDisk(io.BytesIO):
    """A file on a disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_a_disk_that_fills_up_at_any_byte_is_told_as_such(checkpoint: Checkpoint) -> None:
    content, whole = plain_checkpoint(checkpoint), io.BytesIO()
    write_values(content, whole)
    size = len(whole.getvalue())
    for room in (0, 1, 100, size // 3, size // 2, size - 100, size - 1):
        with pytest.raises(OSError, match="No space left"):
            write_values(content, SmallDisk(room))
    write_values(content, SmallDisk(size))
