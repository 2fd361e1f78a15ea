"""Finished segments of experience, and the buffer that keeps them until the next update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Integers
from unity_bridge.steps import Observation, join_observations


@dataclass(frozen=True, slots=True, eq=False)
class GroupIndex:
    """The groups and ticks of steps that different agents took together: S steps of P trajectories.

    Every group trajectory is complete: it includes all steps of all its agents.
    """

    ticks: NDArray[np.int64]
    """Tick of each step's decision, equal for simultaneous decisions in a group trajectory. Shape [S]."""

    final_ticks: NDArray[np.int64]
    """Tick of each trajectory's final observation, in the same count. Shape [P]."""

    groups: NDArray[np.int64]
    """The group trajectory of each trajectory, numbered from 0. Shape [P]."""

    agent_indices: NDArray[np.int64]
    """The agent's index in its group, from 0. Shape [P]."""

    earned: NDArray[np.float64]
    """The group's clock at each step's decision, see ``GroupReturns``; NaN without a group. Shape [S]."""

    final_earned: NDArray[np.float64]
    """The group's clock at each trajectory's end. Shape [P]."""


@dataclass(frozen=True, slots=True, eq=False)
class Trajectories:
    """P concatenated trajectories, S steps in total. Each has one agent's consecutive steps in one episode."""

    observations: tuple[Observation, ...]
    """Observations at each decision; one array per sensor. Shapes ``[S, *sensor shape]``."""

    continuous_actions: NDArray[np.float32]
    """As sampled, before squashing for the wire. Shape [S, continuous size]."""

    discrete_actions: NDArray[np.int64]
    """One index per branch. Shape [S, branches]."""

    allowed_actions: NDArray[np.bool_]
    """Action masks at each decision, true where allowed. Shape [S, sum of branches]."""

    log_probs: NDArray[np.float32]
    """Joint log-probability of the action under the policy that chose it. Shape [S]."""

    memories: NDArray[np.float32]
    """The agent's recurrent state at the decision. Shape [S, memory size]; a size of 0 without memory."""

    rewards: NDArray[np.float32]
    """The agent's own reward for the action, not normalized. Shape [S]."""

    group_rewards: NDArray[np.float32]
    """The group reward for the same span. Shape [S]."""

    lengths: NDArray[np.int64]
    """Steps of each trajectory; their sum is S. Shape [P]."""

    final_observations: tuple[Observation, ...]
    """Observations after the last step. Shapes ``[P, *sensor shape]``."""

    final_allowed_actions: NDArray[np.bool_]
    """Action masks after the last step. Shape [P, sum of branches]."""

    final_memories: NDArray[np.float32]
    """Memories after the last step. Shape [P, memory size]."""

    terminated: NDArray[np.bool_]
    """Whether the task ended with the last step. If not, bootstrap. Shape [P]."""

    group_index: GroupIndex | None = None
    """Groups of the trajectories, for learners of groups."""

    ended: NDArray[np.bool_] | None = None
    """Whether the episode ended with the last step, terminated or truncated; otherwise it was only cut. Shape [P]."""

    begun: NDArray[np.bool_] | None = None
    """Whether the episode began with the first step; otherwise an earlier trajectory was cut there. Shape [P]."""

    agents: NDArray[np.int64] | None = None
    """The agent's number: constant over an episode, and unique among simultaneous agents. Shape [P]."""

    def __post_init__(self) -> None:
        if int(self.lengths.sum()) != len(self.rewards):
            raise ValueError(f"lengths {self.lengths.tolist()} do not add up to {len(self.rewards)} steps")
        if len(self.terminated) != len(self.lengths):
            raise ValueError(f"{len(self.terminated)} ends for {len(self.lengths)} trajectories")

    def __len__(self) -> int:
        return len(self.rewards)

    def select(self, segments: NDArray[np.bool_]) -> Trajectories:
        """Returns the selected trajectories. segments: shape [P]."""
        steps = np.repeat(segments, self.lengths)

        def part(name: str, kept: NDArray[np.bool_]) -> Any:
            value = getattr(self, name)
            return tuple(sensor[kept] for sensor in value) if isinstance(value, tuple) else value[kept]

        group_index = self.group_index and GroupIndex(
            self.group_index.ticks[steps],
            self.group_index.final_ticks[segments],
            self.group_index.groups[segments],
            self.group_index.agent_indices[segments],
            self.group_index.earned[steps],
            self.group_index.final_earned[segments],
        )
        of_segments = {name: part(name, segments) for name in _OF_SEGMENTS}
        of_steps = {name: part(name, steps) for name in _OF_STEPS}
        known = {name: getattr(self, name) for name in _OPTIONAL_OF_SEGMENTS}
        optional: dict[str, Any] = {
            name: None if value is None else value[segments] for name, value in known.items()
        }
        return Trajectories(**of_segments, **of_steps, **optional, group_index=group_index)

    @staticmethod
    def concatenate(parts: Sequence[Trajectories]) -> Trajectories:
        """Concatenates the trajectories of several records, in order. Needs at least one record.

        Group trajectories of different records stay different.
        """
        if len(parts) == 1:
            return parts[0]
        joined = _side_by_side(parts)
        if joined.group_index is None:
            return joined
        counts = [
            0 if part.group_index is None else _num_group_trajectories(part.group_index) for part in parts
        ]
        first = np.repeat(np.cumsum([0, *counts[:-1]]), [len(part.lengths) for part in parts])
        return replace(
            joined, group_index=replace(joined.group_index, groups=joined.group_index.groups + first)
        )

    @staticmethod
    def of_same_groups(parts: Sequence[Trajectories]) -> Trajectories:
        """Joins records in which equal group numbers mean the same group. Renumbers groups in their order, from 0."""
        joined = parts[0] if len(parts) == 1 else _side_by_side(parts)
        if joined.group_index is None:
            raise ValueError("the records know of no groups")
        _, first, groups = np.unique(joined.group_index.groups, return_index=True, return_inverse=True)
        return replace(
            joined, group_index=replace(joined.group_index, groups=np.argsort(np.argsort(first))[groups])
        )


_OF_SEGMENTS = (
    "lengths", "final_observations", "final_allowed_actions", "final_memories", "terminated",
)  # fmt: skip
_OPTIONAL_OF_SEGMENTS = ("ended", "begun", "agents")
OPTIONAL = ("group_index", *_OPTIONAL_OF_SEGMENTS)
"""Fields that may be None."""
_OF_STEPS = tuple(
    field.name for field in fields(Trajectories) if field.name not in (*_OF_SEGMENTS, *OPTIONAL)
)


def _num_group_trajectories(group_index: GroupIndex) -> int:
    return int(group_index.groups.max()) + 1 if len(group_index.groups) else 0


def _side_by_side(parts: Sequence[Trajectories]) -> Trajectories:
    joined: dict[str, Any] = {}
    for name in (*_OF_SEGMENTS, *_OF_STEPS):
        columns = [getattr(part, name) for part in parts]
        if isinstance(columns[0], tuple):
            joined[name] = tuple(join_observations(sensor) for sensor in zip(*columns, strict=True))
        else:
            joined[name] = np.concatenate(columns)
    group_indices = [part.group_index for part in parts if part.group_index is not None]
    if group_indices:
        joined["group_index"] = GroupIndex(
            *(
                np.concatenate([getattr(each, field.name) for each in group_indices])
                for field in fields(GroupIndex)
            )
        )
    for name in _OPTIONAL_OF_SEGMENTS:
        known = [value for part in parts if (value := getattr(part, name)) is not None]
        if len(known) == len(parts):
            joined[name] = np.concatenate(known)
    return Trajectories(**joined)


class OnPolicyBuffer:
    """Trajectories collected since the last update. An update drains it; on-policy data serve once."""

    def __init__(self) -> None:
        self._parts: list[Trajectories] = []
        self._steps = 0

    def __len__(self) -> int:
        """The number of steps collected."""
        return self._steps

    def add(self, trajectories: Trajectories) -> None:
        self._parts.append(trajectories)
        self._steps += len(trajectories)

    def peek(self) -> Trajectories | None:
        """Returns all collected trajectories without removing them; None if there are none."""
        if not self._parts:
            return None
        self._parts = [Trajectories.concatenate(self._parts)]
        return self._parts[0]

    def drain(self) -> Trajectories:
        """Returns and removes all collected trajectories, in order of arrival.

        Raises ValueError if there are none.
        """
        if not self._parts:
            raise ValueError("nothing was collected")
        trajectories = Trajectories.concatenate(self._parts)
        self._parts, self._steps = [], 0
        return trajectories


@dataclass(frozen=True, slots=True, eq=False)
class StepRanges:
    """N runs of consecutive steps, among S concatenated steps."""

    starts: Integers
    """First step of each run. Shape [N]."""

    lengths: Integers
    """Steps of each run, at least one. Shape [N]."""

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, order: Integers | slice) -> StepRanges:
        """Returns the selected runs, in this order."""
        return StepRanges(self.starts[order], self.lengths[order])

    def steps(self) -> Integers:
        """Numbers of all their steps, run after run. Shape [sum of lengths]."""
        before = np.cumsum(self.lengths) - self.lengths
        steps: Integers = np.repeat(self.starts - before, self.lengths) + np.arange(self.lengths.sum())
        return steps

    def filled(self) -> NDArray[np.bool_]:
        """Whether each cell is a step, if every run gets a row of the longest length L. Shape [N, L]."""
        filled: NDArray[np.bool_] = np.arange(self.lengths.max()) < self.lengths[:, None]
        return filled


def split_into_sequences(lengths: Integers, longest: int) -> StepRanges:
    """Splits trajectories of these lengths into runs of ``longest`` steps; the last run of each may be shorter."""
    segments = -(-lengths // longest)
    within = np.arange(segments.sum()) - np.repeat(np.cumsum(segments) - segments, segments)
    starts = np.repeat(np.cumsum(lengths) - lengths, segments) + within * longest
    remaining = np.repeat(lengths, segments) - within * longest
    return StepRanges(starts, np.minimum(remaining, longest))
