"""Finished pieces of experience, and the store that keeps them until the next update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.steps import Observation, join_observations


@dataclass(frozen=True, slots=True, eq=False)
class Trajectories:
    """P trajectories laid end to end, S steps in all; each is one agent's unbroken steps in one episode."""

    observations: tuple[Observation, ...]
    """What the agent saw when it decided; one array per sensor. Shapes [S, *sensor shape]."""

    continuous_actions: NDArray[np.float32]
    """As sampled, before squashing for the wire. Shape [S, continuous size]."""

    discrete_actions: NDArray[np.int64]
    """One index per branch. Shape [S, branches]."""

    allowed_actions: NDArray[np.bool_]
    """What the agent was allowed to choose. Shape [S, sum of branches]."""

    log_probs: NDArray[np.float32]
    """Joint log-probability of the action under the policy that chose it. Shape [S]."""

    memories: NDArray[np.float32]
    """What the agent remembered when it decided. Shape [S, memory size], a size of 0 for who has no memory."""

    rewards: NDArray[np.float32]
    """The agent's own reward for the action, in task units. Shape [S]."""

    group_rewards: NDArray[np.float32]
    """Its group's reward for the same span. Shape [S]."""

    lengths: NDArray[np.int64]
    """Steps of each trajectory; their sum is S. Shape [P]."""

    final_observations: tuple[Observation, ...]
    """What the agent saw after its last step. Shapes [P, *sensor shape]."""

    final_allowed_actions: NDArray[np.bool_]
    """What it was allowed to choose next. Shape [P, sum of branches]."""

    final_memories: NDArray[np.float32]
    """What it remembered then. Shape [P, memory size]."""

    terminated: NDArray[np.bool_]
    """The task ended with the last step: nothing follows. Otherwise bootstrap. Shape [P]."""

    def __post_init__(self) -> None:
        if int(self.lengths.sum()) != len(self.rewards):
            raise ValueError(f"lengths {self.lengths.tolist()} do not add up to {len(self.rewards)} steps")
        if len(self.terminated) != len(self.lengths):
            raise ValueError(f"{len(self.terminated)} ends for {len(self.lengths)} trajectories")

    def __len__(self) -> int:
        return len(self.rewards)

    @staticmethod
    def concatenate(parts: Sequence[Trajectories]) -> Trajectories:
        """All trajectories of several records, in order. Needs at least one record."""
        if len(parts) == 1:
            return parts[0]
        joined: dict[str, Any] = {}
        for field in fields(Trajectories):
            columns = [getattr(part, field.name) for part in parts]
            if isinstance(columns[0], tuple):
                joined[field.name] = tuple(join_observations(sensor) for sensor in zip(*columns, strict=True))
            else:
                joined[field.name] = np.concatenate(columns)
        return Trajectories(**joined)


class OnPolicyBuffer:
    """Trajectories collected since the last update. An update drains it; on-policy data serve once."""

    def __init__(self) -> None:
        self._parts: list[Trajectories] = []
        self._steps = 0

    def __len__(self) -> int:
        """Steps collected."""
        return self._steps

    def add(self, trajectories: Trajectories) -> None:
        self._parts.append(trajectories)
        self._steps += len(trajectories)

    def peek(self) -> Trajectories | None:
        """Everything collected so far, left in place; None when there is nothing."""
        if not self._parts:
            return None
        self._parts = [Trajectories.concatenate(self._parts)]
        return self._parts[0]

    def drain(self) -> Trajectories:
        """Everything collected, in order of arrival; the buffer is empty afterwards.

        Raises ValueError when nothing was collected.
        """
        if not self._parts:
            raise ValueError("nothing was collected")
        trajectories = Trajectories.concatenate(self._parts)
        self._parts, self._steps = [], 0
        return trajectories
