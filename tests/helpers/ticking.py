"""Ticks of a few agents by hand, and an assembler that is driven through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainer_service.learning.rollout.agent_indices import AgentIndexAllocator
from trainer_service.learning.rollout.assembler import Decisions, Observed, TrajectoryAssembler
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import StepBatch

SPEC = BehaviorSpec((ObservationSpec("clock", (1,)),), ActionSpec(1, (3,)))


def tick(
    ids: Sequence[int],
    seen: Any,
    rewards: Any = 0.0,
    *,
    terminated: int = 0,
    truncated: int = 0,
    groups: Any = 0,
    group_rewards: Any = 0.0,
) -> StepBatch:
    """Terminated rows first, then truncated ones, then those that wait. Columns are numbers, or one for all rows.

    seen: a number of each agent, or a whole sensor.
    """
    count, row = len(ids), np.arange(len(ids))

    def column(values: Any, kind: type) -> np.ndarray:
        return np.broadcast_to(np.asarray(values, kind), count).copy()

    return StepBatch(
        agent_ids=np.array(ids, np.int64),
        observations=(
            seen if isinstance(seen, np.ndarray) else np.array(seen, np.float32).reshape(count, 1),
        ),
        rewards=column(rewards, np.float32),
        terminated=row < terminated,
        truncated=(row >= terminated) & (row < terminated + truncated),
        allowed_actions=np.ones((count, 3), np.bool_),
        group_ids=column(groups, np.int64),
        group_rewards=column(group_rewards, np.float32),
    )


class Driver:
    """Answers every tick with actions that repeat what the agents saw, which is also what they remember."""

    def __init__(
        self, horizon: int = 1000, *, spec: BehaviorSpec = SPEC, memory_size: int = 0, by_group: bool = False
    ) -> None:
        self.assembler = TrajectoryAssembler(spec, horizon, memory_size=memory_size, by_group=by_group)
        self.allocator = AgentIndexAllocator() if by_group else None
        self.memory_size = memory_size
        self.recalled = np.empty((0, memory_size), np.float32)
        """What agents remembered before they decided at the last tick."""

    def __call__(self, batch: StepBatch, simulator: int = 0, team: int = 0) -> Observed:
        membership = None if self.allocator is None else self.allocator.assign(simulator, team, batch)
        observed = self.assembler.observe(simulator, team, batch, membership)
        if self.allocator is not None and observed.vanished is not None:
            self.allocator.forget(simulator, observed.vanished)
        self.recalled = self.assembler.memories(observed.waiting)
        first = batch.num_terminal
        seen = batch.observations[0][first:]
        numbers = np.array([row.flat[0] for row in seen], np.float32)[:, None]
        decisions = Decisions(
            numbers,
            numbers.astype(np.int64) % 3,
            numbers[:, 0] / 1000,
            np.repeat(numbers, self.memory_size, axis=1),
        )
        self.assembler.acted(observed.waiting, (seen,), batch.allowed_actions[first:], decisions)
        return observed
