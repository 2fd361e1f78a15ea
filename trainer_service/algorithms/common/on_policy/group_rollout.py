"""The experience of groups, ready to be learned from.

S steps of P trajectories, at F joint steps of G group trajectories.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.ops.returns import ragged_generalized_advantage
from trainer_service.rewards import RewardSource
from trainer_service.rollout.joint_steps import JointSteps
from trainer_service.rollout.trajectories import Trajectories

Floats = NDArray[np.floating[Any]]


class GroupRollout(NamedTuple):
    """Everything collected for one update."""

    trajectories: Trajectories
    joint_steps: JointSteps

    observations: Sequence[Tensor]
    """Normalized: of all steps, then of all trajectories' ends; one per sensor. Shapes [S + P, …]."""

    rewards: Sequence[NDArray[np.float32]]
    """Of each source, its strength included. Shapes [S]."""

    common_rewards: Sequence[NDArray[np.float32]]
    """The part of them that every member of the group got, and that the group got once. Shapes [S]."""

    continuous_actions: Tensor
    discrete_actions: Tensor
    allowed_actions: Tensor
    old_log_prob: Tensor

    @property
    def own_observations(self) -> list[Tensor]:
        """Of the steps alone. Shapes [S, …]."""
        steps = len(self.trajectories)
        return [sensor[:steps] for sensor in self.observations]


class CriticTargets(NamedTuple):
    """What the critic made of a rollout."""

    advantages: Tensor
    """[S]"""

    targets: Tensor
    """What the critic shall learn, in its units where it has some of its own: see the method."""

    known: Tensor
    """Where there is a target. bool"""

    old_values: Tensor
    """What it said before it learned."""

    clip_range: Tensor
    """How far values may move from that, by signal. [signals]"""

    metrics: Mapping[str, float]

    actions: Tensor | None = None
    """What everyone did as the values above were asked about it, where they are: one-hot, [S + P, A]."""


class AdvantageEstimate(NamedTuple):
    """Advantages, and what they and the values add up to."""

    advantages: Floats
    """[S, signals]"""

    returns: Floats
    """What the critic learns: [F, members, signals], of use where ``known``."""

    known: NDArray[np.bool_]
    """[F, members]"""


def individual_advantages(
    rollout: GroupRollout, sources: Sequence[RewardSource], values: Floats, *, gae_lambda: float
) -> AdvantageEstimate:
    """Every agent's own advantages, eq. 16 of Schulman et al. 2016 (arXiv:1506.02438), by a critic of all.

    values: of every joint step and agent, [F, n, signals].
    """
    joint_steps, trajectories = rollout.joint_steps, rollout.trajectories
    of_steps = values[joint_steps.of_step, joint_steps.agent_of_step]
    bootstrap = values[joint_steps.of_final, joint_steps.agent_of_segment]
    bootstrap[joint_steps.of_final < 0] = 0.0
    ends = np.cumsum(trajectories.lengths) - 1
    advantages = np.empty_like(of_steps)
    for signal, (source, rewards) in enumerate(zip(sources, rollout.rewards, strict=True)):
        follows = bootstrap[:, signal]
        if source.ignores_end:
            # Nothing was seen after the end; what was seen before it stands for that.
            follows = np.where(trajectories.terminated, of_steps[ends, signal], follows)
        advantages[:, signal] = ragged_generalized_advantage(
            rewards,
            of_steps[:, signal],
            follows,
            trajectories.lengths,
            discount=source.gamma,
            gae_lambda=gae_lambda,
        )
    returns = np.zeros_like(values)
    returns[joint_steps.of_step, joint_steps.agent_of_step] = advantages + of_steps
    return AdvantageEstimate(advantages, returns, joint_steps.steps >= 0)


def group_advantages(
    rollout: GroupRollout, sources: Sequence[RewardSource], values: Floats, *, gae_lambda: float
) -> AdvantageEstimate:
    """The group's advantages, the same for all who decided at a joint step: everyone's rewards count for everyone.

    A reward of the group counts once, however many are there to hear of it. Who died early is credited for what the
    others earn after that. values: of every joint step, [F, 1, signals].
    """
    joint_steps = rollout.joint_steps
    in_time = joint_steps.in_time()
    of_group = np.zeros((len(joint_steps), len(sources)), values.dtype)
    everything = zip(sources, rollout.rewards, rollout.common_rewards, strict=True)
    for signal, (source, rewards, common) in enumerate(everything):
        earned = _earned(joint_steps, rewards, common).astype(values.dtype)
        now = values[:, 0, signal]
        follows = np.where(joint_steps.last >= 0, now[joint_steps.last], 0.0)
        if source.ignores_end:
            follows = np.where(
                joint_steps.last >= 0, follows, now[joint_steps.first + joint_steps.lengths - 1]
            )
        of_group[in_time, signal] = ragged_generalized_advantage(
            earned[in_time],
            now[in_time],
            follows.astype(values.dtype),
            joint_steps.lengths,
            discount=source.gamma,
            gae_lambda=gae_lambda,
        )
    known = np.zeros((len(joint_steps), 1), np.bool_)
    known[in_time] = True
    return AdvantageEstimate(of_group[joint_steps.of_step], of_group[:, None] + values, known)


def _earned(joint_steps: JointSteps, rewards: Floats, common: Floats) -> Floats:
    """What the group got at each joint step: everyone's own, and once what all of them got. [S] and [S] to [F]"""

    def total(column: Floats) -> Floats:
        summed = np.bincount(joint_steps.of_step, weights=column, minlength=len(joint_steps))
        return summed.astype(np.float64)

    return total(rewards - common) + total(common) / np.maximum(total(np.ones_like(common)), 1.0)


class JointStepBatch(NamedTuple):
    """Some joint steps of a rollout, for one gradient step of a critic."""

    indices: Tensor
    """Which joint steps. int64 [B]"""

    filled: Tensor | None
    """How they follow each other, for a critic with memory: whole group trajectories. bool [Q, L]"""


def joint_step_batches(
    joint_steps: JointSteps, count: int, generator: torch.Generator, *, whole_trajectories: bool
) -> Iterator[JointStepBatch]:
    """One epoch over all joint steps with decisions, in about ``count`` parts, in random order."""
    device = generator.device
    if whole_trajectories:
        order = torch.randperm(len(joint_steps.lengths), generator=generator, device=device).cpu().numpy()
        for some in np.array_split(order, min(count, len(order))):
            yield group_trajectory_batch(joint_steps, some, joint_steps.lengths[some], device)
        return
    in_time = torch.from_numpy(joint_steps.in_time()).to(device)
    shuffled = in_time[torch.randperm(len(in_time), generator=generator, device=device)]
    for part in torch.tensor_split(shuffled, min(count, len(shuffled))):
        yield JointStepBatch(part, None)


def all_joint_steps(joint_steps: JointSteps, device: torch.device) -> JointStepBatch:
    """Every joint step, those too that only follow a group trajectory."""
    lengths = np.diff(np.append(joint_steps.first, len(joint_steps)))
    return group_trajectory_batch(joint_steps, np.arange(len(lengths)), lengths, device)


def group_trajectory_batch(
    joint_steps: JointSteps, chosen: NDArray[np.int64], lengths: NDArray[np.int64], device: torch.device
) -> JointStepBatch:
    """The first joint steps of some group trajectories, as many as ``lengths`` says."""
    filled = np.arange(int(lengths.max(initial=0))) < lengths[:, None]
    indices = (joint_steps.first[chosen][:, None] + np.arange(filled.shape[1]))[filled]
    return JointStepBatch(torch.from_numpy(indices).to(device), torch.from_numpy(filled).to(device))


def referenced_observations(observations: Sequence[Tensor], members: Tensor) -> tuple[list[Tensor], Tensor]:
    """Only what these joint steps refer to, so that nothing else is encoded."""
    numbers = members.flatten()
    there = numbers >= 0
    renumbered = torch.full_like(numbers, -1)
    renumbered[there] = torch.arange(int(there.sum()), device=members.device)
    return [sensor[numbers[there]] for sensor in observations], renumbered.view(members.shape)
