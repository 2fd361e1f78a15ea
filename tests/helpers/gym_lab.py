"""Gymnasium environments as users write them, in a module that other processes can import too."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class Lap(gymnasium.Env[Any, Any]):
    """Counts its steps. The seed says how long an episode is, whether it terminates, and what each action earns.

    It shows [count, episode, seed], and forbids the last action at odd counts.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(3, start=5)

    def __init__(self, bonus: float = 0.0, render_mode: str | None = None) -> None:
        self.bonus, self.render_mode = bonus, render_mode
        self.lap_seed = self.episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.lap_seed = self.lap_seed if seed is None else seed
        self.count, self.episode = 0, self.episode + 1
        return self._observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(np.int64(action))
        self.count += 1
        ends = self.count >= 2 + self.lap_seed // 1000 % 3
        terminates = self.lap_seed // 1000 % 2 == 0
        observation, info = self._observe()
        return observation, float(action) + self.bonus, ends and terminates, ends and not terminates, info

    def render(self) -> Any:
        return np.full((4, 6, 3), self.count, np.uint8)

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        seen = np.array([self.count, self.episode, self.lap_seed], np.float64)
        return seen, {"action_mask": np.array([1, 1, self.count % 2 == 0], np.int8)}


class Mission(gymnasium.Space[str]):
    """A space of texts of a library's own, as MiniGrid has one."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return "go to the red ball"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mission)

    def __hash__(self) -> int:
        return hash(Mission)


class Talker(gymnasium.Env[Any, Any]):
    """An environment that gives its agent a mission in words, as MiniGrid does."""

    observation_space = spaces.Dict({"mission": Mission(), "wind": spaces.Discrete(2)})
    action_space = spaces.Discrete(2)

    def __init__(self, says: str) -> None:
        self.says = says

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return {"mission": self.says, "wind": 0}, 1.0, False, False, {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return {"mission": self.says, "wind": 1}, {}


def lap(bonus: float = 0.0) -> Lap:
    """A factory of the user's, which does not draw."""
    return Lap(bonus)


def laps(num_envs: int = 2) -> SyncVectorEnv:
    """A factory of a vector environment."""
    return SyncVectorEnv([Lap] * num_envs)


def two_laps() -> SyncVectorEnv:
    """A factory of a vector environment that does not let others choose how many."""
    return laps(2)


class SilentLaps(SyncVectorEnv):
    """A vector environment that loses last observations, or does not say how it begins anew."""

    def __init__(self, num_envs: int = 2, says_how: bool = True) -> None:
        super().__init__([Lap] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        if not says_how:
            del self.metadata["autoreset_mode"]

    def step(self, actions: Any) -> Any:
        *outcome, info = super().step(actions)
        return *outcome, {key: value for key, value in info.items() if "final" not in key}


def double(env: gymnasium.Env[Any, Any], factor: float = 2.0) -> gymnasium.Env[Any, Any]:
    """A wrapper of the user's: rewards times a factor."""
    return gymnasium.wrappers.TransformReward(env, lambda reward: factor * float(reward))


def quitter(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """A wrapper with which a third step ends the whole process."""

    class Quitter(gymnasium.Wrapper):
        def step(self, action: Any) -> Any:
            if self.unwrapped.count == 2:
                os._exit(7)
            return super().step(action)

    return Quitter(env)


def nothing(env: gymnasium.Env[Any, Any]) -> None:
    """A wrapper that forgets to return something."""


def failing() -> Lap:
    """A factory that fails."""
    raise RuntimeError("no track")
