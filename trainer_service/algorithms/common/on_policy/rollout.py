"""The rollout for one on-policy update: S steps of P trajectories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.common.on_policy.minibatches import MinibatchSampler
from trainer_service.networks.encoders.layers import in_chunks, rows_at_once
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.policies.action_heads import clip_actions
from trainer_service.networks.policies.actor_critic import ActorCritic
from trainer_service.networks.policies.group_actors import GroupActors
from trainer_service.ops.losses import MAX_WEIGHT, importance_weights
from trainer_service.ops.returns import ragged_generalized_advantage
from trainer_service.rewards import Experience, RewardSource
from trainer_service.rewards.extrinsic import ExtrinsicReward
from trainer_service.rollout.episode_runs import EpisodeRuns, EpisodeValues
from trainer_service.rollout.joint_steps import JointSteps, find_joint_steps
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.arrays import AnyFloats
from unity_bridge.steps import join_observations

ActingNetwork = ActorCritic | GroupActors
"""A policy network, of single agents or of a group's agents."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rollout:
    """The data of an update, as tensors on its device that stay constant over all epochs."""

    trajectories: Trajectories

    experience: Experience
    """The same steps for reward models."""

    rewards: Sequence[NDArray[np.float32]]
    """Rewards of each source, its strength included. Shapes [S]."""

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

    group_rewards: Sequence[NDArray[np.float32]]
    """The group rewards in ``rewards``, which every member received. Shapes [S]."""


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
    none = np.zeros_like(trajectories.group_rewards)
    return GroupRollout(
        observations=[sensor[:steps] for sensor in joint],
        final=[sensor[steps:] for sensor in joint],
        joint_steps=joint_steps,
        members=torch.from_numpy(joint_steps.members).to(device),
        joint_observations=joint,
        group_rewards=[
            source.strength
            * (source.scaled(trajectories.group_rewards) if isinstance(source, ExtrinsicReward) else none)
            for source in sources
        ],
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
        "rewards": [source.strength * source.record(experience) for source in sources],
        "continuous_actions": torch.from_numpy(trajectories.continuous_actions).to(device),
        "discrete_actions": torch.from_numpy(trajectories.discrete_actions).to(device),
        "allowed_actions": torch.from_numpy(trajectories.allowed_actions).to(device),
        "old_log_prob": torch.from_numpy(trajectories.log_probs).to(device),
        "sampler": sampler,
    }


AnyRollout = TypeVar("AnyRollout", bound=Rollout)


def decouple(rollout: AnyRollout, policy: ActingNetwork) -> AnyRollout:
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
    policy: ActingNetwork, rollout: Rollout, steps: slice | Tensor, sequences: Sequences | None
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


def agent_advantages(
    rollout: Rollout,
    sources: Sequence[RewardSource],
    values: AnyFloats,
    next_values: AnyFloats,
    *,
    gae_lambda: float,
) -> AnyFloats:
    """Every agent's own advantages, eq. 16 of Schulman et al. 2016 (arXiv:1506.02438). Shape [S, signals].

    values: of every step, [S, signals]. next_values: after each trajectory, 0 after the end, [P, signals].
    """
    advantages = np.empty_like(values)
    for signal, (source, rewards) in enumerate(zip(sources, rollout.rewards, strict=True)):
        advantages[:, signal] = ragged_generalized_advantage(
            rewards,
            values[:, signal],
            next_values[:, signal],
            rollout.trajectories.lengths,
            discount=source.gamma,
            gae_lambda=gae_lambda,
        )
    return advantages


class EpisodeRewards:
    """Sums of each reward source's rewards over an agent's episode, across rollouts."""

    def __init__(self, sources: Sequence[RewardSource]) -> None:
        self._names = [source.name for source in sources]
        self._sums = EpisodeValues(len(sources))

    def metrics(self, trajectories: Trajectories, rewards: Sequence[NDArray[np.float32]]) -> dict[str, float]:
        """Adds a rollout. Returns each source's mean sum over the episodes that ended in it, by ML-Agents' tag.

        Empty if no episode ended. rewards: of each source at every step, including its strength. Shapes [S].
        """
        runs = EpisodeRuns.of(trajectories)
        starts = np.cumsum(runs.lengths) - runs.lengths
        paid = np.stack(rewards, axis=1)[runs.steps].astype(np.float64)
        sums = self._sums.before(runs) + np.add.reduceat(paid, starts)
        self._sums.update(runs, sums)
        if not runs.ended.any():
            return {}
        means = sums[runs.ended].mean(axis=0)
        return {
            f"Policy/{name.capitalize()} Reward": float(mean)
            for name, mean in zip(self._names, means, strict=True)
        }

    def state_dict(self) -> dict[str, Any]:
        """The sums of unfinished episodes."""
        return self._sums.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state."""
        self._sums.load_state_dict(state)
