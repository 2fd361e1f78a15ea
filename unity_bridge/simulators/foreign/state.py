"""The state of an environment as a whole: one sensor beside those of every agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from unity_bridge.simulators.foreign.environment import Agent, Environment
from unity_bridge.simulators.foreign.roles import Role
from unity_bridge.simulators.foreign.spaces import Sensor, sensors
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.specs import GLOBAL_STATE


@dataclass(frozen=True, slots=True)
class State:
    """A source of the state."""

    sensor: Sensor
    """Reads what observe() returned."""

    observe: Callable[[Environment], Any]
    """Returns the state of an environment as it stands."""


def _joined_observations(agents: Iterable[Agent], roles: Sequence[Role], code: ForeignCode) -> State:
    """All agents' observations side by side, in the order of the possible agents; zeros for absent ones.

    Raises:
        SceneError: agents see pictures, which cannot be joined.
    """
    sensors_of = {agent: role.interface.sensors for role in roles for agent in role.agents}
    places: dict[Agent, list[tuple[slice, Sensor]]] = {agent: [] for agent in agents}
    size = 0
    for agent, own in places.items():
        for sensor in sensors_of[agent]:
            if sensor.spec.is_picture:
                raise SceneError(f"no state to show: agent '{agent}' sees pictures, which cannot be joined")
            own.append((slice(size, size + sensor.spec.size), sensor))
            size += sensor.spec.size

    def observe(env: Environment) -> NDArray[np.float64]:
        joined = np.zeros(size)
        for agent, observation in env.seen().items():
            for place, sensor in places.get(agent, ()):  # impossible agents are refused with their rows
                joined[place] = sensor.read_all([observation])[0]
        return joined

    return State(_state_sensor(spaces.Box(-np.inf, np.inf, (size,), np.float64), code), observe)


def state_of(env: Environment, roles: Sequence[Role], code: ForeignCode) -> State:
    """The environment's own state if it has one, else what all agents see. Resets the environment.

    Raises:
        SceneError: the environment raised something, its state is no array of numbers, or its agents see pictures and
            it has no state.
    """
    env.reset()
    try:
        seen = np.asarray(env.state())
    except NotImplementedError:
        return _joined_observations(env.description.spaces, roles, code)
    if seen.dtype.kind not in "biuf":
        raise SceneError(f"state() returned {env.state()!r:.60}; expected an array of numbers")
    space = env.description.state_space
    if not isinstance(space, spaces.Box) or space.shape != seen.shape:
        if space is not None:
            code.warn(
                "state",
                f"state() returned shape {seen.shape} where state_space is {space!s:.80}; it is sent as it is",
            )
        space = spaces.Box(-np.inf, np.inf, seen.shape, np.float64)
    return State(_state_sensor(space, code), lambda env: env.state())


def _state_sensor(space: Any, code: ForeignCode) -> Sensor:
    [sensor] = sensors(space, code, (GLOBAL_STATE,), reserved=frozenset())
    return sensor
