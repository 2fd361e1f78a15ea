"""A PettingZoo environment of two hunters, their leader and a prey, in which everyone earns the same at every step."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

REWARDS = {"leader_0": 1.0, "hunter_0": 2.0, "hunter_1": 4.0, "prey_0": -5.0}
STEPS = 3


class Hunt(ParallelEnv):  # type: ignore[type-arg]
    metadata = {"name": "hunt_v1"}  # noqa: RUF012 (as PettingZoo declares it)

    def __init__(self, render_mode: str | None = None) -> None:
        self.possible_agents = list(REWARDS)
        self.agents: list[str] = []
        self._time = 0

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (2 if agent.startswith("leader") else 1,))

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(3 if agent.startswith("leader") else 2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self._time = list(REWARDS), 0
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self._time += 1
        seen, over = self._seen(), self._time == STEPS
        self.agents = [] if over else self.agents
        never, all_over = dict.fromkeys(REWARDS, False), dict.fromkeys(REWARDS, over)
        return seen, dict(REWARDS), never, all_over, {agent: {} for agent in REWARDS}

    def _seen(self) -> dict[str, Any]:
        return {
            agent: np.full(self.observation_space(agent).shape, self._time / STEPS, np.float32)
            for agent in self.possible_agents
        }


parallel_env = Hunt
