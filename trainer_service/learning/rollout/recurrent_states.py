"""Recurrent states of agents, for frozen policies. NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.agents import AgentRows, agent_keys, with_room
from unity_bridge.arrays import Rows
from unity_bridge.steps import StepBatch

Memories = NDArray[np.float32]


class RecurrentStates:
    """The memory of each agent of each simulator: zeros at the start of an episode, kept until its end."""

    def __init__(self, memory_size: int) -> None:
        self._agents = AgentRows()
        self._memories = np.zeros((16, memory_size), np.float32)

    def get(self, simulator: int, team: int, batch: StepBatch) -> tuple[Rows, Memories]:
        """Returns the rows of waiting agents, for ``set``, and their memories, [M, size]."""
        keys = agent_keys(batch.agent_ids, team)
        ended, waiting = keys[: batch.num_terminal], keys[batch.num_terminal :]
        if len(ended):
            rows = self._agents.find(simulator, ended)
            self._memories[rows[rows >= 0]] = 0.0
            self._agents.release(simulator, ended)
        rows = self._agents.assign(simulator, waiting)
        self._memories = with_room(self._memories, self._agents.capacity)
        return rows, self._memories[rows]

    def set(self, rows: Rows, memories: Memories) -> None:
        """Stores the memories of these rows' agents. memories: [M, size]."""
        self._memories[rows] = memories

    def drop(self, simulator: int) -> None:
        """Forgets the agents of a simulator that was reset."""
        self._memories[self._agents.drop(simulator)] = 0.0
