"""Returns of a behavior's ended episodes, for the lists of checkpoints and for lessons."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainer_service.running.callbacks import EndedEpisodes
from trainer_service.running.metrics import MEMBER_REWARD, Statistics
from unity_bridge.specs import BehaviorSpec


class Returns:
    """Returns since the last checkpoint, by behavior or group member, and returns since the last query of lessons."""

    def __init__(self, behavior: str, spec: BehaviorSpec, *, is_watched: bool) -> None:
        """is_watched: whether lessons use the behavior's returns. Only then are they kept."""
        self._behavior = behavior
        self._members = spec.members
        self._member_of = np.array(spec.agent_members, np.int64)
        """The member that each agent index belongs to, in a heterogeneous group."""
        self._is_watched = is_watched
        self._has_groups = False
        """Whether an agent of a group has ended."""
        self._since_save: dict[str, tuple[float, int]] = {}
        """Sum and number of returns by name."""
        self._since_progress: list[float] = []

    def add(self, episodes: EndedEpisodes, statistics: Statistics) -> None:
        """Adds ended episodes, also to the statistics of the next summary."""
        if len(episodes.returns):
            statistics.add_episodes(episodes.returns, episodes.lengths)
            for number, member in enumerate(self._members):
                of_member = episodes.returns[self._member_of[episodes.agent_indices] == number]
                if len(of_member):
                    self._count(member.behavior, of_member)
                    statistics.add(f"{MEMBER_REWARD}{member.behavior}", of_member)
        counted = episodes.counted_returns
        if episodes.in_group.any() or len(episodes.group_returns):
            self._has_groups = True
        if self._has_groups:
            statistics.add_counted(counted)
        if len(counted):
            self._count(self._behavior, counted)
            if self._is_watched:
                self._since_progress.extend(counted.tolist())
        if len(episodes.group_returns):
            statistics.add_group_episodes(episodes.group_returns)

    def _count(self, name: str, returns: NDArray[np.float64]) -> None:
        total, count = self._since_save.get(name, (0.0, 0))
        self._since_save[name] = (total + float(returns.sum()), count + len(returns))

    def drain_means(self) -> dict[str, float]:
        """Mean returns since the last call, by the models' names, for the lists of checkpoints.

        Names without an ended episode are absent. For a member of a heterogeneous group, the mean is over its agents'
        own returns, otherwise over counted returns.
        """
        found, self._since_save = self._since_save, {}
        return {name: total / count for name, (total, count) in found.items()}

    def drain(self) -> list[float]:
        """Counted returns since the last call, for lessons that use the behavior."""
        found, self._since_progress = self._since_progress, []
        return found
