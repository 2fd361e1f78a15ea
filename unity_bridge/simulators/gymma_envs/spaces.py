"""Spaces of environments with several agents: one for each, as Gymnasium's, whoever's they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from unity_bridge.simulators.gym_envs.spaces import actuator
from unity_bridge.simulators.scene import SceneError

Space = spaces.Space[Any]

_ARGUMENTS = {
    "Box": ("low", "high", "shape", "dtype"),
    "Discrete": ("n",),
    "MultiDiscrete": ("nvec",),
    "MultiBinary": ("n",),
}
"""What makes a space of the same name in Gymnasium."""


def spaces_of_agents(observations: Any, actions: Any) -> tuple[list[Space], list[Space]]:
    """The observation space and the action space of each agent.

    Both are tuples or lists of spaces; or, where all agents are alike, observations are the rows of one Box and actions
    the numbers of one MultiDiscrete (as in Google Research Football).

    Raises:
        SceneError: they are those of a single agent, or differ in length.
    """
    does = _each(actions) or _stacked_actions(actions)
    sees = _each(observations) or _rows(observations, len(does))
    for what, found, whole in (("action", does, actions), ("observation", sees, observations)):
        if not found:
            raise SceneError(
                f"its {what} space is not one of several agents: expected a tuple or list, one space per agent, "
                f"got {whole!r:.80}; environments of one agent are --env=gym:ID"
            )
    if len(sees) != len(does):
        raise SceneError(f"{len(sees)} agents see and {len(does)} act: expected as many spaces of each")
    return [as_gymnasium(space) for space in sees], [as_gymnasium(space) for space in does]


def _each(whole: Any) -> list[Any]:
    members = whole.spaces if type(whole).__name__ == "Tuple" else whole
    return list(members) if isinstance(members, (list, tuple)) else []


def _stacked_actions(actions: Any) -> list[Space]:
    if type(actions).__name__ != "MultiDiscrete":
        return []
    return [spaces.Discrete(int(choices)) for choices in np.ravel(actions.nvec)]


def _rows(observations: Any, agents: int) -> list[Space]:
    shape: tuple[int, ...] = getattr(observations, "shape", None) or ()
    if type(observations).__name__ != "Box" or len(shape) < 2 or shape[0] != agents:
        return []
    return [
        spaces.Box(low, high, shape[1:], observations.dtype.type)
        for low, high in zip(observations.low, observations.high, strict=True)
    ]


def as_gymnasium(space: Any) -> Space:
    """The space itself, or Gymnasium's for one of the older gym.

    Raises:
        SceneError: Gymnasium has none like it.
    """
    if isinstance(space, spaces.Space):
        return space
    kind = type(space).__name__
    if kind == "Tuple":
        return spaces.Tuple([as_gymnasium(member) for member in space.spaces])
    if kind == "Dict":
        return spaces.Dict({key: as_gymnasium(member) for key, member in space.spaces.items()})
    if kind not in _ARGUMENTS:
        raise SceneError(f"expected a space of gymnasium or gym for each agent, got {space!r:.80}")
    given = {name: getattr(space, name) for name in _ARGUMENTS[kind]}
    if kind == "Box":
        given["dtype"] = given["dtype"].type
    if kind == "Discrete":
        given["start"] = int(getattr(space, "start", 0))
    made: Space = getattr(spaces, kind)(**given)
    return made


def idle_action(space: Space) -> Any:
    """An action for an agent that is there no more: the first choice, the middle of what it could do by numbers."""
    built = actuator(space)
    numbers, choices = np.zeros(built.spec.continuous_size), np.zeros(built.spec.discrete_size, np.int64)
    return built.build(numbers, choices)


def is_for_agents(values: Any, agents: int) -> bool:
    """Whether something is a list with an entry for each agent."""
    return (
        isinstance(values, (Sequence, np.ndarray)) and not isinstance(values, str) and len(values) == agents
    )
