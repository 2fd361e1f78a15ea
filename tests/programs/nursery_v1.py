"""A PettingZoo environment with agents that leave one by one and come late; nothing in it is left to chance.

Children kid_0 … kid_2 choose one of three and earn what they choose; kid_i goes home (terminated) in step i + 1,
but the last stays. A nurse comes after step 2 and earns the number that she says, from 0 to 10. After ``limit``
steps all present agents are truncated; an agent that goes home in that step is both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

KIDS = ("kid_0", "kid_1", "kid_2")
NURSE = "nurse_0"


class Nursery(ParallelEnv):
    """Everybody sees [step, own place, seed]; kids see besides which choices are allowed."""

    metadata = {"name": "nursery_v1", "render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(
        self, limit: int = 4, masks: str = "observation", trouble: str = "", render_mode: str | None = None
    ) -> None:
        self.limit, self.masks, self.trouble, self.render_mode = limit, masks, trouble, render_mode
        self.possible_agents = [*KIDS, NURSE]
        self.agents: list[str] = []
        self.seed = -1
        self.received: list[dict[str, Any]] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        vector = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        if agent == NURSE or self.masks != "observation":
            return vector
        return spaces.Dict({"observation": vector, "action_mask": spaces.MultiBinary(3)})

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 10, (1,), np.float32) if agent == NURSE else spaces.Discrete(3)

    def reset(
        self, seed: int | None = None, options: Any = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        self.count = 0
        self.seed = self.seed if seed is None else seed
        self.agents = [] if self.trouble == "nobody" else list(KIDS)
        return self._seen(self.agents), self._infos(self.agents)

    def step(self, actions: dict[str, Any]) -> Any:
        if self.trouble == "step":
            raise ValueError("spilt\nmilk")
        assert list(actions) == self.agents, f"actions of {list(actions)} for {self.agents}"
        self.received.append(actions)
        self.count += 1
        there = self.agents
        home = {agent: agent == f"kid_{self.count - 1}" and self.count < 3 for agent in there}
        late = dict.fromkeys(there, self.count >= self.limit)
        earned = {agent: float(np.sum(actions[agent])) for agent in there}
        self.agents = [agent for agent in there if not (home[agent] or late[agent])]
        if self.count == 2 and self.agents:
            self.agents.append("stranger" if self.trouble == "stranger" else NURSE)
        if self.trouble == "lost":
            self.agents.remove("kid_2")
        told = [*there, *self.agents[-1:]]
        if self.trouble == "gym":
            return self._seen(told)["kid_0"], 0.0, False, {}
        if self.trouble == "one reward":
            return self._seen(told), 0.0, home, late, self._infos(told)
        return self._seen(told), earned, home, late, self._infos(told)

    def render(self) -> Any:
        return np.full((4, 6, 3), self.count, np.uint8)

    def _seen(self, agents: list[str]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for place, agent in enumerate([*self.possible_agents, "stranger"]):
            if agent in agents:
                vector = np.array([self.count, place, self.seed], np.float64)
                has_mask = self.masks == "observation" and agent in KIDS
                seen[agent] = {"observation": vector, "action_mask": self._mask()} if has_mask else vector
        return seen

    def _infos(self, agents: list[str]) -> dict[str, dict[str, Any]]:
        shown = {"action_mask": self._mask()} if self.masks == "info" else {}
        return {agent: dict(shown) if agent in KIDS else {} for agent in agents}

    def _mask(self) -> Any:
        return np.array([1, 0, self.count % 2], np.int8)


parallel_env = Nursery
