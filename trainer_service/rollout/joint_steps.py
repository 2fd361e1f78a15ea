"""Joint steps: what a group saw and did at the same time, found in trajectories that lie agent by agent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.arrays import Integers


@dataclass(frozen=True, slots=True, eq=False)
class JointSteps:
    """F joint steps of G group trajectories, in time within each group trajectory; n agents in a group.

    A joint step is when agents of a group decided, or when what follows their last decision was seen. Where an agent
    left and another got its index at once, there are two: one with the agent that decides, one with that which left. An
    observation is referred to by a number: i for what was seen at step i (of S), S + p for the final observation of
    trajectory p.
    """

    members: Integers
    """Each agent's observation: a number as above, −1 where there was none. Shape [F, n]."""

    steps: Integers
    """The step that was decided at each agent index, −1 where none was. Shape [F, n]."""

    of_step: Integers
    """The joint step of each step. Shape [S]."""

    agent_of_step: Integers
    """The index of each step's agent. Shape [S]."""

    of_final: Integers
    """The joint step of each trajectory's final observation; −1 where its episode was over. Shape [P]."""

    agent_of_segment: Integers
    """The index of each trajectory's agent. Shape [P]."""

    first: Integers
    """Each group trajectory's first joint step. Shape [G]."""

    lengths: Integers
    """Joint steps with decisions of each group trajectory; they come first, and the one that follows, if any, last.
    Shape [G]."""

    last: Integers
    """The joint step after its last decision, to bootstrap from; −1 where all was over. Shape [G]."""

    def __len__(self) -> int:
        return len(self.members)

    def in_time(self) -> Integers:
        """The joint steps with decisions, one group trajectory after the other. Shape [sum of lengths]."""
        starts = np.repeat(self.first - (np.cumsum(self.lengths) - self.lengths), self.lengths)
        in_time: Integers = starts + np.arange(int(self.lengths.sum()))
        return in_time


def find_joint_steps(trajectories: Trajectories, num_agents: int) -> JointSteps:
    """Finds the joint steps of group trajectories.

    Args:
        trajectories: complete group trajectories, as the assembler hands them out by group.
        num_agents: n, at least the largest agent index + 1.

    Raises:
        ValueError: the trajectories know of no groups, or of larger ones.
    """
    group_index = trajectories.group_index
    if group_index is None:
        raise ValueError("the trajectories do not say which agents acted together")
    if len(group_index.agent_indices) and int(group_index.agent_indices.max()) >= num_agents:
        raise ValueError(
            f"a group of {int(group_index.agent_indices.max()) + 1} agents came, {num_agents} were expected"
        )
    lengths, steps = trajectories.lengths, len(trajectories)
    agent_of_step = np.repeat(group_index.agent_indices, lengths)
    group_of_step = np.repeat(group_index.groups, lengths)
    goes_on = np.flatnonzero(~trajectories.terminated)
    agents_left = group_index.agent_indices[goes_on]
    groups = np.concatenate([group_of_step, group_index.groups[goes_on]])
    ticks = np.concatenate([group_index.ticks, group_index.final_ticks[goes_on]])
    decides = np.arange(len(groups)) < steps
    # One number per joint step that sorts by group trajectory, then by time; odd ones are for those whose place was
    # taken at once.
    start = ticks.min(initial=0)
    keys = 2 * (groups * (ticks.max(initial=0) - start + 1) + (ticks - start))
    replaced = np.isin(keys[steps:] * num_agents + agents_left, keys[:steps] * num_agents + agent_of_step)
    left_at = keys[steps:][replaced]
    keys[steps:] += replaced
    unique_keys, at, joint_step = np.unique(keys, return_index=True, return_inverse=True)
    has_decisions = np.zeros(len(at), np.bool_)
    has_decisions[joint_step[decides]] = True
    # Joint steps without decisions go to the end of their group trajectory: usually there is at most one, the last.
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
    num_trajectories = int(group_index.groups.max()) + 1 if len(group_index.groups) else 0
    joint_steps_of = np.bincount(groups[at], minlength=num_trajectories)
    decisions_of = np.bincount(groups[at][has_decisions], minlength=num_trajectories)
    first = np.cumsum(joint_steps_of) - joint_steps_of
    final = first + joint_steps_of - 1
    follows = (joint_steps_of > decisions_of) & (ticks[at][final] > ticks[at][first + decisions_of - 1])
    last = np.where(follows, final, -1)
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
    )
