"""The state of an environment as a whole: one sensor beside those of every agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from unity_bridge.simulators.gym_envs import spaces as gym_spaces
from unity_bridge.simulators.gym_envs.spaces import Sensor
from unity_bridge.simulators.multi_agent_envs.copy import Copy
from unity_bridge.simulators.multi_agent_envs.roles import Agent, Role
from unity_bridge.simulators.scene import SceneError, vector_sensor
from unity_bridge.simulators.third_party import call_guarded
from unity_bridge.specs import GLOBAL_STATE


class State(Protocol):
    """A source of the state, read as a sensor."""

    sensor: Sensor
    """Reads what observe() returned."""

    def observe(self, copy: Copy) -> Any:
        """The state of a copy as it stands."""


class OwnState:
    """The state that the environment itself returns."""

    def __init__(self, space: Any) -> None:
        [self.sensor] = gym_spaces.sensors(space, (GLOBAL_STATE,))

    def observe(self, copy: Copy) -> Any:
        return copy.state()


class JoinedObservations:
    """All agents' observations side by side, in the order of the possible agents; zeros for absent ones."""

    def __init__(self, agents: Sequence[Agent], roles: Sequence[Role]) -> None:
        """Raises SceneError where agents see pictures, which cannot be joined."""
        sensors_of = {agent: role.sensors for role in roles for agent in role.agents}
        self._places: dict[Agent, list[tuple[slice, Sensor]]] = {}
        size = 0
        for agent in agents:
            places = self._places[agent] = []
            for sensor in sensors_of[agent]:
                if sensor.spec.is_picture:
                    raise SceneError(
                        f"no state to show: agent '{agent}' sees pictures, which cannot be joined"
                    )
                places.append((slice(size, size + sensor.spec.size), sensor))
                size += sensor.spec.size
        self._size = size
        self.sensor = Sensor(vector_sensor(GLOBAL_STATE, size), np.asarray)

    def observe(self, copy: Copy) -> NDArray[np.float64]:
        joined = np.zeros(self._size)
        for agent, observation in copy.observations.items():
            for place, sensor in self._places[agent]:
                joined[place] = sensor.read(observation)
        return joined


def state_of(env: Any, called: str, roles: Sequence[Role]) -> State:
    """The environment's own state if it has one, else what all agents see. Resets the environment.

    Raises:
        SceneError: the environment raised something, or its agents see pictures and it has no state.
    """
    call_guarded(called, "reset()", env.reset)
    space = getattr(env, "state_space", None)
    try:
        seen = np.asarray(env.state())
    except (NotImplementedError, AttributeError):
        return JoinedObservations(env.possible_agents, roles)
    except Exception as error:
        text = " ".join(str(error).split())
        raise SceneError(f"{called}: state() raised {type(error).__name__}: {text}") from error
    if not isinstance(space, spaces.Box) or space.shape != seen.shape:
        space = spaces.Box(-np.inf, np.inf, seen.shape, np.float64)
    return OwnState(space)
