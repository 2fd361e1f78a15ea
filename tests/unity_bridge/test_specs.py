"""The kind of observation, told from its shape and its dimensions' properties."""

from __future__ import annotations

import pytest

from unity_bridge.specs import DimensionProperty, ObservationSpec


def sensor(shape: tuple[int, ...], *properties: int) -> ObservationSpec:
    return ObservationSpec("seen", shape, tuple(DimensionProperty(each) for each in properties))


@pytest.mark.parametrize("properties", [(), (0, 0, 0), (1, 2, 2), (3, 2, 2), (0, 2, 2)])
def test_pictures_look_alike_everywhere_or_say_nothing(properties: tuple[int, ...]) -> None:
    assert sensor((3, 8, 9), *properties).is_picture


@pytest.mark.parametrize(
    ("shape", "properties"),
    [
        ((8,), ()),
        ((8, 9), (2, 2)),
        ((3, 8, 9), (1, 1, 1)),
        ((3, 8, 9), (1, 2, 1)),
        ((1, 3, 8, 9), (1, 1, 2, 2)),
    ],
)
def test_other_shapes_are_no_pictures(shape: tuple[int, ...], properties: tuple[int, ...]) -> None:
    assert not sensor(shape, *properties).is_picture


def test_entities_are_rows_that_may_be_absent() -> None:
    assert sensor((6, 4), 4, 1).is_entities
    assert sensor((6, 4), 5, 1).is_entities
    for other in (sensor((6, 4)), sensor((6, 4), 1, 1), sensor((6, 4), 1, 4), sensor((6,), 4)):
        assert not other.is_entities
