"""Variants of the learning tests' world, and its observations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.scene import entity_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec, ObservationType

NAME = "Line"
BEHAVIOR = f"{NAME}?team=0"
ENTITIES, ENTITY_SIZE = 10, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The variant of a learning test."""

    continuous: int = 0
    discrete: int = 0
    """Positions that are moved by numbers, and by choices of two."""

    step_size: float = 0.2
    """How far a position moves at most in one step."""

    vectors: int = 1
    pictures: int = 0
    entity_lists: int = 0
    """How many sensors of each kind there are, in this order."""

    picture_shape: tuple[int, int, int] = (3, 20, 20)
    goal_sensor: int | None = None
    """The sensor that is declared as a goal signal."""

    fades: bool = False
    """The goal is seen at the start of an episode only."""

    agents: int = 1
    """More than one are a group."""

    behaviors: tuple[str, ...] = (BEHAVIOR,)
    """Behavior ids. Where there are several they play each other, each with one agent."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> World:
        fields = json.loads(text)
        tuples = {name: tuple(fields[name]) for name in ("picture_shape", "behaviors")}
        return cls(**{**fields, **tuples})

    @property
    def names(self) -> list[str]:
        """The behaviors that are configured: ids without teams, each once."""
        return list(dict.fromkeys(behavior.partition("?")[0] for behavior in self.behaviors))


def behavior_spec(world: World) -> BehaviorSpec:
    """An agent's observations and actions."""
    return BehaviorSpec(tuple(_sensors(world)), ActionSpec(world.continuous, (2,) * world.discrete))


def observe(spec: BehaviorSpec, shown: Sequence[int]) -> list[NDArray[np.float32]]:
    """Observations of agents, each filled with the agent's number. Shapes [agents, *sensor shape]."""
    numbers = np.array(shown, np.float32)
    return [
        np.broadcast_to(numbers.reshape(-1, *[1] * len(sensor.shape)), (len(shown), *sensor.shape))
        for sensor in spec.observation_specs
    ]


def _sensors(world: World) -> list[ObservationSpec]:
    """Vectors and pictures say nothing about their dimensions, as in ML-Agents' tests."""
    sensors = [ObservationSpec(f"vector_{number}", (1,)) for number in range(world.vectors)]
    sensors += [ObservationSpec(f"picture_{number}", world.picture_shape) for number in range(world.pictures)]
    sensors += [
        entity_sensor(f"entities_{number}", ENTITIES, ENTITY_SIZE) for number in range(world.entity_lists)
    ]
    if world.goal_sensor is not None:
        plain = sensors[world.goal_sensor]
        sensors[world.goal_sensor] = ObservationSpec(
            plain.name, plain.shape, plain.dimension_property, ObservationType.GOAL_SIGNAL
        )
    return sensors
