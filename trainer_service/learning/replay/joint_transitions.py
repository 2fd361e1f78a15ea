"""Replay buffer of joint steps: simultaneous observations, actions and rewards of a group's agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.replay.replay_buffer import NextValues, ReplayBuffer, decision_columns
from trainer_service.learning.replay.ring import FIRST_ROWS, Arrays, observation_arrays
from trainer_service.learning.rollout.joint_steps import find_joint_steps
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.arrays import Bools, Floats32, Rows
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation

_SUMMED = "team_rewards"
"""The column of summed rewards, by its name in saved replay buffers."""


@dataclass(frozen=True, slots=True, eq=False)
class JointSequences:
    """The order of B joint steps: N group trajectories end to end, each in time order."""

    lengths: Rows
    """Joint steps of each group trajectory. Shape [N]; the sum is B."""

    segments: Rows
    """Trajectory number of an agent's decision. It changes when another agent takes the index. [B, n]"""

    memories: Floats32
    """The agent's memory before the first decision of that trajectory. Shape [B, n, memory size]."""

    offsets: Rows
    """Rows from a joint step to the agent's next decision, which has the next observations. If these are final ones:
    rows to the agent's last decision. Shape [B, n]."""

    final: Bools
    """Whether the next observations are the final ones of a trajectory. Shape [B, n]."""

    follow_observations: tuple[Observation, ...]
    """Observations one joint step later, otherwise as JointSample's next ones. [B, n, *sensor shape]"""

    follow_present: Bools
    """Whether the agent has such an observation. Shape [B, n]."""


@dataclass(frozen=True, slots=True, eq=False)
class JointSample:
    """B joint steps of groups with n agents. An absent agent has zeros, and all its choices are allowed."""

    rows: Rows
    """Their rows in the buffer. Shape [B]."""

    weights: Floats32 | None
    """Importance weights, at most 1; None for uniform sampling. Shape [B]."""

    observations: tuple[Observation, ...]
    """Observations of the decisions, one array per sensor. Shapes [B, n, *sensor shape]."""

    next_observations: tuple[Observation, ...]
    """Observations after ``n_step`` joint steps, or an agent's final ones. Shapes as above."""

    present: Bools
    """Whether the agent decided, or still acts upon an earlier decision: then it has the observations and the actions
    of that decision, and no other choice is allowed. With memory or ``follow_agents``: whether it decided. [B, n]"""

    next_present: Bools
    """Whether the agent has a next observation; False if its task ended. Shape [B, n]."""

    continuous_actions: Floats32
    """Shape [B, n, continuous size]."""

    discrete_actions: NDArray[np.int64]
    """Shape [B, n, branches]."""

    allowed_actions: Bools
    """Shape [B, n, sum of branches]."""

    next_allowed_actions: Bools
    """Shape [B, n, sum of branches]."""

    rewards: Floats32
    """Each agent's own and group rewards, discounted and summed over the joint steps. Shape [B, n]."""

    summed_rewards: Floats32
    """All agents' own rewards plus the group's once, discounted and summed over the joint steps. Shape [B]."""

    terminated: Bools
    """Whether the agent's task ended within the joint steps. Shape [B, n]."""

    discounts: Floats32
    """Discounts of the next observations' values: γ to the power of the duration of the joint steps. Shape [B, n]."""

    sequences: JointSequences | None = None
    """The sequences of these joint steps; None if they are sampled individually."""


class _Window(NamedTuple):
    """The joint steps of n-step targets, starting at B rows."""

    at: Rows
    """Row of each agent's last decision in the window; the first row if there is none. [B, n]"""

    end: Rows | None
    """Row of the group's last joint step in the window; None if each agent's own decisions are followed. [B]"""

    rewards: Floats32
    terminated: Bools
    duration: NDArray[np.float64]
    """Duration of these joint steps, see ``JointSteps``; of each agent's own decisions, their number. [B, n]"""


class JointReplay(ReplayBuffer[JointSample]):
    """Replay buffer of the last ``capacity`` joint steps, each a row.

    With ``follow_agents``, the next observation of an agent is that of its own next decision, any number of joint
    steps later. Otherwise the next observations are those of the group's next joint step, agents that join there
    included; an agent that does not decide there has its next or its final observation. The two differ if agents die,
    join, or decide at different times.

    A joint step takes 17 bytes, and for each agent index the bytes of an agent's observations and actions in a
    TransitionReplay and 23 more. Every trajectory also takes its final observation.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        capacity: int,
        *,
        num_agents: int,
        discount: float,
        alpha: float | None = None,
        n_step: int = 1,
        follow_agents: bool = False,
        team: bool = False,
        sensors: Sequence[int] | None = None,
    ) -> None:
        """num_agents: most agents of a group. discount: γ of rewards in n-step targets. alpha: see ReplayBuffer.

        sensors: the stored sensors of the spec, in order; None for all. follow_agents: see the class. team: whether a
        target sums all agents' rewards, for ``single_steps``.
        """
        sensors = range(len(spec.observation_specs)) if sensors is None else tuple(sensors)
        kept = BehaviorSpec(tuple(spec.observation_specs[i] for i in sensors), spec.action_spec)
        steps = _empty_columns(kept, min(FIRST_ROWS, capacity), num_agents)
        super().__init__(capacity, kept, steps, alpha, sensors)
        self._agent_indices = np.arange(num_agents)
        self._discount = discount
        self._n_step = n_step
        self._follow_agents = follow_agents
        self._holds = not follow_agents
        """Whether agents are part of the joint steps between their decisions."""
        self._branches = spec.action_spec.discrete_branches
        self._team = team

    def _write_rows(self, trajectories: Trajectories) -> Rows:
        """Writes complete group trajectories.

        Raises ValueError if trajectories lack a group index, or a group has more than ``num_agents`` agents.
        """
        # In the order of group trajectories, so that no row needs an older trajectory than the rows before it.
        order = np.argsort(_groups_of(trajectories), kind="stable")
        numbers = self._segments + np.argsort(order)
        branches = self._branches if self._holds else None
        steps = _columns_of(trajectories, len(self._agent_indices), numbers, self._sensors, branches)
        finals = self._finals_of(trajectories)
        return self._append(steps, {name: column[order] for name, column in finals.items()})

    def _segment_of(self, row: int) -> int:
        return int(self._steps["oldest"][row])

    def _gather(self, rows: Rows, weights: Floats32 | None) -> JointSample:
        steps = self._steps
        window = self._window(rows, self._n_step)
        successors, next_present = self._successors(window)
        return JointSample(
            rows=rows,
            weights=weights,
            **self._decisions(rows, successors),
            present=steps["present"][rows],
            next_present=next_present,
            allowed_actions=steps["allowed_actions"][rows],
            next_allowed_actions=successors("allowed_actions"),
            rewards=window.rewards,
            summed_rewards=self._summed_rewards(rows),
            terminated=window.terminated,
            discounts=self._discounts(window.duration),
        )

    def _after(self, rows: Rows, agents: Any = None) -> tuple[NextValues, Bools]:
        """Implements ReplayBuffer."""
        steps = self._steps
        to_next = steps["ahead"][rows, agents]
        last = np.flatnonzero(to_next == 0)
        segments = steps["segment"][rows[last], agents[last]]
        successors = self._next_values((self._wrap(rows + to_next), agents), last, segments)
        return successors, steps["terminated"][rows, agents]

    def _steps_ahead(self, rows: Rows, count: int) -> tuple[Rows, Bools, NDArray[np.float64]]:
        """Implements ReplayBuffer. Shapes [count, B, n]."""
        steps, agents = self._steps, self._agent_indices
        at = np.broadcast_to(rows[:, None], (len(rows), len(agents)))
        present, first, going = steps["decides"][rows], steps["segment"][rows], np.ones(at.shape, np.bool_)
        elapsed = np.zeros(at.shape)
        ahead = [(at, present, elapsed)]
        for _ in range(count - 1):
            if self._follow_agents:
                to_next = steps["ahead"][at, agents]
                at, present, elapsed = self._wrap(at + to_next), present & (to_next > 0), elapsed + 1.0
            else:
                going = going & ~steps["last"][at]
                elapsed = elapsed + steps["duration"][at]
                at = np.where(going, self._wrap(at + 1), at)
                present = going & steps["decides"][at, agents]
                if not self._team:
                    present &= steps["segment"][at, agents] == first
            ahead.append((at, present, elapsed))
        rows_ahead, presence, durations = map(np.stack, zip(*ahead, strict=True))
        return rows_ahead, presence, durations

    def _successors(self, window: _Window) -> tuple[NextValues, Bools]:
        """Returns the values at the next steps, [B, n, …], and their presence, [B, n]."""
        next_rows, next_present, finals = self._next_rows(window)
        segments = self._steps["segment"][window.at[finals], finals[1]]
        values_of = self._next_values((next_rows, self._agent_indices), finals, segments)

        def successors(name: str) -> NDArray[Any]:
            values = values_of(name)
            values[~next_present] = name == "allowed_actions"
            return values

        return successors, next_present

    def _window(self, rows: Rows, n_step: int) -> _Window:
        return self._agent_window(rows, n_step) if self._follow_agents else self._group_window(rows, n_step)

    def _next_rows(self, window: _Window) -> tuple[Rows, Bools, tuple[Any, ...]]:
        """Returns rows and presence of the next observations, [B, n] each, and indices of agents with a final one."""
        steps, at, agents = self._steps, window.at, self._agent_indices
        ahead = steps["ahead"][at, agents]
        own = steps["present"][at, agents]
        next_rows = self._wrap(at + ahead)
        joined: Bools = np.zeros_like(own)
        if window.end is not None:
            below = self._wrap(window.end + 1)
            joined = ~steps["last"][window.end][:, None] & steps["present"][below]
            next_rows = np.where(joined, below[:, None], next_rows)
        finals = own & ~joined & (ahead == 0) & ~steps["terminated"][at, agents]
        return next_rows, joined | (own & (ahead > 0)) | finals, np.nonzero(finals)

    def _group_window(self, rows: Rows, n_step: int) -> _Window:
        """The window over the group's joint steps."""
        steps, at = self._steps, rows
        # An agent that does not decide at the window's last joint step is found by its previous decision.
        last = np.broadcast_to(rows[:, None], (len(rows), len(self._agent_indices)))
        first, own = steps["segment"][rows], steps["present"][rows]
        rewards, terminated = steps["task_rewards"][rows], steps["terminated"][rows]
        duration = steps["duration"][rows].astype(np.float64)
        for _ in range(1, n_step):
            going = ~steps["last"][at]
            at = np.where(going, self._wrap(at + 1), at)
            last = np.where(steps["present"][at], at[:, None], last)
            same = going[:, None] & own & (steps["segment"][at] == first)
            discounts = self._discounts(duration)[:, None]
            rewards = rewards + np.where(same, discounts * steps["task_rewards"][at], 0.0)
            terminated = terminated | (same & steps["terminated"][at])
            duration += going * steps["duration"][at]
        duration = np.broadcast_to(duration[:, None], last.shape)
        return _Window(last, at, rewards.astype(np.float32), terminated, duration)

    def _agent_window(self, rows: Rows, n_step: int) -> _Window:
        """The window over each agent's own decisions."""
        steps, agents = self._steps, self._agent_indices
        at = np.broadcast_to(rows[:, None], (len(rows), len(agents)))
        rewards, duration = steps["task_rewards"][rows], np.ones(at.shape)
        going = np.ones(at.shape, np.bool_)
        for offset in range(1, n_step):
            ahead = steps["ahead"][at, agents]
            going = going & (ahead > 0)
            at = np.where(going, self._wrap(at + ahead), at)
            rewards = rewards + np.where(
                going, self._discount**offset * steps["task_rewards"][at, agents], 0.0
            )
            duration += going
        return _Window(at, None, rewards.astype(np.float32), steps["terminated"][at, agents], duration)

    def _summed_rewards(self, rows: Rows) -> Floats32:
        """Discounted sums of the group's rewards, starting at these rows. [B]"""
        steps, at = self._steps, rows
        total, going = steps[_SUMMED][rows], np.ones(len(rows), np.bool_)
        duration = steps["duration"][rows].astype(np.float64)
        for _ in range(1, self._n_step):
            going = going & ~steps["last"][at]
            at = np.where(going, self._wrap(at + 1), at)
            total = total + np.where(going, self._discounts(duration) * steps[_SUMMED][at], 0.0)
            duration += going * steps["duration"][at]
        return total.astype(np.float32)

    def _discounts(self, durations: NDArray[np.float64]) -> Floats32:
        discounts: Floats32 = (self._discount**durations).astype(np.float32)
        return discounts


def _groups_of(trajectories: Trajectories) -> Rows:
    if trajectories.group_index is None:
        raise ValueError("the trajectories do not say which agents acted together")
    return trajectories.group_index.groups


def _columns_of(
    trajectories: Trajectories,
    num_agents: int,
    numbers: Rows,
    sensors: Sequence[int],
    branches: Sequence[int] | None,
) -> Arrays:
    """Columns of all joint steps with decisions, in time order in each trajectory.

    numbers: of trajectories, [P]. branches: choices of each discrete branch, if agents are part of the joint steps
    between their decisions, else None.
    """
    joint_steps = find_joint_steps(trajectories, num_agents)
    in_time = joint_steps.in_time()
    rows_of = np.full(len(joint_steps), -1)
    rows_of[in_time] = np.arange(len(in_time))
    decided = rows_of[joint_steps.of_step]
    last = np.cumsum(trajectories.lengths) - 1
    # A step has a row of its decision, and one of each joint step after that which it lasts.
    spans = np.ones(len(decided), np.int64) if branches is None else joint_steps.spans
    step = np.repeat(np.arange(len(decided)), spans)
    since = np.arange(len(step)) - np.repeat(np.cumsum(spans) - spans, spans)
    rows, agent_indices = decided[step] + since, joint_steps.agent_of_step[step]
    ahead = np.diff(decided, append=0)
    ahead[last] = 0
    terminated = np.zeros(len(step), np.bool_)
    terminated[np.cumsum(spans)[last] - 1] = trajectories.terminated
    allowed = trajectories.allowed_actions[step]
    if branches:
        held = np.flatnonzero(since)
        allowed[held] = _only(trajectories.discrete_actions[step[held]], branches)

    def dense(column: NDArray[Any], absent: Any = 0) -> NDArray[Any]:
        laid = np.full((len(in_time), num_agents, *column.shape[1:]), absent, column.dtype)
        laid[rows, agent_indices] = column
        return laid

    def at_decisions(column: NDArray[Any]) -> NDArray[Any]:
        return dense(np.where(since == 0, column[step], 0))

    group_trajectory = np.repeat(np.arange(len(joint_steps.lengths)), joint_steps.lengths)
    trajectory_of_segment = _groups_of(trajectories)
    oldest = np.full(len(joint_steps.lengths), np.iinfo(np.int64).max)
    np.minimum.at(oldest, trajectory_of_segment, numbers)
    own = at_decisions(trajectories.rewards)
    durations = np.ones(len(joint_steps)) if joint_steps.durations is None else joint_steps.durations
    return {
        **observation_arrays(tuple(dense(trajectories.observations[i][step]) for i in sensors)),
        "present": dense(np.ones(len(rows), np.bool_)),
        "decides": dense(since == 0),
        "continuous_actions": dense(trajectories.continuous_actions[step]),
        "discrete_actions": dense(trajectories.discrete_actions[step]),
        "allowed_actions": dense(allowed, True),
        "task_rewards": own + at_decisions(trajectories.group_rewards),
        _SUMMED: own.sum(axis=1) + joint_steps.group_rewards[in_time],
        "duration": durations[in_time].astype(np.float32),
        "terminated": dense(terminated),
        "segment": dense(np.repeat(numbers, trajectories.lengths)[step], -1),
        "ahead": dense(np.maximum(ahead[step] - since, 0)),
        "oldest": oldest[group_trajectory],
        "last": group_trajectory != np.append(group_trajectory[1:], -1),
    }


def _only(actions: NDArray[np.int64], branches: Sequence[int]) -> Bools:
    """Masks that allow these actions only. Shape [N, sum of branches]."""
    allowed = np.zeros((len(actions), sum(branches)), np.bool_)
    first = np.cumsum([0, *branches[:-1]])
    allowed[np.arange(len(actions))[:, None], first + actions] = True
    return allowed


def _empty_columns(spec: BehaviorSpec, rows: int, num_agents: int) -> Arrays:
    return {
        **decision_columns(spec, rows, num_agents),
        "present": np.empty((rows, num_agents), np.bool_),
        "decides": np.empty((rows, num_agents), np.bool_),
        "task_rewards": np.empty((rows, num_agents), np.float32),
        _SUMMED: np.empty(rows, np.float32),
        "duration": np.empty(rows, np.float32),
        "terminated": np.empty((rows, num_agents), np.bool_),
        "segment": np.empty((rows, num_agents), np.int64),
        "ahead": np.empty((rows, num_agents), np.int64),
        "oldest": np.empty(rows, np.int64),
        "last": np.empty(rows, np.bool_),
    }
