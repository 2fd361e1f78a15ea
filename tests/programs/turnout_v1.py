"""A PettingZoo environment of four agents of which as many come as is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Turnout(ParallelEnv):  # type: ignore[type-arg]
    metadata = {"name": "turnout_v1"}  # noqa: RUF012 (as PettingZoo declares it)

    def __init__(self, come: int = 4, render_mode: str | None = None) -> None:
        self.possible_agents = [f"agent_{i}" for i in range(4)]
        self.agents: list[str] = []
        self._come, self._time = come, 0

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (2,))

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self._time = self.possible_agents[: self._come], 0
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self._time += 1
        seen, there, over = self._seen(), self.agents, self._time == 10
        self.agents = [] if over else there
        return (
            seen,
            {agent: float(actions[agent]) for agent in there},
            dict.fromkeys(there, False),
            dict.fromkeys(there, over),
            {agent: {} for agent in there},
        )

    def _seen(self) -> dict[str, Any]:
        return {agent: np.array([1.0, self._time / 10], np.float32) for agent in self.agents}


parallel_env = Turnout
