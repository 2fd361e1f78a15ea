"""Checkpoints, written and read. Messages about damaged ones are tested in test_bad_input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
from trainer_service.running.runs.tensor_file import write_values
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


def test_learner_ranks_are_told_all_of_a_sensor(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """They read recordings, whose pictures may be written in another order, and are made from a plain checkpoint."""
    sensors = (
        ObservationSpec("old", (3, 4, 5), float_order="hwc"),
        ObservationSpec("new", (3, 4, 5)),
        ObservationSpec("agent_id", (2,), added=True),
    )
    plain = plain_checkpoint(replace(checkpoint, spec=BehaviorSpec(sensors, ActionSpec(1))))
    assert parse_checkpoint(plain, tmp_path).spec.observation_specs == sensors


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


def test_a_checkpoint_without_one_of_its_keys_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    plain = plain_checkpoint(checkpoint)
    del plain["env_steps"]
    with pytest.raises(UserError, match=r"cannot use checkpoint .*: 'env_steps'"):
        parse_checkpoint(plain, tmp_path / "checkpoint.safetensors")


def test_a_format_of_the_future_is_named(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(checkpoint, path)
    with path.open("wb") as file:
        write_values({**plain_checkpoint(checkpoint), "format": 99}, file)
    with pytest.raises(UserError, match="has format 99; this version reads 1"):
        load_checkpoint(path)


@pytest.mark.parametrize("name", ["../../esc/pwn", "..", "\x1b[31m", "", None, 7])
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
    ],
    ids=["numbers", "sensors"],
)
def test_a_behavior_beyond_measure_is_refused(
    checkpoint: Checkpoint, tmp_path: Path, spec: BehaviorSpec, expected: str
) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(replace(checkpoint, spec=spec), path)
    with pytest.raises(UserError, match=expected):
        load_checkpoint(path)


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


def test_a_model_is_no_checkpoint_and_not_damaged(tmp_path: Path) -> None:
    (tmp_path / "Walker.onnx").write_bytes(b"\x08\x07pytorch")
    with pytest.raises(
        UserError, match=r"is an exported model; expected a checkpoint, \.safetensors or \.pt"
    ):
        load_checkpoint(tmp_path / "Walker.onnx")
