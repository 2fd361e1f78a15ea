"""A world of short episodes for every trainer type, alone or in groups, with something to remember."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.specs import ActionSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, StepBatch

GROUP = 2
"""Agents of a group."""
DECISIONS = 3
"""Decisions of an episode; then all agents begin anew."""
SENSOR = 3
"""Numbers that an agent sees."""


class ShortEpisodes:
    """Groups of two that do everything at the same ticks; what was seen first says what pays last."""

    def __init__(
        self, action_spec: ActionSpec, agents: int = 4, sensors: Sequence[ObservationSpec] = ()
    ) -> None:
        """sensors: further ones, of which every number is drawn from 0 to 1."""
        self.sensors = sensors
        self.rng = np.random.default_rng(1)
        self.actions = action_spec
        self.agents = agents
        self.time = 0

    def begin(self) -> StepBatch:
        self.time = 0
        self.cue = self.rng.normal(size=self.agents).astype(np.float32)
        self._look()
        return self.rows(np.zeros(self.agents))

    def step(self, actions: ActionBatch) -> StepBatch:
        done = actions.continuous.sum(axis=1) + actions.discrete.sum(axis=1)
        self.time += 1
        if self.time < DECISIONS:
            self._look()
            return self.rows(0.1 * done)
        ended = self.rows(self.cue * done, terminated=np.ones(self.agents, np.bool_))
        return concatenate(ended, self.begin())

    def rows(self, rewards: np.ndarray, **ends: Any) -> StepBatch:
        ids = np.arange(self.agents, dtype=np.int64)
        drawn = [self.rng.random((self.agents, *each.shape)).astype(np.float32) for each in self.sensors]
        return step_batch(
            [self.seen, *drawn],
            rewards.astype(np.float32),
            agent_ids=ids,
            allowed_actions=np.ones((self.agents, self.actions.mask_size), np.bool_),
            group_ids=1 + ids // GROUP,
            **ends,
        )

    def _look(self) -> None:
        self.seen = self.rng.normal(size=(self.agents, SENSOR)).astype(np.float32)
        if not self.time:
            self.seen[:, 0] = self.cue
