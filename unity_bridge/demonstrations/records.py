"""Demonstrated segments as frozen records of arrays: T steps of one agent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unity_bridge.steps import Observation


@dataclass(frozen=True, slots=True, eq=False)
class DemonstratedSegment:
    """Consecutive steps of one agent's episode, T of them, at least one: what was seen, done and earned.

    An episode that is longer than the reader's longest segment comes as several, one after the other.
    """

    observations: tuple[Observation, ...]
    """One array per sensor, the observation *before* the demonstrator's action; uint8 if all pictures came as PNG.
    Shapes ``[T, *sensor shape]``."""

    continuous_actions: NDArray[np.float32]
    """As the environment executed them, not as a policy's network puts them out. Shape [T, continuous size]."""

    discrete_actions: NDArray[np.int64]
    """One index per branch. Shape [T, branches]."""

    rewards: NDArray[np.float32]
    """The agent's own, for the action of the same row. Shape [T]."""

    group_rewards: NDArray[np.float32]
    """Its group's, for the action of the same row. Shape [T]."""

    final_observations: tuple[Observation, ...]
    """Seen after the last action. Shapes ``[1, *sensor shape]``."""

    terminated: bool
    """The task ended after the last action."""

    truncated: bool
    """The clock ended the episode after the last action. Else: the episode continues, or its end is not recorded."""

    starts_episode: bool
    """The first row is the first that was recorded of its episode."""

    def __post_init__(self) -> None:
        steps = len(self.rewards)
        if not steps:
            raise ValueError("a segment of no steps")
        for name in ("continuous_actions", "discrete_actions", "group_rewards"):
            if len(getattr(self, name)) != steps:
                raise ValueError(f"{name} has {len(getattr(self, name))} rows for {steps} steps")
        for sensor, (seen, final) in enumerate(zip(self.observations, self.final_observations, strict=True)):
            if (len(seen), len(final)) != (steps, 1):
                raise ValueError(
                    f"sensor {sensor} has {len(seen)} and {len(final)} rows for {steps} steps and 1 end"
                )
        if self.terminated and self.truncated:
            raise ValueError("an episode cannot be both terminated and truncated")

    def __len__(self) -> int:
        return len(self.rewards)
