from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gym_lab import Mission
from gymnasium import spaces

from unity_bridge.names import LONGEST_NAME
from unity_bridge.simulators.foreign.actions import actuator
from unity_bridge.simulators.foreign.spaces import Sensor
from unity_bridge.simulators.foreign.spaces import sensors as sensors_of
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.specs import ActionSpec

Space = spaces.Space[Any]


def sensors(space: Space) -> list[Sensor]:
    return sensors_of(space, ForeignCode("gym:Env"))


def read(space: Space, observation: Any) -> dict[str, list[float]]:
    vectors = {sensor.spec.name: sensor.read_all([observation])[0] for sensor in sensors(space)}
    assert {name: vector.shape for name, vector in vectors.items()} == {
        sensor.spec.name: sensor.spec.shape for sensor in sensors(space)
    }
    return {name: vector.tolist() for name, vector in vectors.items()}


def build(space: Space, numbers: list[float] = (), choices: list[int] = ()) -> Any:
    (action,) = actuator(space).build(np.array([numbers], np.float64), np.array([choices], np.int64))
    assert space.contains(action), f"{action!r} is not in {space}"
    return action


@pytest.mark.parametrize(
    ("space", "observation", "seen"),
    [
        (spaces.Box(-1, 1, (2,)), np.array([0.5, -0.5]), [0.5, -0.5]),
        (spaces.Box(-1, 1, ()), np.array(0.5), [0.5]),
        (spaces.Box(-1, 1, (2, 2)), np.array([[1, 2], [3, 4]]), [1, 2, 3, 4]),
        (spaces.Box(0, 255, (3,), np.uint8), np.array([0, 7, 255], np.uint8), [0, 7, 255]),
        (spaces.Discrete(3), np.int64(1), [0, 1, 0]),
        (spaces.Discrete(3, start=-1), np.int64(-1), [1, 0, 0]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
        (spaces.MultiDiscrete([2, 3], start=[5, 10]), np.array([5, 12]), [1, 0, 0, 0, 1]),
        (spaces.MultiDiscrete([[2, 2]]), np.array([[1, 0]]), [0, 1, 1, 0]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (spaces.MultiBinary((2, 1)), np.array([[1], [0]], np.int8), [1, 0]),
        (spaces.Box(0, 1, (2, 1, 2), np.int8), np.array([[[1, 0]], [[0, 1]]], np.int8), [1, 0, 0, 1]),
        (spaces.Box(0, 255, (1, 2), np.uint8), np.array([[7, 9]], np.uint8), [7, 9]),
    ],
    ids=str,
)
def test_a_flat_space_is_one_vector(space: Space, observation: Any, seen: list[float]) -> None:
    assert read(space, observation) == {"observation": seen}


def test_dict_sensors_sort_by_key_and_tuple_sensors_by_index() -> None:
    space = spaces.Dict(
        {
            "wheel": spaces.Discrete(2),
            "arm": spaces.Tuple([spaces.Box(-1, 1, (1,)), spaces.Dict({"x": spaces.MultiBinary(2)})]),
        }
    )
    observation = {"arm": (np.array([0.5]), {"x": np.array([0, 1])}), "wheel": 1}
    assert read(space, observation) == {"arm.0": [0.5], "arm.1.x": [0, 1], "wheel": [0, 1]}
    assert [sensor.spec.name for sensor in sensors(space)] == ["arm.0", "arm.1.x", "wheel"]


@pytest.mark.parametrize(
    ("space", "complaint"),
    [
        (spaces.Text(5), "observation 'eye' is a Text space"),
        (spaces.Sequence(spaces.Discrete(2)), "observation 'eye' is a Sequence space"),
        (spaces.Graph(spaces.Discrete(2), None), "observation 'eye' is a Graph space"),
        (spaces.Box(0, 1, (0,)), "observation 'eye' is empty"),
    ],
    ids=str,
)
def test_unsupported_spaces_are_refused_by_name(space: Space, complaint: str) -> None:
    with pytest.raises(SceneError, match=complaint):
        sensors(spaces.Dict({"eye": space}))


@pytest.mark.parametrize("text", [spaces.Text(5), Mission()], ids=["of Gymnasium", "of a library"])
def test_texts_beside_something_else_are_left_out_with_a_warning(text: Space, caplog) -> None:
    space = spaces.Dict(
        {"see": spaces.Discrete(2), "ears": spaces.Tuple([text, spaces.Dict({"left": text})])}
    )
    assert read(space, {"see": 1, "ears": ("hey", {"left": "ho"})}) == {"see": [0, 1]}
    assert (
        caplog.records[0]
        .getMessage()
        .startswith("gym:Env: observation 'ears.0', observation 'ears.1.left': a text, which no")
    )


PIXELS = np.random.default_rng(3).integers(0, 256, (24, 31, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "observation", "seen"),
    [
        (spaces.Box(0, 255, (24, 31, 3), np.uint8), PIXELS, PIXELS.transpose(2, 0, 1)),
        (spaces.Box(0, 255, (3, 24, 31), np.uint8), PIXELS.transpose(2, 0, 1), PIXELS.transpose(2, 0, 1)),
        (spaces.Box(0, 255, (24, 31), np.uint8), PIXELS[:, :, 0], PIXELS[None, :, :, 0]),
        (
            spaces.Box(0, 255, (2, 24, 31, 3), np.uint8),
            np.stack([PIXELS, PIXELS + 1]),
            np.concatenate([PIXELS, PIXELS + 1], axis=2).transpose(2, 0, 1),
        ),
        (
            spaces.Box(0, 255, (2, 24, 31, 1), np.uint8),
            np.stack([PIXELS[:, :, :1], PIXELS[:, :, 1:2]]),
            PIXELS[:, :, :2].transpose(2, 0, 1),
        ),
        (spaces.Box(0, 1, (24, 31, 3)), PIXELS / 255, (PIXELS / 255).transpose(2, 0, 1).astype(np.float32)),
    ],
    ids=lambda value: "array" if isinstance(value, np.ndarray) else str(value),
)
def test_pictures_have_channels_first_and_keep_bytes(space: Space, observation: Any, seen: Any) -> None:
    [sensor] = sensors(space)
    assert sensor.spec.is_picture
    assert sensor.spec.shape == seen.shape
    both = sensor.read_all([observation, np.zeros_like(observation)])
    assert both.dtype == seen.dtype
    np.testing.assert_array_equal(both[0], seen)
    assert not both[1].any()


def test_an_action_is_spread_over_the_bounds() -> None:
    space = spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 10.0]), dtype=np.float64)
    assert actuator(space).spec == ActionSpec(2)
    assert build(space, [-1, -1]).tolist() == [-2, 0]
    assert build(space, [0.5, 0]).tolist() == [1, 5]
    assert build(space, [3, 1]).tolist() == [2, 10]


def test_an_action_without_bounds_passes_through() -> None:
    free = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    assert build(free, [7.5]).tolist() == [7.5]
    huge = spaces.Box(np.finfo(np.float32).min, np.finfo(np.float32).max, (1,))
    assert build(huge, [0.5]).tolist() == [0.5]
    half = spaces.Box(0.0, np.inf, (1,), np.float64)
    assert build(half, [-1]).tolist() == [0]
    assert build(half, [2]).tolist() == [2]


def test_whole_numbers_are_rounded_and_shapes_kept() -> None:
    space = spaces.Box(0, 4, (2, 1), np.int64)
    action = build(space, [0.2, -0.9])
    assert action.tolist() == [[2], [0]]
    assert action.dtype == np.int64


@pytest.mark.parametrize(
    ("space", "branches", "choices", "action"),
    [
        (spaces.Discrete(3), (3,), [2], 2),
        (spaces.Discrete(3, start=5), (3,), [2], 7),
        (spaces.MultiDiscrete([2, 3]), (2, 3), [1, 2], [1, 2]),
        (spaces.MultiDiscrete([2, 3], start=[1, 1]), (2, 3), [1, 2], [2, 3]),
        (spaces.MultiDiscrete([[2], [3]]), (2, 3), [1, 2], [[1], [2]]),
        (spaces.MultiBinary(2), (2, 2), [0, 1], [0, 1]),
    ],
    ids=str,
)
def test_choices_are_branches(
    space: Space, branches: tuple[int, ...], choices: list[int], action: Any
) -> None:
    assert actuator(space).spec == ActionSpec(0, branches)
    assert np.asarray(build(space, choices=choices)).tolist() == action


def test_an_action_that_cannot_be_filled_is_refused_by_name() -> None:
    with pytest.raises(SceneError, match=r"action\.say is a Text space"):
        actuator(spaces.Dict({"say": spaces.Text(5)}))


def names_of(space: Space) -> list[str]:
    return [sensor.spec.name for sensor in sensors(space)]


def test_no_sensor_of_an_environment_is_the_state_by_chance() -> None:
    space = spaces.Dict({"global_state": spaces.Discrete(2), "observation.global_state": spaces.Discrete(3)})
    assert names_of(space) == ["observation.global_state", "observation.observation.global_state"]
    assert read(space, {"global_state": 1, "observation.global_state": 0})[names_of(space)[0]] == [0, 1]


def test_sensors_of_equal_paths_have_names_of_their_own() -> None:
    space = spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)}), "a.b": spaces.Discrete(3)})
    assert read(space, {"a": {"b": 1}, "a.b": 2}) == {"a.b": [0, 1], "observation.a.b": [0, 0, 1]}


def test_long_names_are_shortened_and_stay_different() -> None:
    space = spaces.Dict({"é" * 300 + end: spaces.Discrete(2) for end in "xy"})
    names = names_of(space)
    assert len(set(names)) == 2
    assert all(len(name.encode()) <= LONGEST_NAME for name in names)


@pytest.mark.parametrize(
    ("space", "observation", "told"),
    [
        (
            spaces.Box(-1, 1, (2,)),
            np.array([0.5, 1.5]),
            r"1.5 is outside its space Box.* bounds are -1 and 1",
        ),
        (spaces.Box(-1, np.inf, (2,)), np.array([-2.0, 9.0]), "-2 is outside its space Box"),
        (spaces.Box(0, 1, (20, 20, 3)), np.full((20, 20, 3), 255.0), "255 is outside its space Box"),
        (
            spaces.Box(-np.inf, np.inf, (1,), np.float64),
            np.array([1e300]),
            "beyond 3.4e.38, the largest float32, become 0",
        ),
        (spaces.Box(0, 2**40, (1,), np.int64), np.array([2**24 + 1]), "integers beyond 16777216 lose digits"),
    ],
    ids=str,
)
def test_values_that_change_or_break_their_bounds_are_told_once(
    space: Space, observation: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    [sensor] = sensors(space)
    for _ in range(3):
        seen = sensor.read_all([observation])
    assert np.isfinite(seen).all()
    [record] = caplog.records
    assert re.search(f"gym:Env: sensor 'observation': .*{told}", record.getMessage())


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32, np.uint8])
def test_whole_actions_reach_the_bounds_of_their_type_and_no_further(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    space = spaces.Box(limits.min, limits.max, (1,), dtype)
    assert build(space, [-1.0])[0] == limits.min
    assert float(build(space, [1.0])[0]) == pytest.approx(float(limits.max), rel=1e-12)


@pytest.mark.parametrize(
    ("low", "high", "reached"), [(5.0, np.inf, (5, 7)), (-np.inf, -3.0, (-5, -3)), (0.0, np.inf, (0, 1))]
)
def test_a_single_bound_leaves_a_range_to_choose_from(low: float, high: float, reached: Any) -> None:
    space = spaces.Box(low, high, (1,), np.float64)
    assert (build(space, [-1])[0], build(space, [1])[0]) == reached


@pytest.mark.parametrize(("number", "expected"), [(-1.0, False), (-0.2, False), (0.2, True), (1.0, True)])
def test_a_boolean_is_rounded(number: float, expected: bool) -> None:
    assert build(spaces.Box(0, 1, (1,), np.bool_), [number]).tolist() == [expected]
