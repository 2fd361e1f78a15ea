"""One copy of an environment of several agents, as a scene plays it, and what each agent gets from a step."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from unity_bridge.simulators.multi_agent_envs.roles import Agent


class AgentStep(NamedTuple):
    """The outcome of a step or reset for one agent."""

    agent: Agent
    observation: Any
    reward: float = 0.0
    mask: Any = None
    """What is allowed, where the observation itself does not say."""
    terminated: bool = False
    truncated: bool = False
    group_reward: float = 0.0
    """What all agents of the copy earned together; the same for all of them."""


class Copy(Protocol):
    """One copy of an environment, played episode by episode; its agents may leave early and come late.

    An episode ends when no agent is left; then the next one must be begun.
    """

    env: Any
    """The environment as PettingZoo describes one: ``possible_agents``, their spaces, ``metadata``, ``render``."""

    waiting: list[Agent]
    """The agents that are to act, in the order of the environment."""

    @property
    def observations(self) -> dict[Agent, Any]:
        """The last observation of all agents that are there, and of those that left in the last step."""

    def reset(self, seed: int | None = None) -> list[AgentStep]:
        """Begins an episode. Returns the steps of the agents that wait for an action.

        Raises:
            SceneError: the environment raised something, or has no agents.
        """

    def step(self, actions: dict[Agent, Any]) -> tuple[list[AgentStep], list[AgentStep]]:
        """Acts for all agents that waited. Returns the steps of those that ended, and of those that wait now.

        Raises:
            SceneError: the environment raised something, or does not say what became of an agent.
        """

    def state(self) -> Any:
        """The environment's own state."""
