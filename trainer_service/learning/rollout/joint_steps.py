"""Joint steps of groups: simultaneous steps of agents, found in per-agent trajectories."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.trajectories import GroupIndex, Trajectories
from unity_bridge.arrays import Integers
from unity_bridge.steps import as_floats


@dataclass(frozen=True, slots=True, eq=False)
class JointSteps:
    """F joint steps of G group trajectories, in time order within each of them; n agents in a group.

    A joint step is a tick at which agents of a group decided, or at which a final observation arrived. If an agent
    left and another got its index in the same tick, there are two joint steps: one with the deciding agent, one with
    the agent that left. An observation number is i for the observation of step i (of S), S + p for the final
    observation of trajectory p.
    """

    members: Integers
    """Number of each agent's observation, as above; −1 without an observation. Shape [F, n]."""

    steps: Integers
    """The step with the decision of each agent index; −1 without a decision. Shape [F, n]."""

    of_step: Integers
    """The joint step of each step. Shape [S]."""

    agent_of_step: Integers
    """The index of each step's agent. Shape [S]."""

    of_final: Integers
    """The joint step of each trajectory's final observation; −1 if its episode was over. Shape [P]."""

    agent_of_segment: Integers
    """The index of each trajectory's agent. Shape [P]."""

    first: Integers
    """Each group trajectory's first joint step. Shape [G]."""

    lengths: Integers
    """Joint steps with decisions in each group trajectory. They are first; a following one is last. Shape [G]."""

    last: Integers
    """The joint step after the last decision, to bootstrap from; −1 if all episodes were over. Shape [G]."""

    group_rewards: NDArray[np.float32]
    """The group's reward until the next joint step, as its clock says; 0 without a decision. Shape [F]."""

    spans: Integers
    """Joint steps with decisions from each step to its agent's next decision or end. Shape [S]."""

    durations: NDArray[np.float64] | None
    """The part of an agent's step that each joint step lasts, as the mean over the members that act meanwhile: ½ if two
    members decide in turn. γ counts once for 1. None if all are 1, since all members decide at once. Shape [F]."""

    def __len__(self) -> int:
        return len(self.members)

    def in_time(self) -> Integers:
        """The joint steps with decisions, group trajectory after group trajectory. Shape [sum of lengths]."""
        starts = np.repeat(self.first - (np.cumsum(self.lengths) - self.lengths), self.lengths)
        in_time: Integers = starts + np.arange(int(self.lengths.sum()))
        return in_time


def find_joint_steps(trajectories: Trajectories, num_agents: int) -> JointSteps:
    """Finds the joint steps of group trajectories.

    Args:
        trajectories: complete group trajectories, as returned by an assembler with ``by_group``.
        num_agents: n, at least the largest agent index + 1.

    Raises:
        ValueError: The trajectories have no group index, or a group is larger.
    """
    group_index = _required_index(trajectories, num_agents)
    lengths, steps = trajectories.lengths, len(trajectories)
    agent_of_step = np.repeat(group_index.agent_indices, lengths)
    group_of_step = np.repeat(group_index.groups, lengths)
    goes_on = np.flatnonzero(~trajectories.terminated)
    agents_left = group_index.agent_indices[goes_on]
    groups = np.concatenate([group_of_step, group_index.groups[goes_on]])
    ticks = np.concatenate([group_index.ticks, group_index.final_ticks[goes_on]])
    decides = np.arange(len(groups)) < steps
    # One number per joint step, sorted by group trajectory, then by time. Odd numbers are for agents whose index was
    # reused at once.
    start = ticks.min(initial=0)
    span = ticks.max(initial=0) - start + 1
    keys = 2 * (groups * span + (ticks - start))
    replaced = np.isin(keys[steps:] * num_agents + agents_left, keys[:steps] * num_agents + agent_of_step)
    left_at = keys[steps:][replaced]
    keys[steps:] += replaced
    unique_keys, at, joint_step = np.unique(keys, return_index=True, return_inverse=True)
    has_decisions = np.zeros(len(at), np.bool_)
    has_decisions[joint_step[decides]] = True
    # Joint steps without decisions move to the end of their group trajectory. Usually there is at most one, the last.
    order = np.lexsort((ticks[at], ~has_decisions, groups[at]))
    at, has_decisions = at[order], has_decisions[order]
    position = np.argsort(order)
    joint_step = position[joint_step]
    of_final = np.full(len(lengths), -1)
    of_final[goes_on] = joint_step[steps:]
    decided = np.full((len(at), num_agents), -1)
    decided[joint_step[:steps], agent_of_step] = np.arange(steps)
    members = decided.copy()
    members[joint_step[steps:], agents_left] = steps + goes_on
    again = joint_step[steps:][replaced]
    others = members[position[np.searchsorted(unique_keys, left_at)]]
    members[again] = np.where(members[again] < 0, others, members[again])
    num_trajectories = int(group_index.groups.max(initial=-1)) + 1
    joint_steps_of = np.bincount(groups[at], minlength=num_trajectories)
    decisions_of = np.bincount(groups[at][has_decisions], minlength=num_trajectories)
    first = np.cumsum(joint_steps_of) - joint_steps_of
    last_ticks = ticks[at][first + decisions_of - 1]
    ends, is_cut = _ends(trajectories, group_index, last_ticks)
    # Members of a cut group may report one after the other. The first that does so is followed by the next trajectory.
    final = np.where(is_cut, of_final[ends], first + joint_steps_of - 1)
    last = np.where((joint_steps_of > decisions_of) & (ticks[at][final] > last_ticks), final, -1)
    in_time = np.flatnonzero(has_decisions)
    return JointSteps(
        members,
        decided,
        joint_step[:steps],
        agent_of_step,
        of_final,
        group_index.agent_indices,
        first,
        decisions_of,
        last,
        *_rewards_and_durations(
            trajectories, group_index, joint_step[:steps], groups[at], ticks[at], in_time, ends
        ),
    )


def _required_index(trajectories: Trajectories, num_agents: int) -> GroupIndex:
    group_index = trajectories.group_index
    if group_index is None:
        raise ValueError("the trajectories do not say which agents acted together")
    largest = int(group_index.agent_indices.max(initial=-1)) + 1
    if largest > num_agents:
        raise ValueError(f"got a group of {largest} agents, expected at most {num_agents}")
    return group_index


def _ends(
    trajectories: Trajectories, group_index: GroupIndex, last_ticks: Integers
) -> tuple[Integers, NDArray[np.bool_]]:
    """Returns the trajectory with which each group trajectory ends, and whether the group's episode continues.

    It is the latest; of a cut group, the earliest that was cut after the last decision. last_ticks: of the decisions,
    [G]. Shapes [G].
    """
    groups, ticks = group_index.groups, group_index.final_ticks
    ends, is_cut = np.zeros(len(last_ticks), np.int64), np.zeros(len(last_ticks), np.bool_)
    in_order = np.argsort(ticks, kind="stable")
    ends[groups[in_order]] = in_order  # of several, the last one counts
    if trajectories.ended is not None:
        cut = in_order[::-1]
        cut = cut[~trajectories.ended[cut] & (ticks[cut] > last_ticks[groups[cut]])]
        ends[groups[cut]], is_cut[groups[cut]] = cut, True
    return ends, is_cut


def _rewards_and_durations(
    trajectories: Trajectories,
    group_index: GroupIndex,
    of_step: Integers,
    groups: Integers,
    ticks: Integers,
    in_time: Integers,
    ends: Integers,
) -> tuple[NDArray[np.float32], Integers, NDArray[np.float64] | None]:
    """Returns ``group_rewards``, ``spans`` and ``durations`` of joint steps.

    of_step: as in JointSteps, [S]. groups, ticks: of the joint steps, [F]. in_time: those with decisions, R rows. ends:
    the trajectories with which the group trajectories end, [G].
    """
    count, rows = len(groups), len(in_time)
    group, tick = groups[in_time], ticks[in_time]
    is_last = np.append(group[1:] != group[:-1], True)

    def following(values: NDArray[Any], final: NDArray[Any]) -> NDArray[Any]:
        """The values of the next rows. final: the values after the last row of each group trajectory, [G]."""
        return np.where(is_last, final[group], np.append(values[1:], values[:1]))

    clocks = np.empty(count)
    clocks[of_step] = group_index.earned
    earned = following(clocks[in_time], group_index.final_earned[ends]) - clocks[in_time]
    members = np.maximum(np.bincount(of_step, minlength=count), 1)
    # An agent without a group is alone.
    alone = np.bincount(of_step, trajectories.group_rewards, count) / members
    group_rewards = np.zeros(count, np.float32)
    group_rewards[in_time] = np.where(np.isnan(earned), alone[in_time], earned)

    row_of = np.zeros(count, np.int64)
    row_of[in_time] = np.arange(rows)
    row, last = row_of[of_step], np.cumsum(trajectories.lengths) - 1
    next_row, next_tick = np.append(row[1:], 0), np.append(group_index.ticks[1:], 0)
    next_tick[last] = group_index.final_ticks
    start = tick.min(initial=0)
    span = int(next_tick.max(initial=0)) - start + 1
    next_row[last] = np.searchsorted(
        group * span + tick - start, group_index.groups * span + next_tick[last] - start
    )
    until = following(tick, group_index.final_ticks[ends])
    if (next_tick == until[row]).all():
        return group_rewards, next_row - row, None
    rate = 1.0 / (next_tick - group_index.ticks)
    acting = np.cumsum(np.bincount(row, minlength=rows + 1) - np.bincount(next_row, minlength=rows + 1))
    rates = np.cumsum(np.bincount(row, rate, rows + 1) - np.bincount(next_row, rate, rows + 1))
    # An agent may leave between two joint steps.
    beyond = np.maximum(until[next_row - 1] - next_tick, 0)
    parts = (until - tick) * rates[:rows] - np.bincount(next_row - 1, beyond * rate, rows)
    durations = np.ones(count)
    durations[in_time] = parts / acting[:rows]
    return group_rewards, next_row - row, durations


def split_group_trajectories(trajectories: Trajectories, num_agents: int, longest: int) -> Trajectories:
    """Cuts group trajectories of more than ``longest`` joint steps, at the same joint step for all agents.

    Agents that leave and join again can make a group trajectory longer than any segment. num_agents: see
    find_joint_steps.
    """
    group_index = trajectories.group_index
    if group_index is None or not _may_be_longer(group_index, trajectories.lengths, longest):
        return trajectories
    joint_steps = find_joint_steps(trajectories, num_agents)
    segments = np.repeat(np.arange(len(trajectories.lengths)), trajectories.lengths)
    groups = group_index.groups[segments]
    parts = (joint_steps.of_step - joint_steps.first[groups]) // longest
    starts = np.flatnonzero((np.diff(segments, prepend=-1) != 0) | (np.diff(parts, prepend=-1) != 0))
    ends, source = np.append(starts[1:], len(segments)), segments[starts]
    cut = np.append(source[1:] == source[:-1], False)

    def finals(of_segments: NDArray[Any], of_steps: NDArray[Any]) -> NDArray[Any]:
        """Returns the value after each part. If the part was cut, it is the value of the agent's next step."""
        found, following = of_segments[source], of_steps[ends[cut]]
        if found.dtype != following.dtype:
            found, following = as_floats(found), as_floats(following)
        found[cut] = following
        return found

    _, numbers = np.unique(groups * (int(parts.max()) + 1) + parts, return_inverse=True)
    ended = trajectories.ended
    return replace(
        trajectories,
        lengths=ends - starts,
        final_observations=tuple(map(finals, trajectories.final_observations, trajectories.observations)),
        final_allowed_actions=finals(trajectories.final_allowed_actions, trajectories.allowed_actions),
        final_memories=finals(trajectories.final_memories, trajectories.memories),
        terminated=trajectories.terminated[source] & ~cut,
        group_index=GroupIndex(
            group_index.ticks,
            finals(group_index.final_ticks, group_index.ticks),
            numbers[starts],
            group_index.agent_indices[source],
            group_index.earned,
            finals(group_index.final_earned, group_index.earned),
        ),
        ended=None if ended is None else ended[source] & ~cut,
    )


def _may_be_longer(group_index: GroupIndex, lengths: Integers, longest: int) -> bool:
    """Whether a group trajectory spans more ticks than ``longest``."""
    if not len(lengths):
        return False
    groups = np.repeat(group_index.groups, lengths)
    first = np.full(int(groups.max()) + 1, np.iinfo(np.int64).max)
    last = np.zeros(len(first), np.int64)
    np.minimum.at(first, groups, group_index.ticks)
    np.maximum.at(last, groups, group_index.ticks)
    return bool((last - first >= longest).any())
