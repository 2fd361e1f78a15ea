"""Joint steps of a rollout of groups: their advantages, and minibatches of them.

S steps of P trajectories, at F joint steps of G group trajectories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.learning.algorithms.common.on_policy.rollout import (
    GroupRollout,
    MinibatchSampler,
    minibatch_slices,
)
from trainer_service.learning.networks.shard import SINGLE_RANK, Shard
from trainer_service.learning.rewards import RewardSource
from trainer_service.learning.rollout.joint_steps import JointSteps
from trainer_service.ops.returns import ragged_generalized_advantage
from unity_bridge.arrays import AnyFloats


class CriticTargets(NamedTuple):
    """Advantages and targets of a critic for a rollout."""

    advantages: Tensor
    """[S]"""

    targets: Tensor
    """Returns for the critic to learn. Shape: see the algorithm."""

    mask: Tensor
    """Whether there is a target. bool"""

    old_values: Tensor
    """Values before the update."""

    clip_range: Tensor
    """Clip range of values, by signal. [signals]"""

    metrics: Mapping[str, float]

    actions: Tensor | None = None
    """One-hot actions of the old values, for a critic of actions: [S + P, A]."""

    def returns(self, indices: Tensor) -> Tensor:
        """Returns of some joint steps, one for each agent with a target, concatenated. [targets, signals]"""
        mask = self.mask[indices]
        return self.targets[indices].expand(*mask.shape, -1)[mask]


class AdvantageEstimate(NamedTuple):
    """Advantages and the critic's returns."""

    advantages: AnyFloats
    """[S, signals]"""

    returns: AnyFloats
    """Targets of the critic, valid where ``mask``: [F, members, signals]."""

    mask: NDArray[np.bool_]
    """[F, members]"""


def individual_advantages(
    rollout: GroupRollout, sources: Sequence[RewardSource], values: AnyFloats, *, gae_lambda: float
) -> AdvantageEstimate:
    """Every agent's own advantages, by a central critic.

    values: of every joint step and agent, [F, n, signals].
    """
    joint_steps, trajectories = rollout.joint_steps, rollout.trajectories
    step_values = values[joint_steps.of_step, joint_steps.agent_of_step]
    next_values = values[joint_steps.of_final, joint_steps.agent_of_segment]
    next_values[joint_steps.of_final < 0] = 0.0
    # There is no observation after the end, so the last observation before it is used.
    goes_on = np.array([source.ignores_end for source in sources])
    last_values = step_values[np.cumsum(trajectories.lengths) - 1]
    next_values = np.where(trajectories.terminated[:, None] & goes_on, last_values, next_values)
    advantages = ragged_generalized_advantage(
        rollout.rewards,
        step_values,
        next_values,
        trajectories.lengths,
        discount=np.array([source.gamma for source in sources]),
        gae_lambda=gae_lambda,
    )
    returns = np.zeros_like(values)
    returns[joint_steps.of_step, joint_steps.agent_of_step] = advantages + step_values
    return AdvantageEstimate(advantages, returns, joint_steps.steps >= 0)


def group_advantages(
    rollout: GroupRollout, sources: Sequence[RewardSource], values: AnyFloats, *, gae_lambda: float
) -> AdvantageEstimate:
    """The group's advantages. All rewards count for all agents, so those of a joint step have equal advantages.

    A group reward counts once for any number of agents. An agent that died early is credited for later rewards of the
    other agents. values: of every joint step, [F, 1, signals].
    """
    joint_steps = rollout.joint_steps
    in_time, joint_values = joint_steps.in_time(), values[:, 0]
    joint_rewards = _sum_rewards(rollout).astype(values.dtype)
    goes_on = np.array([source.ignores_end for source in sources])
    last_values = joint_values[joint_steps.first + joint_steps.lengths - 1]
    at_end = np.where(goes_on, last_values, np.zeros_like(last_values))
    advantages = np.zeros((len(joint_steps), len(sources)), values.dtype)
    advantages[in_time] = ragged_generalized_advantage(
        joint_rewards[in_time],
        joint_values[in_time],
        np.where(joint_steps.last[:, None] >= 0, joint_values[joint_steps.last], at_end),
        joint_steps.lengths,
        discount=np.array([source.gamma for source in sources]),
        gae_lambda=gae_lambda,
        durations=None if joint_steps.durations is None else joint_steps.durations[in_time],
    )
    mask = np.zeros((len(joint_steps), 1), np.bool_)
    mask[in_time] = True
    return AdvantageEstimate(advantages[joint_steps.of_step], advantages[:, None] + values, mask)


def _sum_rewards(rollout: GroupRollout) -> AnyFloats:
    """Rewards of the group at each joint step: all agents' own, plus the group reward once. Shape [F, signals]."""
    of_step, count = rollout.joint_steps.of_step, len(rollout.joint_steps)
    own = [np.bincount(of_step, column, count) for column in rollout.own_rewards.T]
    return np.stack(own, axis=1) + rollout.group_rewards


class JointStepBatch(NamedTuple):
    """Some joint steps of a rollout, for one gradient step of a critic."""

    indices: Tensor
    """The joint steps; with several learner ranks, this rank's. int64 [B]"""

    filled: Tensor | None
    """Whole group trajectories for a critic with memory: True for existing joint steps. bool [Q, L]"""

    all_indices: Tensor
    """The joint steps of all ranks. int64"""

    copies: int = 1
    """Number of ranks with the same joint steps, if these were too few to be divided; otherwise 1."""

    @property
    def undivided(self) -> bool:
        """Whether this rank has all its joint steps."""
        return self.indices is self.all_indices

    def share(self, mask: Tensor | None = None) -> float:
        """The weight of a mean over this rank's numbers in the mean over all ranks.

        mask: whether each number of a joint step counts, [F, …]; None for one number per joint step.
        """
        if self.undivided:
            return 1.0 / self.copies
        if mask is None:
            return len(self.indices) / len(self.all_indices)
        return int(mask[self.indices].sum()) / int(mask[self.all_indices].sum())


def joint_step_batches(
    joint_steps: JointSteps, sampler: MinibatchSampler, generator: torch.Generator
) -> list[JointStepBatch]:
    """One epoch over all joint steps with decisions, in random order; with memory whole group trajectories.

    Their number is about the sampler's number of minibatches.
    """
    count, device, shard = (
        len(minibatch_slices(sampler.steps, sampler.batch_size)),
        sampler.device,
        sampler.shard,
    )
    if sampler.sequences is not None:
        order = torch.randperm(len(joint_steps.lengths), generator=generator).numpy()
        return [
            group_trajectory_batch(joint_steps, chosen, joint_steps.lengths[chosen], device, shard)
            for chosen in np.array_split(order, min(count, len(order)))
        ]
    in_time = torch.from_numpy(joint_steps.in_time())
    shuffled = in_time[torch.randperm(len(in_time), generator=generator)].to(device)
    batches = []
    for chunk in torch.tensor_split(shuffled, min(count, len(shuffled))):
        part = shard.part(len(chunk))
        own = chunk if shard.world == 1 or part.copies > 1 else chunk[part.rows]
        batches.append(JointStepBatch(own, None, chunk, part.copies))
    return batches


def all_joint_steps(joint_steps: JointSteps, device: torch.device) -> JointStepBatch:
    """All joint steps as one batch, including joint steps that only follow a group trajectory."""
    lengths = np.diff(np.append(joint_steps.first, len(joint_steps)))
    return group_trajectory_batch(joint_steps, np.arange(len(lengths)), lengths, device)


def group_trajectory_batch(
    joint_steps: JointSteps,
    chosen: NDArray[np.int64],
    lengths: NDArray[np.int64],
    device: torch.device,
    shard: Shard = SINGLE_RANK,
) -> JointStepBatch:
    """The first joint steps of some group trajectories. lengths: their number in each."""
    part = shard.part(len(chosen))
    whole = _first_joint_steps(joint_steps, chosen, lengths, device)
    if shard.world == 1 or part.copies > 1:
        return JointStepBatch(*whole, whole[0], part.copies)
    own = _first_joint_steps(joint_steps, chosen[part.rows], lengths[part.rows], device)
    return JointStepBatch(*own, whole[0])


def _first_joint_steps(
    joint_steps: JointSteps, chosen: NDArray[np.int64], lengths: NDArray[np.int64], device: torch.device
) -> tuple[Tensor, Tensor]:
    """``indices`` and ``filled`` of a batch."""
    filled = np.arange(int(lengths.max(initial=0))) < lengths[:, None]
    indices = (joint_steps.first[chosen][:, None] + np.arange(filled.shape[1]))[filled]
    return torch.from_numpy(indices).to(device), torch.from_numpy(filled).to(device)


def referenced_observations(observations: Sequence[Tensor], members: Tensor) -> tuple[list[Tensor], Tensor]:
    """Returns the observations of these joint steps, and their new numbers, so that no others are encoded."""
    numbers = members.flatten()
    present = numbers >= 0
    new_numbers = torch.full_like(numbers, -1)
    new_numbers[present] = torch.arange(int(present.sum()), device=members.device)
    return [sensor[numbers[present]] for sensor in observations], new_numbers.view(members.shape)
