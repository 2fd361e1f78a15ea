"""Environments of several agents in lists, in every dialect; nothing in them is left to chance.

Each of three agents sees [step, own place, seed], chooses one of three and earns choice + place. After ``limit`` steps
all are done. Under names of their own: ``Foragers``, also registered as ``Foragers-v0`` (Gymnasium's interface), and
``OldForagers`` (the older gym's, in which agent 0 is done after the first step).
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

AGENTS = 3


def _sight() -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, (3,), np.float64)


class Foragers(gymnasium.Env):  # type: ignore[type-arg]
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(
        self,
        limit: int = 4,
        rewards: str = "each",
        ends: str = "one",
        trouble: str = "",
        render_mode: str | None = None,
    ) -> None:
        self.limit, self.rewards, self.ends = limit, rewards, ends
        self.trouble, self.render_mode = trouble, render_mode
        self.seed, self.count = -1, 0
        self.received: list[Any] = []
        self.action_space = spaces.Tuple([spaces.Discrete(3)] * AGENTS)
        self.observation_space = spaces.Tuple([_sight()] * AGENTS)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.count = 0
        self.seed = self.seed if seed is None else seed
        return self._seen(), {}

    def step(self, actions: Any) -> Any:
        if self.trouble == "step":
            raise ValueError("spilt\nmilk")
        assert isinstance(actions, list)
        self.received.append(actions)
        self.count += 1
        earned: Any = [float(choice + place) for place, choice in enumerate(actions)]
        if self.rewards == "shared":
            earned = sum(earned)
        if self.trouble == "rewards":
            earned = earned[:2]
        late: Any = self.count >= self.limit
        if self.ends == "each":
            late = [late, late, late or self.count >= 2]
        if self.trouble == "return":
            return self._seen(), earned
        return self._seen(), earned, late, False, {}

    def state(self) -> Any:
        return np.array([self.count, self.seed])

    def render(self) -> Any:
        return np.full((4, 6, 3), self.count, np.uint8)

    def _seen(self) -> Any:
        seen = [[self.count, place, self.seed] for place in range(AGENTS)]
        return tuple(np.array(numbers, np.float64) for numbers in seen)


class WithLists(Foragers):
    """Gymnasium's interface, and Python lists for spaces, which are no spaces of Gymnasium's."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space: Any = list(self.action_space.spaces)
        self.observation_space: Any = list(self.observation_space.spaces)


class OldForagers:
    """The older gym's interface, and lists for spaces."""

    metadata = {"render.modes": ["human", "rgb_array"]}  # noqa: RUF012

    def __init__(self, limit: int = 3) -> None:
        self.limit = limit
        self.count, self.seeded = 0, -1
        self.dones = [False] * AGENTS
        self.observation_space = [_sight()] * AGENTS
        self.action_space = [spaces.Discrete(3)] * AGENTS
        self.received: list[Any] = []

    def seed(self, seed: int | None = None) -> list[Any]:
        self.seeded = -1 if seed is None else seed
        return [seed]

    def reset(self) -> Any:
        self.count, self.dones = 0, [False] * AGENTS
        return self._seen()

    def step(self, actions: Any) -> Any:
        self.received.append(actions)
        self.count += 1
        earned = [choice + place + 0.5 for place, choice in enumerate(actions)]
        self.dones[0] = True
        if self.count >= self.limit:
            self.dones[:] = [True] * AGENTS
        return self._seen(), earned, self.dones, {"count": self.count}

    def render(self, mode: str = "human") -> Any:
        return np.full((4, 6, 3), self.count, np.uint8) if mode == "rgb_array" else None

    def close(self) -> None:
        pass

    def _seen(self) -> list[list[float]]:
        return [[self.count, place, self.seeded] for place in range(AGENTS)]


class Stacked(OldForagers):
    """Football's way: one space for all, and numpy arrays. The clock is said to have ended it."""

    def __init__(self, limit: int = 3) -> None:
        super().__init__(limit)
        self.observation_space: Any = spaces.Box(-np.inf, np.inf, (AGENTS, 3), np.float64)
        self.action_space: Any = spaces.MultiDiscrete([3] * AGENTS)

    def reset(self) -> Any:
        return np.array(super().reset(), np.float64)

    def step(self, actions: Any) -> Any:
        seen, earned, _, _ = super().step(actions)
        over = self.count >= self.limit
        return np.array(seen, np.float64), np.array(earned, np.float32), over, {"TimeLimit.truncated": over}


gymnasium.register("Foragers-v0", Foragers)
