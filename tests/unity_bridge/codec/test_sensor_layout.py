"""Pictures are channels, rows and columns to us, however the simulator's version sends them."""

from __future__ import annotations

import logging
from itertools import product

import numpy as np
import pytest

from unity_bridge.codec import sensor_layout
from unity_bridge.codec.sensor_layout import SensorLayout, detect_layout
from unity_bridge.specs import PICTURE, DimensionProperty, ObservationSpec, ObservationType, PictureLayout
from unity_bridge.throttled_logger import ThrottledLogger

NONE, MOVES = DimensionProperty.NONE, DimensionProperty.TRANSLATIONAL_EQUIVARIANCE
UNSPECIFIED = DimensionProperty.UNSPECIFIED
CHANNELS_LAST = (MOVES, MOVES, NONE)


@pytest.fixture(autouse=True)
def fresh_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    throttled = ThrottledLogger(logging.getLogger(sensor_layout.__name__))
    monkeypatch.setattr(sensor_layout, "_THROTTLED", throttled)


def detect(
    shape: tuple[int, ...],
    properties: tuple[DimensionProperty, ...],
    version: str,
    picture_layout: PictureLayout = "auto",
) -> tuple[tuple[int, ...], tuple[DimensionProperty, ...], SensorLayout]:
    declared = ObservationSpec("camera", shape, properties, ObservationType.GOAL_SIGNAL)
    spec, layout = detect_layout(declared, version, picture_layout)
    assert (spec.name, spec.observation_type) == ("camera", ObservationType.GOAL_SIGNAL)
    assert spec.float_order == ("hwc" if layout.channels_last else "chw")
    return spec.shape, spec.dimension_property, layout


@pytest.mark.parametrize("version", ["", "2.3.0-exp.3", "3.0.0", "3.0.1", "of mine"])
def test_channels_last_are_told_by_their_properties(version: str) -> None:
    expected = ((3, 8, 9), PICTURE, SensorLayout((8, 9, 3), channels_last=True))
    assert detect((8, 9, 3), CHANNELS_LAST, version) == expected


@pytest.mark.parametrize("version", ["", "1.0.8", "2.3.0", "3.0.1", "of mine"])
def test_channels_first_are_told_by_their_properties(version: str) -> None:
    assert detect((3, 8, 9), PICTURE, version) == ((3, 8, 9), PICTURE, SensorLayout((3, 8, 9)))


@pytest.mark.parametrize("properties", [(), (UNSPECIFIED,) * 3])
@pytest.mark.parametrize("version", ["1.0.8", "2.0.0", "2.3.0-exp.3", "2.10.11"])
def test_old_versions_that_say_nothing_send_channels_last(
    properties: tuple[DimensionProperty, ...], version: str
) -> None:
    expected = ((3, 8, 9), PICTURE, SensorLayout((8, 9, 3), channels_last=True))
    assert detect((8, 9, 3), properties, version) == expected


@pytest.mark.parametrize("properties", [(), (UNSPECIFIED,) * 3])
@pytest.mark.parametrize(
    "version", ["", "latest", "1", "1.0", "3.0.1", "3.1.0-exp.1", "10.0.0", "1" * 5000 + ".0.0"]
)
def test_others_that_say_nothing_send_channels_first(
    properties: tuple[DimensionProperty, ...], version: str
) -> None:
    assert detect((3, 8, 9), properties, version) == ((3, 8, 9), PICTURE, SensorLayout((3, 8, 9)))


@pytest.mark.parametrize("properties", [(), PICTURE])
@pytest.mark.parametrize("version", ["3.0.0-exp.1", "3.0.0", "3.0.0-pre.2", "4.0.0", "4.0.0-exp.1"])
def test_versions_that_scramble_pictures_are_corrected_and_logged_once(
    properties: tuple[DimensionProperty, ...], version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "unity_bridge")
    for _ in range(2):
        layout = SensorLayout((3, 8, 9), channels_last=True)
        assert detect((3, 8, 9), properties, version) == ((3, 8, 9), PICTURE, layout)
    (said,) = caplog.messages
    assert said.startswith(f"Unity package {version} declares")
    assert ("--picture-layout chw" in said) == version.startswith("4.0.0")


@pytest.mark.parametrize("version", ["", "3.0.0", "4.0.0", "4.0.1"])
@pytest.mark.parametrize("picture_layout", ["hwc", "chw"])
def test_the_order_that_a_user_states_wins_over_the_version(
    version: str, picture_layout: PictureLayout, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "unity_bridge")
    layout = SensorLayout((3, 8, 9), channels_last=picture_layout == "hwc")
    assert detect((3, 8, 9), PICTURE, version, picture_layout) == ((3, 8, 9), PICTURE, layout)
    assert not caplog.records


def test_a_single_channel_lies_alike_in_both_orders(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "unity_bridge")
    assert detect((1, 8, 9), PICTURE, "3.0.0") == ((1, 8, 9), PICTURE, SensorLayout((1, 8, 9)))
    assert not caplog.records


@pytest.mark.parametrize("version", ["1.0.8", "3.0.0", ""])
@pytest.mark.parametrize(
    ("shape", "properties"),
    [
        ((2, 3, 4), (NONE, NONE, NONE)),
        ((2, 3, 4), (NONE, MOVES, NONE)),
        ((8,), ()),
        ((8,), (NONE,)),
        ((4, 5), (DimensionProperty.VARIABLE_SIZE, NONE)),
        ((4, 5), ()),
    ],
)
def test_what_is_no_picture_stays_as_it_is(
    shape: tuple[int, ...], properties: tuple[DimensionProperty, ...], version: str
) -> None:
    assert detect(shape, properties, version) == (shape, properties, SensorLayout(shape))


def test_every_number_finds_its_channel_row_and_column() -> None:
    spec, layout = detect_layout(ObservationSpec("camera", (4, 5, 2), CHANNELS_LAST), "")
    sent = np.arange(3 * 40, dtype=np.float32).reshape(3, 40)
    arranged = layout.arrange(sent, spec)
    assert arranged.shape == (3, 2, 4, 5)
    for agent, channel, row, column in product(range(3), range(2), range(4), range(5)):
        assert arranged[agent, channel, row, column] == agent * 40 + (row * 5 + column) * 2 + channel
