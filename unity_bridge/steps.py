"""One tick of one simulator, as frozen records of arrays. N agents, M of them waiting for an action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unity_bridge.specs import ActionSpec

Observation = NDArray[np.float32] | NDArray[np.uint8]
"""The observation of one sensor. Bytes are pictures that came compressed, and stand for byte/255. They stay bytes, a
quarter of the memory, until a network reads them. A sensor may send bytes in one message and floats in the next."""


Steps = Mapping[str, "StepBatch"]
"""One batch per behavior id that has something to say in a message."""

Actions = Mapping[str, "ActionBatch"]
"""Actions by behavior id, a row for each agent that waits; behaviors may be left out."""


def as_floats(observation: Observation) -> NDArray[np.float32]:
    """Returns the numbers that an observation stands for: bytes as byte/255, floats as they are."""
    if observation.dtype == np.uint8:
        return observation.astype(np.float32) / np.float32(255)
    floats: NDArray[np.float32] = observation.astype(np.float32, copy=False)
    return floats


def join_observations(parts: Sequence[Observation]) -> Observation:
    """One sensor's observations end to end: bytes if all parts are bytes."""
    if all(part.dtype == np.uint8 for part in parts):
        return np.concatenate(parts, dtype=np.uint8)
    return np.concatenate([as_floats(part) for part in parts])


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """Everything that one message says about the agents of one behavior.

    Terminal rows come first, then the rows that wait for an action. The same agent may own one row of each
    kind: its episode ended and its next one began. N changes from tick to tick, and so does the order.
    """

    agent_ids: NDArray[np.int64]
    """Stable for the life of an agent, across its episodes; unique within one simulator. Shape [N]."""

    observations: tuple[Observation, ...]
    """One array per sensor, seen *after* the previous action. Shapes ``[N, *sensor shape]``."""

    rewards: NDArray[np.float32]
    """Since the agent's previous row, in task units. Shape [N]."""

    terminated: NDArray[np.bool_]
    """The task ended here: what follows is worth zero. Shape [N]."""

    truncated: NDArray[np.bool_]
    """The clock ended here, not the task: bootstrap from the observation. Shape [N]."""

    allowed_actions: NDArray[np.bool_]
    """True where a choice is allowed, all branches side by side. Shape [N, sum of branches].

    A scene may leave masks out by the shape [N, 0]: then everything is allowed.
    """

    group_ids: NDArray[np.int64]
    """0 for agents of no group. Shape [N]."""

    group_rewards: NDArray[np.float32]
    """The reward of the agent's group since the agent's previous row. Shape [N]."""

    members: NDArray[np.int64] | None = None
    """The number of each row's member in a heterogeneous group, see ``BehaviorSpec.members``. Shape [N]."""

    num_terminal: int = field(init=False)
    """Rows [0, num_terminal) ended; rows [num_terminal, N) wait for an action."""

    def __post_init__(self) -> None:
        n = len(self.agent_ids)
        # This runs for every tick, so it asks once, and in detail only where something is wrong.
        lengths = {
            len(self.rewards), len(self.terminated), len(self.truncated),
            len(self.allowed_actions), len(self.group_ids), len(self.group_rewards),
        }  # fmt: skip
        if lengths != {n}:
            raise ValueError(self._other_lengths())
        for sensor, observation in enumerate(self.observations):
            if len(observation) != n:
                raise ValueError(f"observation {sensor} has {len(observation)} rows for {n} agents")
        if self.members is not None and len(self.members) != n:
            raise ValueError(f"members has {len(self.members)} rows for {n} agents")
        # Counting is the cheapest question that NumPy answers.
        ended = self.terminated | self.truncated
        num_terminal = np.count_nonzero(ended)
        if num_terminal:
            if np.count_nonzero(self.terminated) + np.count_nonzero(self.truncated) != num_terminal:
                raise ValueError("an agent cannot be both terminated and truncated")
            if np.count_nonzero(ended[:num_terminal]) != num_terminal:
                raise ValueError("terminal rows must come before the rows that wait for an action")
        object.__setattr__(self, "num_terminal", num_terminal)

    def _other_lengths(self) -> str:
        """Returns in words which column has another number of rows than there are agents."""
        n = len(self.agent_ids)
        for name in ("rewards", "terminated", "truncated", "allowed_actions", "group_ids", "group_rewards"):
            if len(getattr(self, name)) != n:
                return f"{name} has {len(getattr(self, name))} rows for {n} agents"
        return ""

    def __len__(self) -> int:
        return len(self.agent_ids)


def join_batches(
    batches: Sequence[StepBatch],
    observations: Sequence[Observation],
    allowed_actions: NDArray[np.bool_],
    members: NDArray[np.int64] | None = None,
) -> StepBatch:
    """Joins one tick's batches of several behaviors: terminal rows of one after the other, then waiting ones.

    observations, allowed_actions, members: as behaviors may differ in them, those of all rows of the batches, end to
    end. Shapes ``[N, …]``, [N, choices], [N].
    """
    starts = np.cumsum([0, *map(len, batches)])[:-1].tolist()
    each = list(zip(starts, batches, strict=True))
    ended = [start + np.arange(batch.num_terminal) for start, batch in each]
    waiting = [start + np.arange(batch.num_terminal, len(batch)) for start, batch in each]
    order = np.concatenate([*ended, *waiting])
    return StepBatch(
        agent_ids=np.concatenate([batch.agent_ids for batch in batches])[order],
        observations=tuple(observation[order] for observation in observations),
        rewards=np.concatenate([batch.rewards for batch in batches])[order],
        terminated=np.concatenate([batch.terminated for batch in batches])[order],
        truncated=np.concatenate([batch.truncated for batch in batches])[order],
        allowed_actions=allowed_actions[order],
        group_ids=np.concatenate([batch.group_ids for batch in batches])[order],
        group_rewards=np.concatenate([batch.group_rewards for batch in batches])[order],
        members=None if members is None else members[order],
    )


@dataclass(frozen=True, slots=True, eq=False)
class ActionBatch:
    """Actions for the waiting rows of a StepBatch, in their order, as they go over the wire."""

    continuous: NDArray[np.float32]
    """Nominally in [−1, 1]. Shape [M, continuous size]."""

    discrete: NDArray[np.int32]
    """One index per branch. Shape [M, branches]."""

    def __post_init__(self) -> None:
        if len(self.continuous) != len(self.discrete):
            raise ValueError(f"{len(self.continuous)} continuous and {len(self.discrete)} discrete rows")

    def __len__(self) -> int:
        return len(self.continuous)

    def rows(self, at: NDArray[np.int64]) -> ActionBatch:
        """Returns the actions of some of the rows."""
        return ActionBatch(self.continuous[at], self.discrete[at])

    @staticmethod
    def zeros(rows: int, spec: ActionSpec) -> ActionBatch:
        """Returns zeros, the action of an agent that the trainer does not answer for."""
        return ActionBatch(
            np.zeros((rows, spec.continuous_size), np.float32), np.zeros((rows, spec.discrete_size), np.int32)
        )


def first_allowed(batch: StepBatch, spec: ActionSpec) -> ActionBatch:
    """Actions for every waiting agent: zero, and of each branch the first choice that is allowed."""
    waiting = batch.allowed_actions[batch.num_terminal :]
    actions = ActionBatch.zeros(len(waiting), spec)
    begin = 0
    for branch, choices in enumerate(spec.discrete_branches if waiting.shape[1] else ()):
        actions.discrete[:, branch] = waiting[:, begin : begin + choices].argmax(axis=1)
        begin += choices
    return actions
