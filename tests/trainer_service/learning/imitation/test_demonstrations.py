from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from unity_recordings import as_unity_writes

from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.imitation import DemonstrationStore, read_all
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge import specs
from unity_bridge.codec.sensor_layout import detect_layout
from unity_bridge.specs import (
    GLOBAL_STATE,
    ActionSpec,
    BehaviorSpec,
    FloatOrder,
    ObservationSpec,
    PictureLayout,
)

CPU = torch.device("cpu")
VECTOR = ObservationSpec("vector", (2,))
PICTURE = ObservationSpec("picture", (3, 8, 8), specs.PICTURE)
BOTH = BehaviorSpec((PICTURE, VECTOR), ActionSpec(1, (3,)))


def episode(shown, steps: int, first: float = 0.0, *, terminated: bool = True):
    """The vector counts up from ``first``, and so do the actions, in tenths and modulo 3."""
    numbers = first + np.arange(steps + 1)
    pictures = np.broadcast_to(numbers.astype(np.uint8)[:, None, None, None], (steps + 1, 3, 8, 8)).copy()
    vectors = np.stack([numbers, -numbers], axis=1).astype(np.float32)
    acted = numbers[:steps, None]
    return shown([pictures, vectors], acted / 10.0, acted % 3, terminated)


def test_steps_lie_beside_their_actions_and_ends(write_demo, shown) -> None:
    path = write_demo(BOTH, episode(shown, 3), episode(shown, 2, 7, terminated=False), episode(shown, 1, 20))
    content = DemonstrationStore(str(path), BOTH).read()
    assert len(content) == 6
    assert content.lengths.tolist() == [3, 2, 1]
    pictures, vectors = content.steps.observations
    assert pictures.dtype == torch.uint8
    assert pictures[:, 0, 0, 0].tolist() == vectors[:, 0].tolist() == [0, 1, 2, 7, 8, 20]
    assert content.steps.executed_actions[:, 0].tolist() == pytest.approx([0.0, 0.1, 0.2, 0.7, 0.8, 1.0])
    assert content.steps.discrete_actions[:, 0].tolist() == [0, 1, 2, 1, 2, 2]
    assert content.steps.terminated.tolist() == [False, False, True, False, False, True]


def test_a_folder_is_all_its_files(write_demo, shown, tmp_path: Path) -> None:
    write_demo(BOTH, episode(shown, 2, 10), file="b.demo")
    write_demo(BOTH, episode(shown, 1), episode(shown, 3), file="a.demo")
    content = DemonstrationStore(str(tmp_path), BOTH).read()
    assert content.lengths.tolist() == [1, 3, 2]
    assert content.steps.observations[1][:, 0].tolist() == [0, 0, 1, 2, 10, 11]


def test_what_several_learn_from_is_read_once(write_demo, shown) -> None:
    path, other = (str(write_demo(BOTH, episode(shown, 2), file=name)) for name in ("a.demo", "b.demo"))
    stores = [DemonstrationStore(each, BOTH) for each in (path, other, path)]
    read_all(stores)
    first, second, third = (store.read() for store in stores)
    assert first is third
    assert first is not second


def test_an_episode_that_is_read_in_segments_stays_one(write_demo, shown) -> None:
    spec = BehaviorSpec((VECTOR,), ActionSpec(1, ()))
    steps = 2500
    long = shown([np.ones((steps + 1, 2), np.float32)], np.zeros((steps, 1)))
    content = DemonstrationStore(str(write_demo(spec, long, long)), spec).read()
    assert content.lengths.tolist() == [steps, steps]
    assert content.steps.terminated.nonzero().squeeze(1).tolist() == [steps - 1, 2 * steps - 1]


def test_what_goes_beyond_an_actions_range_is_its_limit(write_demo, shown) -> None:
    spec = BehaviorSpec((VECTOR,), ActionSpec(1, ()))
    path = write_demo(spec, shown([np.ones((4, 2), np.float32)], np.array([[5.0], [-0.25], [-1.5]])))
    assert DemonstrationStore(str(path), spec).read().steps.executed_actions.tolist() == [
        [1.0],
        [-0.25],
        [-1.0],
    ]


@pytest.mark.parametrize(
    ("behavior", "complaint"),
    [
        (
            BehaviorSpec((VECTOR,), BOTH.action_spec),
            r"was recorded with 2 sensors \(3, 8, 8\), \(2,\), the behavior has 1 \(2,\)",
        ),
        (
            BehaviorSpec((PICTURE, ObservationSpec("other", (5,))), BOTH.action_spec),
            r"sensor '.*' was recorded with shape \(2,\), sensor 'other' of the behavior has \(5,\)",
        ),
        (
            BehaviorSpec((PICTURE, VECTOR), ActionSpec(2, (3,))),
            r"was recorded with 1 continuous actions and branches \[3\], "
            r"the behavior has 2 continuous actions and branches \[3\]",
        ),
    ],
    ids=["sensors", "shape", "actions"],
)
def test_a_recording_of_another_body_is_refused_by_name(
    write_demo, shown, behavior: BehaviorSpec, complaint: str
) -> None:
    path = write_demo(BOTH, episode(shown, 2))
    with pytest.raises(UserError, match=complaint) as refused:
        DemonstrationStore(str(path), behavior).read()
    assert str(path) in str(refused.value)


def test_the_global_state_of_a_recording_is_left_out(write_demo, shown) -> None:
    sensors = (ObservationSpec(GLOBAL_STATE, (4,)), VECTOR)
    seen = [np.zeros((3, 4), np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)]
    path = write_demo(BehaviorSpec(sensors, ActionSpec(1, ())), shown(seen, np.zeros((2, 1))))
    own = DemonstrationStore(str(path), BehaviorSpec((VECTOR,), ActionSpec(1, ()))).read()
    (vector,) = own.steps.observations
    assert vector.tolist() == [[0.0, 1.0], [2.0, 3.0]]


def test_actions_that_nobody_could_take_are_refused(write_demo, shown) -> None:
    spec = BehaviorSpec((VECTOR,), ActionSpec(0, (3, 2)))
    path = write_demo(spec, shown([np.ones((3, 2), np.float32)], None, np.array([[2, 1], [0, 2]])))
    with pytest.raises(UserError, match=r"expert\.demo.*branch 1: expected a choice of 0 to 1, got 2"):
        DemonstrationStore(str(path), spec).read()


@pytest.mark.parametrize("content", [None, b"", b"no recording"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "expert.demo"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"expert\.demo"):
        DemonstrationStore(str(path), BOTH).read()


FLOATS = np.random.default_rng(1).random((4, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("version", "picture_layout", "written"),
    [("4.0.0", "auto", "hwc"), ("4.2.0", "auto", "chw"), ("4.0.1", "hwc", "hwc")],
)
def test_pictures_of_a_recording_lie_as_the_connected_simulator_writes_them(
    write_demo,
    shown,
    caplog: pytest.LogCaptureFixture,
    version: str,
    picture_layout: PictureLayout,
    written: FloatOrder,
) -> None:
    caplog.set_level(logging.INFO, "trainer_service")
    path = write_demo(BehaviorSpec((PICTURE,), ActionSpec(1)), shown([FLOATS], np.zeros((3, 1))))
    sensor, _ = detect_layout(PICTURE, version, picture_layout)
    store = DemonstrationStore(str(as_unity_writes(path, written)), BehaviorSpec((sensor,), ActionSpec(1)))
    (pictures,) = store.read().steps.observations
    np.testing.assert_array_equal(pictures.numpy(), FLOATS[:3])
    (said,) = caplog.messages
    order = {"hwc": "(height, width, channels)", "chw": "(channels, height, width)"}[written]
    assert f"uncompressed pictures ('picture') are read as {order}" in said


def test_our_own_recordings_are_read_as_they_are_whatever_the_simulator_does(
    write_demo, shown, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trainer_service")
    path = write_demo(BehaviorSpec((PICTURE,), ActionSpec(1)), shown([FLOATS], np.zeros((3, 1))))
    sensor, _ = detect_layout(PICTURE, "4.0.0")
    (pictures,) = (
        DemonstrationStore(str(path), BehaviorSpec((sensor,), ActionSpec(1))).read().steps.observations
    )
    np.testing.assert_array_equal(pictures.numpy(), FLOATS[:3])
    assert not caplog.messages


@pytest.mark.parametrize(("trainer_type", "learns_by"), [("ppo", "gail"), ("sac", "behavioral_cloning")])
def test_learners_keep_the_order_in_which_their_simulator_writes_pictures(
    write_demo, shown, caplog: pytest.LogCaptureFixture, trainer_type: str, learns_by: str
) -> None:
    path = write_demo(BehaviorSpec((PICTURE,), ActionSpec(1)), shown([FLOATS], np.zeros((3, 1))))
    small = {"vis_encode_type": "fully_connected", "hidden_units": 8}
    demo = {"demo_path": str(as_unity_writes(path, "hwc"))}
    gail = {"reward_signals": {"gail": {**demo, "network_settings": small}}}
    sensor, _ = detect_layout(PICTURE, "4.0.0")
    behavior = Behavior(
        "Ball",
        BehaviorSpec((sensor,), ActionSpec(1)),
        TrainerSettings.model_validate(
            {
                "trainer_type": trainer_type,
                "network_settings": small,
                **(gail if learns_by == "gail" else {learns_by: demo}),
            }
        ),
        Compute(CPU, 1),
    )
    caplog.set_level(logging.INFO, "trainer_service")
    behavior.prepare()
    assert "are read as (height, width, channels)" in caplog.text
