"""One copy of a parallel PettingZoo environment: the agents that are there, and what each gets from a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from unity_bridge.simulators.multi_agent_envs.copy import AgentStep
from unity_bridge.simulators.multi_agent_envs.roles import Agent
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import call_guarded

_T = TypeVar("_T")


class ParallelCopy:
    """A copy of an environment whose agents all decide at every step in which they are there."""

    def __init__(self, env: Any, called: str) -> None:
        """
        Args:
            env: parallel.
            called: as the user wrote it, for messages.
        """
        self.env = env
        self._called = called
        self.observations: dict[Agent, Any] = {}
        """The last observation of all agents that are there, and of those that left in the last step."""
        self.waiting: list[Agent] = []
        """The agents that are to act, in the order of the environment."""

    def reset(self, seed: int | None = None) -> list[AgentStep]:
        """Begins an episode. Returns the steps of the agents that wait for an action.

        Raises:
            SceneError: the environment raised something, or has no agents.
        """
        returned = self._guard("reset()", lambda: self.env.reset(seed=seed))
        observations, infos = self._guard("reset()", lambda: _parts(returned, 2))
        self.waiting = list(self.env.agents)
        if not self.waiting:
            raise SceneError(f"{self._called}: reset() left nobody who could act")
        self.observations = {}
        self._require_seen(observations)
        return [AgentStep(agent, observations[agent], 0.0, _mask(infos, agent)) for agent in self.waiting]

    def step(self, actions: dict[Agent, Any]) -> tuple[list[AgentStep], list[AgentStep]]:
        """Acts for all agents that waited. Returns the steps of those that ended, and of those that wait now.

        An agent that is both terminated and truncated is terminated.

        Raises:
            SceneError: the environment raised something, or does not say what became of an agent.
        """
        returned = self._guard("step()", lambda: self.env.step(actions))
        observations, rewards, terminated, truncated, infos = self._guard(
            "step()", lambda: _parts(returned, 5)
        )
        before, known = self.waiting, self.observations
        gone = {agent: terminated.get(agent) for agent in before if _is_over(agent, terminated, truncated)}
        self.waiting = [
            agent
            for agent in self.env.agents
            if agent not in gone and not _is_over(agent, terminated, truncated)
        ]
        self._require_nobody_lost(before, gone)
        self.observations = {agent: observations.get(agent, known[agent]) for agent in gone}
        self._require_seen(observations)
        ended = [
            AgentStep(
                agent,
                self.observations[agent],
                float(rewards.get(agent, 0)),
                terminated=bool(task_ended),
                truncated=not task_ended,
            )
            for agent, task_ended in gone.items()
        ]
        return ended, [
            AgentStep(agent, observations[agent], float(rewards.get(agent, 0)), _mask(infos, agent))
            for agent in self.waiting
        ]

    def state(self) -> Any:
        """The environment's own state."""
        return self._guard("state()", self.env.state)

    def _require_seen(self, observations: Mapping[Agent, Any]) -> None:
        for agent in self.waiting:
            if agent not in observations:
                raise SceneError(f"{self._called}: no observation of agent '{agent}', which is there")
            self.observations[agent] = observations[agent]

    def _require_nobody_lost(self, before: list[Agent], gone: Mapping[Agent, Any]) -> None:
        if len(before) > len(gone):
            there = set(self.waiting)
            for agent in before:
                if agent not in gone and agent not in there:
                    raise SceneError(
                        f"{self._called}: agent '{agent}' left without being terminated or truncated"
                    )

    def _guard(self, what: str, call: Callable[[], _T]) -> _T:
        return call_guarded(self._called, what, call)


def _parts(returned: Any, expected: int) -> tuple[Any, ...]:
    """Returns what an environment returned, once its form is checked: users' own like to return what Gymnasium's do."""
    if not (
        isinstance(returned, tuple)
        and len(returned) == expected
        and all(isinstance(x, Mapping) for x in returned)
    ):
        raise TypeError(f"expected {expected} dictionaries by agent, got {returned!r:.80}")
    return returned


def _is_over(agent: Agent, terminated: Mapping[Agent, Any], truncated: Mapping[Agent, Any]) -> bool:
    return bool(terminated.get(agent) or truncated.get(agent))


def _mask(infos: Mapping[Agent, Any], agent: Agent) -> Any:
    info = infos.get(agent)
    return info.get("action_mask") if info else None
