"""Groups with agents that join, die, and decide at odd times, in which every observation is a number of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainer_service.learning.rollout.agent_indices import AgentIndexAllocator
from trainer_service.learning.rollout.assembler import Decisions, TrajectoryAssembler
from trainer_service.learning.rollout.group_returns import GroupReturns
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import StepBatch

SPEC = BehaviorSpec(
    (ObservationSpec("number", (1,)), ObservationSpec("camera", (1, 2, 2))), ActionSpec(1, (2, 3))
)
NUM_AGENTS = 3


class GroupLife:
    """Groups of up to three in two simulators. Every observation is a number of its own; so tells every column.

    What an agent remembers is the number that it saw when it decided before.
    """

    def __init__(
        self,
        seed: int,
        *,
        horizon: int = 4,
        together: bool = False,
        memory_size: int = 0,
        by_group: bool = True,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.assembler = TrajectoryAssembler(SPEC, horizon, memory_size, by_group=by_group)
        self.by_group = by_group
        self.memory_size = memory_size
        self.allocator = AgentIndexAllocator()
        self.together = together
        """Whether everyone alive is asked at every tick."""
        self.alive: dict[tuple[int, int], set[int]] = {(s, g): set() for s in (0, 1) for g in (1, 2)}
        self.asked: dict[tuple[int, int], set[int]] = {key: set() for key in self.alive}
        self.number = 0
        self.groups = GroupReturns()
        self.earned: dict[tuple[int, int], int] = dict.fromkeys(self.alive, 0)
        """What each group has earned: its number at every tick."""
        self.paid: dict[tuple[int, int], int] = {}
        """What it had earned at the last row of each agent, by simulator and agent."""

    def __iter__(self) -> Iterator[Trajectories]:
        while True:
            for simulator in (0, 1):
                observed = self.tick(simulator)
                if observed is not None:
                    yield observed

    def tick(self, simulator: int) -> Trajectories | None:
        ends: list[tuple[int, int, bool]] = []
        waits: list[tuple[int, int]] = []
        for group in (1, 2):
            key = (simulator, group)
            alive, asked = self.alive[key], self.asked[key]
            everyone = alive and self.rng.random() < 0.1
            for agent in sorted(alive):
                if agent in asked and (everyone or self.rng.random() < 0.1):
                    ends.append((agent, group, bool(self.rng.random() < 0.5)))
                    alive.discard(agent)
            # Some come back at once, under the same id or with the same index.
            for agent in range(10 * group, 10 * group + NUM_AGENTS):
                if agent not in alive and self.rng.random() < 0.4:
                    alive.add(agent)
            now = {agent for agent in alive if self.together or self.rng.random() < 0.7}
            asked |= now
            asked &= alive
            waits += [(agent, group) for agent in sorted(now)]
        return self.observe(simulator, self.batch(ends, waits, simulator)) if ends or waits else None

    def batch(
        self, ends: list[tuple[int, int, bool]], waits: list[tuple[int, int]], simulator: int = 0
    ) -> StepBatch:
        rows = [*((agent, group) for agent, group, _ in ends), *waits]
        for group in (1, 2):
            self.earned[simulator, group] += group
        terminated = np.zeros(len(rows), np.bool_)
        terminated[: len(ends)] = [end for _, _, end in ends]
        first, self.number = self.number, self.number + len(rows)
        numbers = np.arange(first, self.number)
        groups = np.array([group for _, group in rows], np.int64)
        return StepBatch(
            agent_ids=np.array([agent for agent, _ in rows], np.int64),
            observations=(numbers[:, None].astype(np.float32), picture_of(numbers)),
            rewards=(numbers % 7).astype(np.float32),
            terminated=terminated,
            truncated=(np.arange(len(rows)) < len(ends)) & ~terminated,
            allowed_actions=allowed_of(numbers),
            group_ids=groups,
            group_rewards=np.array(
                [self.due(simulator, *row, is_over=at < len(ends)) for at, row in enumerate(rows)], np.float32
            ),
        )

    def due(self, simulator: int, agent: int, group: int, *, is_over: bool) -> int:
        """What an agent's group has earned since the agent's last row; 0 in its first."""
        now = self.earned[simulator, group]
        before = self.paid.pop((simulator, agent), now)
        if not is_over:
            self.paid[simulator, agent] = now
        return now - before

    def observe(self, simulator: int, batch: StepBatch) -> Trajectories | None:
        membership = self.allocator.assign(simulator, 0, batch)
        clocks = self.groups.observe(simulator, 0, batch)
        observed = self.assembler.observe(simulator, 0, batch, membership if self.by_group else None, clocks)
        first = batch.num_terminal
        numbers = batch.observations[0][first:, 0].astype(np.int64)
        decisions = Decisions(
            (numbers[:, None] / 10).astype(np.float32),
            np.stack([numbers % 2, numbers % 3], axis=1),
            np.zeros(len(numbers), np.float32),
            np.repeat(numbers[:, None], self.memory_size, axis=1).astype(np.float32),
        )
        seen = tuple(sensor[first:] for sensor in batch.observations)
        self.assembler.acted(observed.waiting, seen, batch.allowed_actions[first:], decisions)
        return observed.trajectories


def picture_of(numbers: np.ndarray) -> np.ndarray:
    return np.broadcast_to((numbers % 256)[:, None, None, None], (len(numbers), 1, 2, 2)).astype(np.uint8)


def allowed_of(numbers: np.ndarray) -> np.ndarray:
    return numbers[:, None] % np.array([2, 3, 4, 5, 6]) != 1
