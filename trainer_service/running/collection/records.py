"""Records of a behavior id's agents: ticks of simulators, and collected experience for learning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.callbacks import EndedEpisodes
from unity_bridge.side_channels import SideChannelRecord
from unity_bridge.steps import StepBatch


class BehaviorTick(NamedTuple):
    """One tick of one simulator, for the agents of one behavior id: a name and a team id."""

    simulator: int
    team: int
    batch: StepBatch

    behavior_id: str = ""
    """The simulator's spelling of the behavior id, such as ``Ball?team=0``."""

    messages: tuple[SideChannelRecord, ...] = ()
    """The side-channel messages of the tick, such as the actions of a scene's expert."""


@dataclass(frozen=True, slots=True, eq=False)
class SampleBatch:
    """Experience of one behavior's agents with one team id, from one tick or from a worker's whole collection."""

    team: int

    transitions: int
    """Number of actions whose reward and next observation arrived since the last batch."""

    trajectories: Trajectories | None = None
    """Segments that reached their end or the horizon."""

    episodes: EndedEpisodes | None = None
    """Ended episodes."""

    results: NDArray[np.float64] | None = None
    """Results of ended games under self-play, per agent or group: 1 won, ½ drawn, 0 lost. Shape [G]."""

    replaced_values: int = 0
    """Count of unusable numbers, which were replaced."""

    @staticmethod
    def concatenate(batches: Sequence[SampleBatch]) -> SampleBatch:
        """Joins batches of one team id, in order. Needs at least one."""
        if len(batches) == 1:
            return batches[0]
        trajectories = [each.trajectories for each in batches if each.trajectories is not None]
        episodes = [each.episodes for each in batches if each.episodes is not None]
        results = [each.results for each in batches if each.results is not None]
        return SampleBatch(
            team=batches[0].team,
            transitions=sum(each.transitions for each in batches),
            trajectories=Trajectories.concatenate(trajectories) if trajectories else None,
            episodes=EndedEpisodes.concatenate(episodes) if episodes else None,
            results=np.concatenate(results) if results else None,
            replaced_values=sum(each.replaced_values for each in batches),
        )
