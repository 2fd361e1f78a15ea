"""Environments as somebody writes them into a notebook: in ``__main__``, where no other process finds them."""

from __future__ import annotations

from typing import Any

_CELL = '''
import os

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Walk(gymnasium.Env):
    """Ten steps on a line towards a goal. Its spaces are mixed, shifted and out of order."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = spaces.Dict({"place": spaces.Box(-5, 5, (2,)), "clock": spaces.Discrete(3, start=4)})
    action_space = spaces.Dict({"go": spaces.Box(0, 10, (2,)), "pick": spaces.MultiDiscrete([2, 3], start=[1, 5])})

    def __init__(self, goal=3.0, render_mode=None):
        self.goal, self.render_mode = goal, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, self.np_random.uniform(-1, 1)
        return self.seen(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.time += 1
        self.place = np.clip(self.place + 0.1 * (action["go"][0] - 5) + 0.01 * action["pick"][1], -5, 5)
        return self.seen(), -abs(self.place - self.goal), False, self.time == 10, {}

    def seen(self):
        return {"place": np.array([self.place, self.goal], np.float32), "clock": 4 + self.time % 3}

    def render(self):
        return np.full((32, 32, 3), 25 * self.time, np.uint8)


class Pair(ParallelEnv):
    """Two agents that do nothing of note, for three steps."""

    metadata = {"name": "pair_v0"}
    possible_agents = ["a", "b"]

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (2,))

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.time = list(self.possible_agents), 0
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        self.time += 1
        told = {agent: np.ones(2, np.float32) for agent in self.agents}
        over = {agent: self.time == 3 for agent in self.agents}
        agents, self.agents = self.agents, [] if self.time == 3 else self.agents
        return told, dict.fromkeys(agents, 1.0), over, dict.fromkeys(agents, False), {agent: {} for agent in agents}


class Brittle(Walk):
    """A walk whose process dies once, at its 50th step; a file tells that it has."""

    steps = 0

    def __init__(self, died):
        super().__init__()
        self.died = died

    def step(self, action):
        self.steps += 1
        if self.steps == 50 and not os.path.exists(self.died):
            open(self.died, "w").close()
            os._exit(3)
        return super().step(action)
'''


def run_cell() -> dict[str, Any]:
    """Returns what the cell defines, by name: the classes Walk, Pair and Brittle."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(_CELL, names)
    return names
