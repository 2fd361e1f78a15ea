"""Small goal environments with sparse rewards, which random actions hardly ever solve."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Observation = dict[str, Any]


class GoalEnv(gymnasium.Env[Observation, Any]):
    """A goal environment as Gymnasium-Robotics defines them: −1 for each step until the goal is achieved."""

    steps = 16
    """Steps after which an episode is truncated."""

    def __init__(self, size: int) -> None:
        space = spaces.Box(-1.0, 1.0, (size,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict(dict.fromkeys(names, space))
        self.position = np.zeros(size, np.float32)
        self.goal = np.zeros(size, np.float32)
        self.count = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        self.position, self.goal = self.draw(), self.draw()
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.move(action)
        self.count += 1
        reward = float(self.compute_reward(self.position, self.goal, {}))
        ended = bool(self.compute_terminated(self.position, self.goal, {}))
        return self.seen(), reward, ended, self.count >= self.steps, {}

    def seen(self) -> Observation:
        return {
            "observation": self.position.copy(),
            "achieved_goal": self.position.copy(),
            "desired_goal": self.goal.copy(),
        }

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return self.is_achieved(achieved_goal, desired_goal).astype(np.float32) - 1.0

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return self.is_achieved(achieved_goal, desired_goal)

    def is_achieved(self, achieved: Any, desired: Any) -> Any:
        raise NotImplementedError

    def draw(self) -> Any:
        raise NotImplementedError

    def move(self, action: Any) -> None:
        raise NotImplementedError


class BitFlipping(GoalEnv):
    """The bits of section 3.1 of Andrychowicz et al. 2017: each action flips one, until all are as they shall be."""

    def __init__(self, bits: int = 12) -> None:
        super().__init__(bits)
        self.steps = bits
        self.action_space = spaces.Discrete(bits)

    def draw(self) -> Any:
        return self.np_random.integers(2, size=len(self.position)).astype(np.float32)

    def move(self, action: Any) -> None:
        self.position[action] = 1.0 - self.position[action]

    def is_achieved(self, achieved: Any, desired: Any) -> Any:
        return (achieved == desired).all(axis=-1)


class PointReach(GoalEnv):
    """A point in a square that shall be moved to another one."""

    steps = 30

    def __init__(self, stride: float = 0.1, tolerance: float = 0.05) -> None:
        super().__init__(2)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.stride, self.tolerance = stride, tolerance

    def draw(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)

    def move(self, action: Any) -> None:
        self.position = np.clip(self.position + self.stride * np.asarray(action, np.float32), -1.0, 1.0)

    def is_achieved(self, achieved: Any, desired: Any) -> Any:
        return np.linalg.norm(achieved - desired, axis=-1) <= self.tolerance
