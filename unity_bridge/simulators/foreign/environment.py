"""The interface of one environment, whatever library it comes from: agents that see, act, earn and leave."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

Agent = Hashable
"""The name of an agent within its environment, most often a text such as ``adversary_0``."""


class AgentStep(NamedTuple):
    """The outcome of a step or reset for one agent. Made by ``agent_step``, so that nothing of it can change."""

    agent: Agent
    observation: Any
    mask: Any = None
    """The action mask that came beside the observation; None where there was none."""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    """Never true where ``terminated`` is."""
    group_reward: float = 0.0
    """The reward of all agents together; equal for all of them."""


def agent_step(
    agent: Agent,
    observation: Any,
    mask: Any = None,
    reward: Any = 0.0,
    terminated: Any = False,
    truncated: Any = False,
    group_reward: Any = 0.0,
) -> AgentStep:
    """Copies an environment's return value for an agent. To be called before any other call into the environment.

    An environment owns the arrays that it returned, and may write its next observation into them. An agent that is
    both terminated and truncated is terminated. Raises TypeError or ValueError for a reward that is no number.
    """
    over = bool(terminated)
    try:
        earned = as_number(reward)
    except (TypeError, ValueError):
        raise TypeError(f"expected a number as the reward of agent '{agent}', got {reward!r:.60}") from None
    return AgentStep(
        agent,
        copied(observation),
        None if mask is None else copied(mask),
        earned,
        over,
        bool(truncated) and not over,
        as_number(group_reward),
    )


def copied(value: Any) -> Any:
    """A value that shares no memory with another, nested dictionaries and sequences included.

    Sequences, and arrays of objects, become tuples. Arrays of other libraries, such as tensors or stacked frames,
    become NumPy's.
    """
    if isinstance(value, np.ndarray):
        return value.copy() if value.dtype != object else copied(value.tolist())
    if value is None or isinstance(value, (int, float, str, bytes, np.generic)):
        return value
    if isinstance(value, Mapping):
        return {key: copied(member) for key, member in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple([copied(member) for member in value])
    return np.array(value)


def as_number(value: Any) -> float:
    """Converts a number or an array of one number. Raises TypeError or ValueError for any other value."""
    return float(value.item() if isinstance(value, np.ndarray) else value)


@dataclass(frozen=True, slots=True)
class Description:
    """The agents of an environment, and how they see and act."""

    spaces: Mapping[Agent, tuple[Any, Any]]
    """The observation and the action space of each possible agent, as Gymnasium has them."""

    metadata: Mapping[str, Any]
    """``render_fps`` and the like, as Gymnasium and PettingZoo have it."""

    has_groups: bool = True
    """Whether the agents of an environment are a group."""

    state_space: Any = None
    """The declared space of the state; None where none is declared."""


class Environment(Protocol):
    """One environment, played episode by episode; its agents may leave early and come late.

    An episode ends when no agent is left; then the next one must be begun.
    """

    description: Description

    def reset(self, seed: int | None = None) -> list[AgentStep]:
        """Begins an episode. Returns the steps of the agents that are to act, in the environment's order.

        Raises:
            SceneError: the environment raised something, or has no agents.
        """

    def step(self, actions: Mapping[Agent, Any]) -> tuple[list[AgentStep], list[AgentStep]]:
        """Acts for all waiting agents. Returns the steps of agents that ended, and of agents to act now.

        Errors of the environment pass through; the calling scene adds the environment's name.

        Raises:
            SceneError: the environment does not report the outcome of an agent.
        """

    def seen(self) -> Mapping[Agent, Any]:
        """Returns a copy of the last observation of each present agent, and of each that left in the last step."""

    def state(self) -> Any:
        """The state of the whole environment, copied. Raises NotImplementedError where it has none."""

    def render(self) -> Any:
        """A picture of the environment."""

    def close(self) -> None:
        """Closes the environment."""
