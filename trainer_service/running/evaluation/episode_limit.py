"""A limit on the length of episodes, of which the simulator knows nothing. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.agents import AgentRows, agent_keys, with_room
from trainer_service.learning.rollout.group_trajectories import group_keys
from unity_bridge.arrays import Rows
from unity_bridge.steps import StepBatch


@dataclass(frozen=True, slots=True, eq=False)
class LimitedBatch:
    """A tick as it counts under a limit: see ``EpisodeLimit``."""

    batch: StepBatch
    """The rows that count. An agent whose episode is cut has a truncated terminal row in place of its waiting one."""

    cut: NDArray[np.bool_]
    """Whether the limit ended the episode. Shape [terminal rows]."""

    waiting: Rows
    """Which of the simulator's waiting rows are left, in their order. Shape [M]."""


class EpisodeLimit:
    """Counts the steps of running episodes, and cuts the episodes that reach the limit.

    The ledger counts a cut episode as truncated. The simulator continues with that episode. Its remaining rows are left
    out until the episode really ends, or until the simulator is reset (``drop``), so that they do not count as a new
    episode. A group is cut with the first of its members that reaches the limit, all members at once, and agents that
    join it later are left out, too.
    """

    def __init__(self, max_steps: int | None = None) -> None:
        """max_steps: decisions of an agent in one episode; None cuts nothing."""
        self.max_steps = max_steps
        self._agents = AgentRows()
        self._simulators: set[int] = set()
        self._steps = np.zeros(16, np.int64)
        """Of the running episode. Here and below by the agent's row."""
        self._groups = np.zeros(16, np.int64)
        """The ``group_keys`` of its group."""
        self._is_cut = np.zeros(16, np.bool_)
        """Whether its episode was cut, and has not really ended yet."""

    @property
    def num_agents(self) -> int:
        """Agents that have begun an episode and not ended it."""
        return self._agents.in_use

    @property
    def longest(self) -> int:
        """Steps of the longest episode that runs and was not cut; 0 without any."""
        known = (self._agents.known(simulator)[1] for simulator in self._simulators)
        return max((int(self._steps[rows[~self._is_cut[rows]]].max(initial=0)) for rows in known), default=0)

    def has_cut(self, simulator: int) -> bool:
        """Whether agents of a simulator are left out."""
        return bool(self._is_cut[self._agents.known(simulator)[1]].any())

    def is_idle(self, simulator: int) -> bool:
        """Whether no agent of a simulator is in an episode that counts."""
        return bool(self._is_cut[self._agents.known(simulator)[1]].all())

    def drop(self, simulator: int) -> None:
        """Forgets the agents of a simulator that was reset."""
        self._is_cut[self._agents.drop(simulator)] = False

    def observe(self, simulator: int, team: int, batch: StepBatch) -> LimitedBatch:
        """Counts a tick, and returns it as it counts."""
        self._simulators.add(simulator)
        ended = batch.num_terminal
        keys, groups = agent_keys(batch.agent_ids, team), group_keys(batch, team)[ended:]
        hidden = self._end(simulator, keys[:ended])
        new = self._agents.find(simulator, keys[ended:]) < 0
        rows = self._agents.assign(simulator, keys[ended:])
        for name in ("_steps", "_groups", "_is_cut"):
            setattr(self, name, with_room(getattr(self, name), self._agents.capacity))
        self._steps[rows] = np.where(new, 0, self._steps[rows] + 1)
        self._groups[rows] = groups
        left_out, cut = self._cut(simulator, rows, groups, new)
        waiting = np.flatnonzero(~left_out)
        kept = np.flatnonzero(~hidden)
        at = np.concatenate([kept, ended + np.flatnonzero(cut), ended + waiting])
        is_cut = np.arange(len(at) - len(waiting)) >= len(kept)
        if not left_out.any() and not hidden.any():
            return LimitedBatch(batch, is_cut, waiting)
        return LimitedBatch(_with_rows(batch, at, is_cut), is_cut, waiting)

    def _end(self, simulator: int, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Forgets agents whose episode really ends. Tells which were left out. Shape [terminal rows]."""
        rows = self._agents.find(simulator, keys)
        was_cut: NDArray[np.bool_] = (rows >= 0) & self._is_cut[rows]
        self._is_cut[rows[rows >= 0]] = False
        if len(keys):
            self._agents.release(simulator, keys)
        return was_cut

    def _cut(
        self, simulator: int, rows: Rows, groups: NDArray[np.int64], new: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Cuts the episodes that have reached the limit. Returns the left-out and the cut waiting rows. Shapes [M]."""
        was_cut = self._is_cut[rows]
        if self.max_steps is None:
            return was_cut, was_cut
        late = ~was_cut & (self._steps[rows] >= self.max_steps)
        known = self._agents.known(simulator)[1]
        cut_groups = np.concatenate([self._groups[known[self._is_cut[known]]], groups[late]])
        left_out = was_cut | np.isin(groups, cut_groups)
        self._is_cut[rows] = left_out
        return left_out, left_out & ~was_cut & ~new


def _with_rows(batch: StepBatch, at: Rows, is_cut: NDArray[np.bool_]) -> StepBatch:
    """The rows ``at`` of a batch; the first are terminal, and truncated where they are cut."""
    truncated = batch.truncated[at]
    truncated[: len(is_cut)] |= is_cut
    return StepBatch(
        agent_ids=batch.agent_ids[at],
        observations=tuple(sensor[at] for sensor in batch.observations),
        rewards=batch.rewards[at],
        terminated=batch.terminated[at],
        truncated=truncated,
        allowed_actions=batch.allowed_actions[at],
        group_ids=batch.group_ids[at],
        group_rewards=batch.group_rewards[at],
        members=None if batch.members is None else batch.members[at],
    )
