"""Whole episodes, assembled from ticks in which many agents act at the same time. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unity_bridge.demonstrations import DemonstratedSegment
from unity_bridge.steps import ActionBatch, Observation, StepBatch, join_observations

AgentObservations = tuple[Observation, ...]
"""One agent's observations, a row per sensor: [1, *sensor shape]."""


@dataclass(slots=True, eq=False)
class _Running:
    """An unfinished episode."""

    seen: list[AgentObservations] = field(default_factory=list)
    actions: list[ActionBatch] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    group_rewards: list[float] = field(default_factory=list)

    def ended(self, final: AgentObservations, *, truncated: bool) -> DemonstratedSegment:
        return DemonstratedSegment(
            observations=tuple(join_observations(sensor) for sensor in zip(*self.seen, strict=True)),
            continuous_actions=np.concatenate([action.continuous for action in self.actions]),
            discrete_actions=np.concatenate([action.discrete for action in self.actions]).astype(np.int64),
            rewards=np.array(self.rewards, np.float32),
            group_rewards=np.array(self.group_rewards, np.float32),
            final_observations=final,
            terminated=not truncated,
            truncated=truncated,
            starts_episode=True,
        )


class WholeEpisodes:
    """Collects the first ``wanted`` episodes that *start*, and returns each at its end.

    The first episodes that *end* would be the short ones, and a recording of them would be biased. ``EpisodeLedger``
    counts in the same way.
    """

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.num_ended = 0
        self.num_cut = 0
        """Number of collected episodes that a limit of steps ended."""
        self._num_started = 0
        self._running: dict[tuple[int, int, int], _Running] = {}

    @property
    def complete(self) -> bool:
        """Whether every wanted episode was returned."""
        return self.num_ended == self.wanted

    def observe(
        self, simulator: int, team: int, batch: StepBatch, cut: NDArray[np.bool_] | None = None
    ) -> list[DemonstratedSegment]:
        """Adds a tick's outcomes of earlier actions. Returns the episodes that it ended.

        cut: whether a limit of steps ended the episode, by terminal row; None if it ended none.
        """
        ended = []
        for row, agent in enumerate(batch.agent_ids.tolist()):
            key = (simulator, team, agent)
            running = self._running.get(key)
            if running is not None:
                running.rewards.append(float(batch.rewards[row]))
                running.group_rewards.append(float(batch.group_rewards[row]))
            if row >= batch.num_terminal:
                if running is None and self._num_started < self.wanted:
                    self._running[key] = _Running()
                    self._num_started += 1
            elif running is not None:
                del self._running[key]
                self.num_cut += cut is not None and bool(cut[row])
                ended.append(
                    running.ended(_observations_of(batch, row), truncated=bool(batch.truncated[row]))
                )
        self.num_ended += len(ended)
        return ended

    def acted(self, simulator: int, team: int, batch: StepBatch, actions: ActionBatch) -> None:
        """Adds copies of the waiting agents' actions, before the arrays change."""
        for row, agent in enumerate(batch.agent_ids[batch.num_terminal :].tolist()):
            running = self._running.get((simulator, team, agent))
            if running is not None:
                running.seen.append(_observations_of(batch, batch.num_terminal + row))
                running.actions.append(
                    ActionBatch(
                        actions.continuous[row : row + 1].copy(), actions.discrete[row : row + 1].copy()
                    )
                )


def _observations_of(batch: StepBatch, row: int) -> AgentObservations:
    """Returns a copy of a row, so that the batch can be freed and a scene can reuse its arrays."""
    return tuple(sensor[row : row + 1].copy() for sensor in batch.observations)
