"""The rollout for one on-policy update: S steps of P trajectories, and minibatches of them.

A minibatch has steps in any order, or whole sequences for policies with memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.learning.kernels.ppo_epoch import Minibatch
from trainer_service.learning.networks.encoders.layers import in_chunks, rows_at_once
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.policies.action_heads import clip_actions
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
from trainer_service.learning.networks.policies.group_actors import GroupActors
from trainer_service.learning.networks.shard import SINGLE_RANK, Shard
from trainer_service.learning.rewards import Experience, RewardSource
from trainer_service.learning.rewards.extrinsic import ExtrinsicReward
from trainer_service.learning.rollout.joint_steps import JointSteps, find_joint_steps
from trainer_service.learning.rollout.trajectories import StepRanges, Trajectories, split_into_sequences
from trainer_service.ops.losses import MAX_WEIGHT, importance_weights
from unity_bridge.steps import join_observations


def minibatch_slices(rows: int, batch_size: int) -> list[slice]:
    """Slices of ``batch_size`` that cover all rows. A remainder of at least half that size is a separate minibatch.

    A smaller remainder is added to the last minibatch. Adam's steps do not depend on the gradient's size. So a noisy
    gradient of one or two rows would move all weights as far as a full minibatch.
    """
    starts = list(range(0, rows, batch_size))
    if len(starts) > 1 and 2 * (rows - starts[-1]) < batch_size:
        del starts[-1]
    return [slice(start, end) for start, end in itertools.pairwise([*starts, rows])]


class MinibatchSampler:
    """Random minibatches of the steps of one rollout, for policies without memory."""

    sequences: Sequences | None = None
    """All steps in the order of time; None without memory."""

    final_sequences: Sequences | None = None
    """The final observations as sequences of one step; None without memory."""

    def __init__(self, steps: int, batch_size: int, device: torch.device, shard: Shard = SINGLE_RANK) -> None:
        """device: of the steps. shard: this rank's part of each minibatch."""
        self.steps = steps
        self.batch_size = batch_size
        self.device = device
        self.shard = shard

    def shuffle(self, generator: torch.Generator) -> tuple[Tensor, list[Minibatch]]:
        """One epoch: all steps in random order, and the minibatches of ``batch_size`` steps in this order."""
        order = torch.randperm(self.steps, generator=generator).to(self.device)
        minibatches = []
        for whole in minibatch_slices(self.steps, self.batch_size):
            rows, share = range(whole.start, whole.stop), 1.0
            if self.shard.world > 1:
                rows, share = rows[self.shard.rows(len(rows))], self.shard.part(len(rows)).share
            minibatches.append(Minibatch(slice(rows.start, whole.stop, rows.step), share))
        return order, minibatches


class SequenceSampler(MinibatchSampler):
    """Random minibatches of whole sequences. Each starts with the agent's memory at its first step.

    These memories were computed by the acting policy, and stay the same in later epochs.
    """

    def __init__(
        self,
        trajectories: Trajectories,
        sequence_length: int,
        batch_size: int,
        device: torch.device,
        shard: Shard = SINGLE_RANK,
    ) -> None:
        """A minibatch has as many sequences as fill ``batch_size`` at full length, at least one."""
        super().__init__(len(trajectories), batch_size, device, shard)
        self._ranges = split_into_sequences(trajectories.lengths, sequence_length)
        self._sequences_per_minibatch = max(batch_size // sequence_length, 1)
        self._memories = torch.from_numpy(trajectories.memories).to(device)
        self.sequences = self._sequences(self._ranges)
        ends = torch.from_numpy(trajectories.final_memories).to(device)
        self.final_sequences = Sequences(ends, ends.new_ones((len(ends), 1), dtype=torch.bool))

    def shuffle(self, generator: torch.Generator) -> tuple[Tensor, list[Minibatch]]:
        """One epoch: sequences in random order, each in time order; only this rank's sequences."""
        order = torch.randperm(len(self._ranges), generator=generator)
        ranges = self._ranges.select(order.numpy())
        minibatches, steps = [], []
        end = 0
        for rows in minibatch_slices(len(ranges), self._sequences_per_minibatch):
            chosen = ranges.select(rows)
            sequences, part = self.shard.part_of_sequences(chosen.lengths)
            own = chosen.select(sequences)
            steps.append(own.steps())
            start, end = end, end + len(steps[-1])
            minibatches.append(Minibatch(slice(start, end), part.share, self._sequences(own)))
        return (torch.from_numpy(np.concatenate(steps)).to(self.device), minibatches)

    def _sequences(self, ranges: StepRanges) -> Sequences:
        starts, filled = torch.from_numpy(ranges.starts), torch.from_numpy(ranges.filled())
        return Sequences(self._memories[starts.to(self.device)], filled.to(self.device))


OnPolicyActor = ActorCritic | GroupActors
"""A policy network, of single agents or of a group's agents."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rollout:
    """The data of an update, as tensors on its device that stay constant over all epochs."""

    trajectories: Trajectories

    experience: Experience
    """The same steps for reward models."""

    rewards: NDArray[np.float32]
    """Rewards of each source, its strength included. Shape [S, signals]."""

    observations: Sequence[Tensor]
    """Normalized, one per sensor. Shapes [S, …]."""

    final: Sequence[Tensor]
    """Normalized observations after the last steps. Shapes [P, …]."""

    continuous_actions: Tensor
    discrete_actions: Tensor
    """int64 [S, branches], each counted from its branch's first choice."""

    allowed_actions: Tensor
    old_log_prob: Tensor

    sampler: MinibatchSampler

    weights: Tensor | None = None
    """Importance weights of the steps, [S], if an older policy may have acted."""

    def weighted(self, advantages: Tensor) -> Tensor:
        """Multiplies advantages by importance weights, if there are any. All [S]."""
        return advantages if self.weights is None else self.weights * advantages


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GroupRollout(Rollout):
    """A rollout of groups: the same steps, also as joint steps."""

    joint_steps: JointSteps

    members: Tensor
    """``JointSteps.members``. int64 [F, n]"""

    joint_observations: Sequence[Tensor]
    """Normalized, of all steps, then of all trajectories' ends, one per sensor. Shapes [S + P, …]."""

    own_rewards: NDArray[np.float32]
    """``rewards`` without the group rewards, which every member received. Shape [S, signals]."""

    group_rewards: NDArray[np.float32]
    """Rewards of the group at each joint step, see ``JointSteps``. Shape [F, signals]."""


def make_rollout(
    trajectories: Trajectories,
    sources: Sequence[RewardSource],
    normalizer: ObservationNormalizer,
    sampler: MinibatchSampler,
) -> Rollout:
    """Makes the rollout of single agents. Updates the reward sources with the trajectories."""
    seen, final = [
        [torch.from_numpy(sensor).to(sampler.device) for sensor in sensors]
        for sensors in (trajectories.observations, trajectories.final_observations)
    ]
    return Rollout(
        observations=normalizer.forward(seen),
        final=normalizer.forward(final),
        **_columns(trajectories, trajectories, sources, sampler),
    )


def make_group_rollout(
    trajectories: Trajectories,
    sources: Sequence[RewardSource],
    normalizer: ObservationNormalizer,
    sampler: MinibatchSampler,
    *,
    reward_sensors: Sequence[int],
    num_agents: int | None,
) -> GroupRollout:
    """Makes the rollout of groups.

    reward_sensors: numbers of the sensors that reward sources use. num_agents: of a group; None for the size of the
    largest group.
    """
    steps, group_index = len(trajectories), trajectories.group_index
    if num_agents is None:
        num_agents = 1 if group_index is None else int(group_index.agent_indices.max(initial=0)) + 1
    joint_steps = find_joint_steps(trajectories, num_agents)
    seen, final = (
        tuple(sensors[i] for i in reward_sensors)
        for sensors in (trajectories.observations, trajectories.final_observations)
    )
    shown = replace(trajectories, observations=seen, final_observations=final)
    columns, device = _columns(trajectories, shown, sources, sampler), sampler.device
    both = zip(trajectories.observations, trajectories.final_observations, strict=True)
    joint = normalizer.forward([torch.from_numpy(join_observations(sensor)).to(device) for sensor in both])
    in_rewards, of_joint_steps = (
        np.stack(
            [
                source.strength * (source.scaled(group) if isinstance(source, ExtrinsicReward) else 0 * group)
                for source in sources
            ],
            axis=1,
        )
        for group in (trajectories.group_rewards, joint_steps.group_rewards)
    )
    return GroupRollout(
        observations=[sensor[:steps] for sensor in joint],
        final=[sensor[steps:] for sensor in joint],
        joint_steps=joint_steps,
        members=torch.from_numpy(joint_steps.members).to(device),
        joint_observations=joint,
        own_rewards=columns["rewards"] - in_rewards,
        group_rewards=of_joint_steps,
        **columns,
    )


def _columns(
    trajectories: Trajectories,
    shown: Trajectories,
    sources: Sequence[RewardSource],
    sampler: MinibatchSampler,
) -> dict[str, Any]:
    """Columns of a rollout besides observations. shown: the trajectories with the reward sources' sensors."""
    device = sampler.device
    experience = Experience(shown, device, clip_actions)
    return {
        "trajectories": trajectories,
        "experience": experience,
        "rewards": np.stack([source.strength * source.record(experience) for source in sources], axis=1),
        "continuous_actions": torch.from_numpy(trajectories.continuous_actions).to(device),
        "discrete_actions": torch.from_numpy(trajectories.discrete_actions).to(device),
        "allowed_actions": torch.from_numpy(trajectories.allowed_actions).to(device),
        "old_log_prob": torch.from_numpy(trajectories.log_probs).to(device),
        "sampler": sampler,
    }


AnyRollout = TypeVar("AnyRollout", bound=Rollout)


def decouple(rollout: AnyRollout, policy: OnPolicyActor) -> AnyRollout:
    """Returns the rollout with the present policy as its old policy, and importance weights of the acting policy.

    The present policy is π_prox of the decoupled objective (``ops.losses.importance_weights``): one forward pass over
    the whole rollout, without gradients. In a group, a weight is of the agent's own action, like the surrogate's ratio,
    since the other agents are part of its environment. For HAPPO the product over the group would be exact, but with
    truncation it learns less from old rollouts: 89 % instead of 98 % right choices in test_stale_rollouts.py, with two
    agents and rollouts eight updates old.
    """
    steps, sequences = len(rollout.trajectories), rollout.sampler.sequences
    with torch.no_grad():
        proximal = torch.cat(
            [
                log_prob_and_entropy(policy, rollout, *part)[0]
                for part in parts_in_order(steps, sequences, rows_at_once(policy))
            ]
        )
    weights = importance_weights(proximal - rollout.old_log_prob)
    return replace(rollout, old_log_prob=proximal, weights=weights)


def log_prob_and_entropy(
    policy: OnPolicyActor, rollout: Rollout, steps: slice | Tensor, sequences: Sequences | None
) -> tuple[Tensor, Tensor]:
    """Returns log-probabilities of taken actions at these steps under the present policy, [B], and mean entropy."""
    parameters = policy.policy([sensor[steps] for sensor in rollout.observations], sequences)
    allowed = rollout.allowed_actions[steps]
    log_prob = policy.actions.log_prob(
        parameters, allowed, rollout.continuous_actions[steps], rollout.discrete_actions[steps]
    )
    return log_prob, policy.actions.entropy(parameters, allowed).mean()


def parts_in_order(
    steps: int, sequences: Sequences | None, rows: int
) -> Iterator[tuple[slice, Sequences | None]]:
    """Yields all steps in time order, about ``rows`` at once; with memory, whole sequences, at least one."""
    if sequences is None:
        yield from ((part, None) for part in in_chunks(steps, rows))
        return
    lengths: list[int] = sequences.filled.sum(dim=1).tolist()
    end = 0
    for chosen in in_chunks(len(lengths), max(rows // sequences.filled.shape[1], 1)):
        start, end = end, end + sum(lengths[chosen])
        yield slice(start, end), Sequences(sequences.memories[chosen], sequences.filled[chosen])


def weight_metrics(weights: Tensor) -> dict[str, float]:
    """Returns the mean importance weight, and the share of truncated weights, by tag. weights: [S]."""
    return {
        "Policy/Importance Weight": float(weights.mean()),
        "Policy/Clipped Weights": float((weights == MAX_WEIGHT).float().mean()),
    }
