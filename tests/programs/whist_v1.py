"""A PettingZoo environment whose agents act in turn; nothing in it is left to chance.

Three players say 0, 1 or 2, one after the other. What a player says is paid to both others at once, and 10 to itself.
player_1 leaves (terminated) after the second time that it spoke; after ``rounds`` rounds the others are truncated. They
see [number of words so far, own place, seed]; who speaks may not repeat what was said last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv


class Whist(AECEnv):  # type: ignore[type-arg]
    metadata = {"name": "whist_v1", "render_modes": ["rgb_array"]}  # noqa: RUF012 (as PettingZoo declares it)

    def __init__(self, rounds: int = 3, trouble: str = "", render_mode: str | None = None) -> None:
        super().__init__()
        self.possible_agents = ["player_0", "player_1", "player_2"]
        self.rounds, self.trouble, self.render_mode, self.seed = rounds, trouble, render_mode, -1

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.seed = self.seed if seed is None else seed
        self.agents = [] if self.trouble == "nobody" else list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        self.words, self.spoken, self.last_word = 0, dict.fromkeys(self.agents, 0), -1
        self.agent_selection = self.possible_agents[0]

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        if self.trouble == "step":
            raise ValueError("spilt\nmilk")
        assert action != self.last_word
        self.words, self.last_word = self.words + 1, action
        self.spoken[agent] += 1
        self._cumulative_rewards[agent] = 0.0
        self.rewards = {each: 10.0 if each == agent else float(action) for each in self.agents}
        self._accumulate_rewards()
        order = self.agents[self.agents.index(agent) + 1 :] + self.agents[: self.agents.index(agent) + 1]
        if agent == "player_1" and self.spoken[agent] == 2:
            self.terminations[agent] = True
        if agent == "player_2" and self.spoken[agent] == self.rounds:
            self.truncations = {each: not self.terminations[each] for each in self.agents}
        self.agent_selection = order[0]
        self.infos[order[0]] = {"action_mask": [int(word != action) for word in range(3)]}
        self._deads_step_first()

    def observe(self, agent: str) -> Any:
        return np.array([self.words, self.possible_agents.index(agent), self.seed], np.float64)

    def render(self) -> Any:
        return np.full((4, 6, 3), self.words, np.uint8)


env = Whist
