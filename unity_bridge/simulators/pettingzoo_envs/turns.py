"""One copy of a PettingZoo environment whose agents act in turn (AEC)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from unity_bridge.simulators.multi_agent_envs.copy import AgentStep
from unity_bridge.simulators.multi_agent_envs.roles import Agent
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import call_guarded

_T = TypeVar("_T")


class TurnCopy:
    """A copy of an environment that waits for one agent at a time; the others say nothing then.

    What an agent earns while it is not asked is added up, and told with its next row. Ends reach every agent that was
    asked since the episode began; for one that never was, there was no episode.
    """

    def __init__(self, env: Any, called: str) -> None:
        """
        Args:
            env: an ``AECEnv``.
            called: as the user wrote it, for messages.
        """
        self.env = env
        self._called = called
        self.waiting: list[Agent] = []
        """The agent whose turn it is."""
        self._asked: set[Agent] = set()
        self._seen: dict[Agent, Any] = {}
        """The last observations that are known."""
        self._left: set[Agent] = set()
        """The agents that left in the last step."""

    @property
    def observations(self) -> dict[Agent, Any]:
        """What all agents see that are there, whoever's turn it is, and what those saw that left in the last step."""
        there = self._guard(
            "observe()", lambda: {agent: self.env.observe(agent) for agent in self.env.agents}
        )
        return {agent: self._seen[agent] for agent in self._left} | there

    def reset(self, seed: int | None = None) -> list[AgentStep]:
        """Begins an episode. Returns the step of the agent whose turn it is.

        Raises:
            SceneError: the environment raised something, or has no agents.
        """
        self._guard("reset()", lambda: self.env.reset(seed=seed))
        self._asked.clear()
        _, asked = self._guard("last()", self._until_somebody_decides)
        if not asked:
            raise SceneError(f"{self._called}: reset() left nobody who could act")
        return asked

    def step(self, actions: dict[Agent, Any]) -> tuple[list[AgentStep], list[AgentStep]]:
        """Acts for the agent whose turn it is. Returns the steps of those that ended, and of the next one.

        An agent that is both terminated and truncated is terminated.

        Raises:
            SceneError: the environment raised something.
        """
        [agent] = self.waiting
        self._guard("step()", lambda: self.env.step(actions[agent]))
        return self._guard("last()", self._until_somebody_decides)

    def state(self) -> Any:
        """The environment's own state."""
        return self._guard("state()", self.env.state)

    def _until_somebody_decides(self) -> tuple[list[AgentStep], list[AgentStep]]:
        """Takes those out that have ended, one after the other, up to the next agent that is to act."""
        ended: list[AgentStep] = []
        self.waiting = []
        self._left.clear()
        while self.env.agents:
            agent = self.env.agent_selection
            observation, reward, terminated, truncated, info = self.env.last()
            self._seen[agent] = observation
            step = AgentStep(agent, observation, float(reward), (info or {}).get("action_mask"))
            if not (terminated or truncated):
                self._asked.add(agent)
                self.waiting = [agent]
                return ended, [step]
            if agent in self._asked:
                ended.append(step._replace(terminated=bool(terminated), truncated=not terminated))
            self._left.add(agent)
            self.env.step(None)
        return ended, []

    def _guard(self, what: str, call: Callable[[], _T]) -> _T:
        return call_guarded(self._called, what, call)
