"""Every kind of sensor side by side, in one behavior."""

from __future__ import annotations

import pytest
import torch

from trainer_service.config.network import NetworkSettings
from trainer_service.learning.networks.encoders.encoder import ObservationEncoder, Trunk
from trainer_service.learning.networks.encoders.goals import ConditionalBody
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec, ObservationType

SETTINGS = NetworkSettings(hidden_units=16)
VECTOR = ObservationSpec("vector", (3,))
PICTURE = ObservationSpec("picture", (2, 20, 21))
TABLE = ObservationSpec("table", (2, 4), (DimensionProperty.NONE, DimensionProperty.NONE))
CUBE = ObservationSpec("cube", (2, 2, 3), (DimensionProperty.NONE,) * 3)
FOUR = ObservationSpec("four", (1, 2, 2, 2))
LIST = (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)
ENTITIES = ObservationSpec("entities", (5, 3), LIST)
OTHERS = ObservationSpec("others", (2, 6), LIST)
GOAL = ObservationSpec("goal", (2,), (), ObservationType.GOAL_SIGNAL)
GOAL_PICTURE = ObservationSpec("goal picture", (1, 20, 20), (), ObservationType.GOAL_SIGNAL)
GOAL_LIST = ObservationSpec("goal list", (3, 4), LIST, ObservationType.GOAL_SIGNAL)

EVERYTHING = (ENTITIES, VECTOR, GOAL, PICTURE, TABLE, OTHERS, CUBE, GOAL_PICTURE, FOUR, GOAL_LIST)


def encoder(*sensors: ObservationSpec) -> ObservationEncoder:
    torch.manual_seed(1)
    return ObservationEncoder(sensors, SETTINGS)


def trunk(*sensors: ObservationSpec, conditioning: str = "hyper") -> Trunk:
    torch.manual_seed(1)
    settings = NetworkSettings(hidden_units=16, goal_conditioning_type=conditioning)
    return Trunk(BehaviorSpec(sensors, ActionSpec(1)), settings)


def seen(*sensors: ObservationSpec, rows: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.rand(rows, *sensor.shape, generator=generator) for sensor in sensors]


@pytest.mark.parametrize(
    ("sensors", "conditioning", "conditional"),
    [
        ((VECTOR, GOAL), "hyper", True),
        ((GOAL,), "hyper", True),
        ((VECTOR, GOAL), "none", False),
        ((VECTOR,), "hyper", False),
        ((VECTOR, GOAL_LIST), "hyper", False),
        ((GOAL, GOAL_LIST), "hyper", True),
    ],
)
def test_goals_condition_the_body_but_lists_do_not(sensors, conditioning: str, conditional: bool) -> None:
    made = trunk(*sensors, conditioning=conditioning)
    assert isinstance(made.body, ConditionalBody) == conditional
    assert made(seen(*sensors)).shape == (4, 16)


@pytest.mark.parametrize("sensor", range(len(EVERYTHING)))
def test_of_everything_together_each_sensor_counts(sensor: int) -> None:
    made = trunk(*EVERYTHING)
    observations = seen(*EVERYTHING)
    before = made(observations)
    observations[sensor] = 1.0 - observations[sensor]
    changed = (made(observations) - before).abs().amax(dim=1)
    assert changed.min() > 1e-5


def test_of_everything_together_each_weight_counts() -> None:
    made = trunk(*EVERYTHING)
    features = made(seen(*EVERYTHING))
    (features * torch.randn(features.shape, generator=torch.Generator().manual_seed(3))).sum().backward()
    for name, parameter in made.named_parameters():
        # To add one number to all of a query's scores changes no softmax.
        if name != "encoder.attention.key.bias":
            assert parameter.grad.abs().max() > 1e-6, name


def test_rows_do_not_mix() -> None:
    made = trunk(*EVERYTHING)
    observations = seen(*EVERYTHING, rows=6)
    together = made(observations)
    for row in range(6):
        alone = made([sensor[row : row + 1] for sensor in observations])
        torch.testing.assert_close(together[row : row + 1], alone)


def test_pictures_too_small_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="sensor 'tiny' shows pictures 19 wide and 30 high"):
        encoder(VECTOR, ObservationSpec("tiny", (3, 30, 19)))


def test_who_sees_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no sensors"):
        encoder()
