"""Demonstrated episodes as tests describe them, and the .demo files that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unity_bridge.demonstrations import DemonstratedSegment, DemonstrationWriter
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation


@dataclass(frozen=True)
class Shown:
    """One demonstrated episode."""

    observations: Sequence[Observation]
    """One array per sensor, the last row being what was seen at the end. Shapes [T + 1, *sensor shape]."""

    continuous: np.ndarray | None = None
    discrete: np.ndarray | None = None
    """Shapes [T, actions]; None for none."""

    terminated: bool = True

    @property
    def steps(self) -> int:
        return len(self.observations[0]) - 1


def write_episodes(path: Path, spec: BehaviorSpec, *episodes: Shown) -> None:
    """Records episodes of a behavior."""
    with DemonstrationWriter(path, "Shown", spec) as writer:
        for episode in episodes:
            writer.write(_segment(episode))


def _segment(episode: Shown) -> DemonstratedSegment:
    steps, none = episode.steps, np.zeros((episode.steps, 0))
    return DemonstratedSegment(
        observations=tuple(sensor[:steps] for sensor in episode.observations),
        continuous_actions=np.asarray(none if episode.continuous is None else episode.continuous, np.float32),
        discrete_actions=np.asarray(none if episode.discrete is None else episode.discrete, np.int64),
        rewards=np.zeros(steps, np.float32),
        group_rewards=np.zeros(steps, np.float32),
        final_observations=tuple(sensor[steps:] for sensor in episode.observations),
        terminated=episode.terminated,
        truncated=False,
        starts_episode=True,
    )
