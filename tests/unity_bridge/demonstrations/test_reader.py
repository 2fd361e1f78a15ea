"""Which action answers what, where episodes end, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unity_bridge.demonstrations import (
    DemonstrationError,
    DemonstrationFile,
    open_demonstrations,
)
from unity_bridge.specs import FloatOrder
from unity_bridge.wire.agent_info_action_pair_pb2 import AgentInfoActionPairProto
from unity_bridge.wire.brain_parameters_pb2 import BrainParametersProto
from unity_bridge.wire.observation_pb2 import PNG, ObservationProto
from unity_bridge.wire.space_type_pb2 import continuous


def episode_by_hand(hand: Any) -> list[bytes]:
    """Saw 1, did 0.5; saw 2, did −0.5; saw 3, and it was over. Then another begins, and is cut by the clock."""
    return [
        hand.row(1.0, [0.0], reward=99.0),  # before anything was done: nobody's reward
        hand.row(2.0, [0.5], reward=10.0),
        hand.row(3.0, [-0.5], reward=20.0, group_reward=5.0, done=True),
        hand.row(4.0, [0.0]),
        hand.row(5.0, [0.25], reward=1.0, done=True, max_step_reached=True),
    ]


def test_actions_answer_the_observation_a_row_before(hand: Any) -> None:
    first, second = DemonstrationFile(hand.file(episode_by_hand(hand))).segments()
    np.testing.assert_array_equal(first.observations[0], [[1.0], [2.0]])
    np.testing.assert_array_equal(first.continuous_actions, np.float32([[0.5], [-0.5]]))
    np.testing.assert_array_equal(first.rewards, [10.0, 20.0])
    np.testing.assert_array_equal(first.group_rewards, [0.0, 5.0])
    np.testing.assert_array_equal(first.final_observations[0], [[3.0]])
    assert (first.terminated, first.truncated, first.starts_episode) == (True, False, True)
    assert second.observations[0].tolist() == [[4.0]]
    assert second.continuous_actions.tolist() == [[0.25]]
    assert (second.terminated, second.truncated, second.starts_episode) == (False, True, True)


def test_without_header_copy_actions_lie_beside_their_observations(hand: Any) -> None:
    rows = [
        hand.row(1.0, [0.5]),
        hand.row(2.0, [-0.5], reward=10.0),
        hand.row(3.0, [0.125], reward=20.0, done=True),  # what is done at the end is done to nobody
        hand.row(4.0, [0.75]),
        hand.row(5.0, [0.0], reward=1.0),
    ]
    file = DemonstrationFile(hand.file(rows, copy=False))
    first, second = file.segments()
    assert not file.is_shifted
    assert first.continuous_actions.tolist() == [[0.5], [-0.5]]
    assert first.rewards.tolist() == [10.0, 20.0]
    assert second.continuous_actions.tolist() == [[0.75]]
    assert second.final_observations[0].tolist() == [[5.0]]
    assert not second.terminated
    assert not second.truncated


def test_unclosed_recording_is_read_to_its_end(hand: Any) -> None:
    file = DemonstrationFile(hand.file(episode_by_hand(hand), closed=False))
    assert file.is_shifted
    assert file.num_rows == 5
    assert [segment.rewards.tolist() for segment in file.segments()] == [[10.0, 20.0], [1.0]]


def test_another_agent_is_another_episode_even_without_an_end(hand: Any) -> None:
    rows = [hand.row(float(row), [row / 8], id=row // 3) for row in range(6)]
    segments = list(DemonstrationFile(hand.file(rows, closed=False)).segments())
    assert [segment.observations[0].ravel().tolist() for segment in segments] == [[0.0, 1.0], [3.0, 4.0]]
    assert [segment.continuous_actions.ravel().tolist() for segment in segments] == [
        [0.125, 0.25],
        [0.5, 0.625],
    ]
    assert all(segment.starts_episode and not segment.terminated for segment in segments)


@pytest.mark.parametrize("longest", [1, 3, 4, 8])
def test_long_episodes_are_cut_without_losing_steps(hand: Any, longest: int) -> None:
    ends = {4, 5, 12}
    rows = [hand.row(float(row), [row / 16], reward=float(row), done=row in ends) for row in range(15)]
    segments = list(DemonstrationFile(hand.file(rows)).segments(longest))
    steps = [(0, 4), (6, 12), (13, 14)]  # first and last row of each episode
    rewards = [row for first, last in steps for row in range(first + 1, last + 1)]
    assert np.concatenate([segment.rewards for segment in segments]).tolist() == rewards
    assert np.concatenate([segment.continuous_actions for segment in segments]).ravel().tolist() == [
        row / 16 for row in rewards
    ]
    assert np.concatenate([segment.observations[0] for segment in segments]).ravel().tolist() == [
        row - 1 for row in rewards
    ]
    assert [segment.final_observations[0].item() for segment in segments] == [
        segment.rewards[-1] for segment in segments
    ]
    lengths = [longest] * (4 // longest) + [4 % longest] * (4 % longest > 0)
    lengths += [longest] * (6 // longest) + [6 % longest] * (6 % longest > 0) + [1]
    assert [len(segment) for segment in segments] == lengths
    assert sum(segment.starts_episode for segment in segments) == 3
    assert [segment.rewards[-1] for segment in segments if segment.terminated] == [4.0, 12.0]


def test_large_pictures_come_in_small_segments(hand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unity_bridge.demonstrations.reader._LARGEST_BLOCK", 2)  # numbers, of one each
    rows = [hand.row(float(row), [0.0]) for row in range(6)]
    segments = list(DemonstrationFile(hand.file(rows)).segments())
    assert [len(segment) for segment in segments] == [2, 2, 1]


def test_old_recordings_are_read_from_the_deprecated_list(hand: Any) -> None:
    brain = BrainParametersProto(
        brain_name="Ball", vector_action_size_deprecated=[2], vector_action_space_type_deprecated=continuous
    )
    rows = [hand.row(1.0, deprecated=[0.0, 0.0]), hand.row(2.0, deprecated=[0.5, -1.0])]
    file = DemonstrationFile(hand.file(rows, brain=brain))
    (segment,) = file.segments()
    assert file.behavior_name == "Ball"
    assert segment.continuous_actions.tolist() == [[0.5, -1.0]]
    assert segment.discrete_actions.shape == (1, 0)


def test_old_choices_are_floats(hand: Any) -> None:
    brain = BrainParametersProto(brain_name="Ball", vector_action_size_deprecated=[3, 2])
    rows = [hand.row(1.0, deprecated=[0.0, 0.0]), hand.row(2.0, deprecated=[2.0, 1.0])]
    (segment,) = DemonstrationFile(hand.file(rows, brain=brain)).segments()
    assert segment.discrete_actions.tolist() == [[2, 1]]
    assert segment.discrete_actions.dtype == np.int64


def picture_row(
    floats: list[float], properties: list[int], done: bool = False, shape: tuple[int, ...] = (2, 1, 2)
) -> bytes:
    """A picture, by default of two channels, one row and two columns; as PNG without floats."""
    pair = AgentInfoActionPairProto()
    pair.agent_info.done = done
    seen = ObservationProto(name="camera", shape=shape, dimension_properties=properties)
    if floats:
        seen.float_data.data.extend(floats)
    else:
        seen.compression_type, seen.compressed_data = PNG, b"a file"
    pair.agent_info.observations.append(seen)
    pair.action_info.continuous_actions.append(0.0)
    return pair.SerializeToString()


@pytest.mark.parametrize(
    ("properties", "float_order", "expected"),
    [
        ([1, 2, 2], "hwc", [[[1.0, 3.0]], [[2.0, 4.0]]]),  # packages 3.0.0 and 4.0.0
        ([1, 2, 2], "chw", [[[1.0, 2.0]], [[3.0, 4.0]]]),  # later ones
        ([], "hwc", [[[1.0, 2.0]], [[3.0, 4.0]]]),  # ours and Python's: as declared
        ([], "chw", [[[1.0, 2.0]], [[3.0, 4.0]]]),
    ],
)
def test_plain_pictures_come_out_with_their_channels_first(
    hand: Any, properties: list[int], float_order: FloatOrder, expected: list[Any]
) -> None:
    rows = [picture_row([1.0, 2.0, 3.0, 4.0], properties, done) for done in (False, True)]
    file = DemonstrationFile(hand.file(rows), float_order)
    (segment,) = file.segments()
    assert segment.observations[0][0].tolist() == expected
    assert segment.final_observations[0][0].tolist() == expected
    assert file.ambiguous_pictures == (("camera",) if properties else ())


def test_pictures_whose_order_is_certain_are_not_ambiguous(hand: Any) -> None:
    grey, files = picture_row([1.0, 2.0], [1, 2, 2], shape=(1, 1, 2)), picture_row([], [1, 2, 2])
    last = picture_row([1.0, 2.0, 3.0, 4.0], [2, 2, 1], shape=(1, 2, 2))
    for row in (grey, files, last):
        assert DemonstrationFile(hand.file([row, row])).ambiguous_pictures == ()


def damaged(hand: Any, change: Any, **how: Any) -> Path:
    path: Path = hand.file(episode_by_hand(hand), **how)
    path.write_bytes(change(path.read_bytes()))
    return path


def test_file_that_ends_too_early_is_refused(hand: Any) -> None:
    whole = hand.file(episode_by_hand(hand), copy=False).read_bytes()
    for size in range(0, len(whole), 3):
        with pytest.raises(DemonstrationError, match=r"expert\.demo': .*(expected|ends)"):
            list(DemonstrationFile(damaged(hand, lambda data, size=size: data[:size], copy=False)).segments())
    assert len(list(DemonstrationFile(damaged(hand, bytes, copy=False)).segments())) == 2


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "got a file of 0 bytes"),
        (b"hello", "got a file of 5 bytes"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "got a file that begins otherwise"),
        (b"a text that is longer than a head, and then some", "got a file that begins otherwise"),
        (b"\x05" + b"\xff" * 60, "got a file that begins otherwise"),
        (
            b"\x02\x08\x07".ljust(33, b"\0") + b"\x01\x00",
            "expected a recording of version 0 or 1, got version 7",
        ),
        (b"\x02\x08\x01".ljust(33, b"\0"), "the file ends before it"),
        (b"\x02\x08\x01".ljust(33, b"\0") + b"\x02\xff\xff", "got 2 other bytes"),
        (b"\x02\x08\x01".ljust(33, b"\0") + b"\x00", "expected the name of a behavior, got none"),
        (b"\x02\x08\x01".ljust(33, b"\0") + b"\xff" * 9, "expected the length of the behavior's declaration"),
        (bytes(200), "expected the name of a behavior, got none"),
        (b"\x0b\x18" + b"\xff" * 9 + b"\x01" + bytes(90), "expected counts in its head, got -1 steps"),
    ],
)
def test_other_files_are_no_recordings(tmp_path: Path, data: bytes, complaint: str) -> None:
    path = tmp_path / "other.demo"
    path.write_bytes(data)
    with pytest.raises(DemonstrationError, match=r"other\.demo") as refused:
        DemonstrationFile(path)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (lambda hand: 9 * b"\xff", "expected an observation and an action, got 9 other bytes"),
        (lambda hand: hand.row(float("nan"), [0.0]), "expected a finite number, got nan"),
        (
            lambda hand: hand.row(1.0, [float("inf")]),
            "continuous action 0: expected a finite number, got inf",
        ),
        (lambda hand: hand.row(1.0, [0.0], reward=float("nan")), "reward: expected a finite number"),
        (lambda hand: hand.row(1.0, [0.0, 0.0]), "expected 1 continuous actions, got 2"),
        (lambda hand: hand.row(1.0, [], [1]), "expected 1 continuous actions, got 0"),
        (lambda hand: hand.row(1.0), "expected an action beside every step"),
        (lambda hand: b"", "expected an observation in row 1, got 0 bytes"),
        (lambda hand: b"\x0a\x02\x08\x08\x12\x03\xff\xff\xff", "expected 1 sensors, got 0"),
    ],
)
def test_unfitting_row_is_refused_with_its_place(hand: Any, row: Any, complaint: str) -> None:
    rows = episode_by_hand(hand)
    rows[1] = row(hand)
    with pytest.raises(DemonstrationError, match=r"expert\.demo'") as refused:
        list(DemonstrationFile(hand.file(rows)).segments(3))
    assert complaint in str(refused.value)


@pytest.mark.parametrize("discrete", [[3], [-1]])
def test_a_choice_that_is_none_is_refused(hand: Any, discrete: list[int]) -> None:
    rows = [hand.row(1.0, (), [0]), hand.row(2.0, (), [2]), hand.row(3.0, (), discrete)]
    with pytest.raises(DemonstrationError, match="branch 0: expected a choice of 0 to 2, got"):
        list(DemonstrationFile(hand.file(rows, brain=hand.brain(0, (3,)))).segments())


def test_a_folder_is_read_in_the_order_of_names(hand: Any) -> None:
    for name in ("b.demo", "a.demo", "notes.txt", "c.demo.meta"):
        hand.file(episode_by_hand(hand), name=name)
    (hand.folder / "folder.demo").mkdir()
    assert [file.path.name for file in open_demonstrations(hand.folder)] == ["a.demo", "b.demo"]


def test_names_without_the_suffix_are_refused(hand: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    hand.file(episode_by_hand(hand), name="expert.txt")
    for name, complaint in {
        "empty": "expected a folder with recordings",
        "nothing.demo": "does not exist",
        "expert.txt": "whose name ends in .demo",
    }.items():
        with pytest.raises(DemonstrationError, match=complaint):
            open_demonstrations(tmp_path / name)
