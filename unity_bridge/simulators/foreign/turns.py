"""PettingZoo's environments in turns (AEC), which wait for one agent at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unity_bridge.simulators.foreign.environment import Agent, AgentStep, agent_step, copied
from unity_bridge.simulators.foreign.masks import mask_of_info
from unity_bridge.simulators.foreign.pettingzoo import PettingZooBase
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode


class TurnEnvironment(PettingZooBase):
    """An ``AECEnv`` behind the interface of ``Environment``; agents whose turn it is not have no row.

    An agent's rewards between its turns are added up, and sent with its next row. Ends reach every agent that was
    asked since the episode began; for one that never was, there was no episode.
    """

    def __init__(self, env: Any, code: ForeignCode) -> None:
        super().__init__(env, code)
        self._asked: set[Agent] = set()
        """The agents whose episode continues."""
        self._left: dict[Agent, Any] = {}
        """The last observations of the agents that left in the last step."""

    def seen(self) -> Mapping[Agent, Any]:
        return self._left | {agent: copied(self._env.observe(agent)) for agent in self._env.agents}

    def reset(self, seed: int | None = None) -> list[AgentStep]:
        self._code.call("reset()", self._env.reset, seed=seed)
        self._asked.clear()
        return self._code.call("last()", self._until_an_agent_decides)[1]

    def step(self, actions: Mapping[Agent, Any]) -> tuple[list[AgentStep], list[AgentStep]]:
        [action] = actions.values()
        self._code.call("step()", self._env.step, action)
        return self._code.call("last()", self._until_an_agent_decides)

    def _until_an_agent_decides(self) -> tuple[list[AgentStep], list[AgentStep]]:
        """Takes those out that have ended, one after the other, up to the next agent that is to act."""
        ended: list[AgentStep] = []
        self._left.clear()
        while self._env.agents:
            agent = self._env.agent_selection
            observation, reward, terminated, truncated, info = self._env.last()
            mask = mask_of_info(info, self._code)
            step = agent_step(agent, observation, mask, reward, terminated, truncated)
            if not (step.terminated or step.truncated):
                self._asked.add(agent)
                self._require_no_agent_lost()
                return ended, [step._replace(mask=copied(self._mask(step.mask, agent)))]
            if agent in self._asked:
                self._asked.remove(agent)
                ended.append(step._replace(mask=self._last_mask(step)))
            self._left[agent] = step.observation
            self._env.step(None)
            if agent in self._env.agents:
                raise SceneError(
                    f"agent '{agent}' has ended and is not removed by step(None); expected it to leave env.agents"
                )
        self._require_no_agent_lost()
        return ended, []

    def _require_no_agent_lost(self) -> None:
        for agent in sorted(map(str, self._asked.difference(self._env.agents))):
            raise SceneError(
                f"agent '{agent}' left env.agents without its last turn; expected it to stay there, terminated or "
                "truncated, until step(None) removes it"
            )
