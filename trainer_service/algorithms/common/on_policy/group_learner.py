"""The base of MAPPO, HAPPO, POCA and COMA: actors that decide alone, and a critic that sees the group.

Top to bottom: estimate advantages with the critic, then take some epochs of the actors on the clipped surrogate and of
the critic on returns. What a method makes of the group is in its own file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from trainer_service.algorithms.common.group_metrics import (
    actor_step_metrics,
    mean_actor_metrics,
)
from trainer_service.algorithms.common.learner import Compute, Metrics
from trainer_service.algorithms.common.observation_selection import (
    actor_sensors,
    sensors_except,
    with_sensors,
)
from trainer_service.algorithms.common.on_policy.group_rollout import (
    CriticTargets,
    GroupRollout,
    JointStepBatch,
    joint_step_batches,
)
from trainer_service.algorithms.common.on_policy.importance import proximal_log_probs, weight_metrics
from trainer_service.algorithms.common.on_policy.learner import OnPolicyLearner
from trainer_service.algorithms.common.on_policy.minibatches import (
    MinibatchSampler,
    minibatch_slices,
    with_progress,
)
from trainer_service.algorithms.common.schedules import Scheduled, learning_rate_at, scheduled_at
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import GroupOnPolicySettings
from trainer_service.networks.encoders.layers import rows_at_once
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.flat import FlatAdam, FlatOptimizer
from trainer_service.networks.members import sensors_of_agents
from trainer_service.networks.policies.action_heads import clip_actions
from trainer_service.networks.policies.group_actors import GroupActors
from trainer_service.networks.policies.imitator import Imitator
from trainer_service.ops.losses import clipped_surrogate_loss, importance_weights
from trainer_service.rewards import Experience
from trainer_service.rewards.extrinsic import ExtrinsicReward
from trainer_service.rollout.joint_steps import find_joint_steps
from trainer_service.rollout.sensor_roles import SensorRole
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import join_observations

_T = TypeVar("_T")


class GroupLearner(OnPolicyLearner):
    """One behavior's actors, critic and update rule, for agents that come in groups."""

    _settings_type: ClassVar[type[GroupOnPolicySettings]]
    _adam_epsilon = 1e-5

    _hyper: GroupOnPolicySettings
    _policy: GroupActors
    _critic: nn.Module

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that the networks cannot take.

        spec: as the learner sees it: with the global state where the settings ask for it, with agents' ids last.
        """
        super().__init__(spec, settings, compute)
        self._critic_optimizer = FlatOptimizer(
            self._critic.parameters(),
            epsilon=self._adam_epsilon,
            weight_decay=self._hyper.weight_decay,
            shard=self._shard,
        )

    def _make_policy(self) -> GroupActors:
        return GroupActors(
            self._spec,
            self._settings.network_settings,
            agent_sensors=actor_sensors(self._spec, self._hyper),
            index_sensor=len(self._spec.observation_specs) - 1 if self._tells_agents_apart else None,
            share=self._hyper.sharing,
        )

    def _make_normalizer(self) -> ObservationNormalizer:
        return ObservationNormalizer(
            self._spec.observation_specs,
            normalize=self._settings.network_settings.normalize,
            has_sensor=sensors_of_agents(self._spec),
        )

    @property
    def _tells_agents_apart(self) -> bool:
        """Whether actors differ, or what their agents have."""
        return self._hyper.sharing != "full" or bool(self._spec.members)

    def _reward_sensors(self) -> list[int]:
        """Numbers of the sensors that reward sources look at."""
        return sensors_except(self._spec, {SensorRole.AGENT_ID, SensorRole.GLOBAL_STATE})

    def _reward_spec(self) -> BehaviorSpec:
        return with_sensors(self._spec, self._reward_sensors())

    def _imitators(self) -> list[Imitator]:
        # An actor for all with ids learns for each of them, and actors of one each learn alike.
        shown = self._hyper.num_agents if self._hyper.agent_ids and self._hyper.sharing != "none" else 0
        return [
            imitator
            for actor in self._policy
            for imitator in Imitator.of_trunk(actor.trunk, actor.actions.forward).of_each(shown)
        ]

    def _normalize_own(self, observations: Sequence[Tensor]) -> list[Tensor]:
        return self._normalizer.some(self._reward_sensors(), observations)

    @abstractmethod
    def _make_critic(self, signals: int) -> nn.Module:
        """The critic, with a value for each of so many reward signals."""

    @abstractmethod
    def _estimate_advantages(self, rollout: GroupRollout, scheduled: Scheduled) -> CriticTargets:
        """Advantages by the critic as it is before the update, and what it shall learn."""

    @abstractmethod
    def _critic_loss(
        self, rollout: GroupRollout, critic_targets: CriticTargets, batch: JointStepBatch
    ) -> Tensor:
        """The critic's loss on some joint steps; of several learner ranks, this one's addend of it. A scalar."""

    def update(self, step: int) -> Metrics:
        """``num_epoch`` passes of actors and critic over everything collected, which is then thrown away."""
        scheduled = scheduled_at(self._hyper, step, self._settings.max_steps)
        trajectories = self._buffer.drain()
        experience = Experience(self._for_rewards(trajectories), self._device, clip_actions)
        rollout = self._make_rollout(trajectories, experience)
        critic_targets = self._estimate_advantages(rollout, scheduled)
        weights, importance = None, {}
        if self._decoupled:
            rollout, weights = self._decouple(rollout)
            importance = weight_metrics(weights)
        critic_rate = learning_rate_at(
            self._hyper, step, self._settings.max_steps, initial=self._hyper.initial_critic_learning_rate
        )
        if self._hyper.estimates_every_epoch:
            metrics = self._update_in_turns(rollout, critic_targets, weights, scheduled, critic_rate)
        else:
            metrics = self._update_actors(rollout, _weighted(critic_targets.advantages, weights), scheduled)
            metrics["Losses/Value Loss"] = self._update_critic(rollout, critic_targets, critic_rate)
        return {
            **metrics,
            "Policy/Learning Rate": scheduled.learning_rate,
            **({} if "epsilon" in self._hyper.unused else {"Policy/Epsilon": scheduled.epsilon}),
            "Policy/Beta": scheduled.beta,
            **importance,
            **critic_targets.metrics,
            **self._episode_rewards.metrics(rollout.trajectories, rollout.rewards),
            **self._update_others(experience, step),
        }

    def _decouple(self, rollout: GroupRollout) -> tuple[GroupRollout, Tensor]:
        """The rollout with the present actors as its old ones, and weights of what older ones did in it, [S].

        A weight is of the agent's own action, as the surrogate's ratio is: the others of its group are part of its
        environment. The product over the group would be exact for HAPPO, but truncated it learns less from old
        rollouts (two agents, eight updates late: 89 % instead of 98 % right choices in test_stale_rollouts.py).
        """

        def log_prob(part: slice, sequences: Sequences | None) -> Tensor:
            steps = torch.arange(part.start, part.stop, device=self._device)
            return self._log_prob_and_entropy(rollout, steps, sequences)[0]

        proximal = proximal_log_probs(
            log_prob,
            len(rollout.trajectories),
            self._sampler(rollout.trajectories).sequences,
            rows_at_once(self._policy),
        )
        weights = importance_weights(proximal - rollout.old_log_prob)
        return rollout._replace(old_log_prob=proximal), weights

    def _update_actors(
        self, rollout: GroupRollout, advantages: Tensor, scheduled: Scheduled
    ) -> dict[str, float]:
        """Updates the actors of all agents at the same time. advantages: [S]. Returns their metrics."""
        sampler = self._sampler(rollout.trajectories)
        parts: list[Tensor] = []
        for epoch in range(self._hyper.num_epoch):
            parts += self._actor_epoch(rollout, advantages, sampler, epoch, scheduled)
        return mean_actor_metrics(parts, self._shard)

    def _update_in_turns(
        self,
        rollout: GroupRollout,
        critic_targets: CriticTargets,
        weights: Tensor | None,
        scheduled: Scheduled,
        critic_rate: float,
    ) -> dict[str, float]:
        """Updates actors and critic epoch by epoch in turns, with advantages by the critic as each epoch finds it."""
        sampler = self._sampler(rollout.trajectories)
        parts: list[Tensor] = []
        losses: list[Tensor] = []
        for epoch in range(self._hyper.num_epoch):
            if epoch:
                critic_targets = self._estimate_advantages(rollout, scheduled)
            advantages = _weighted(critic_targets.advantages, weights)
            parts += self._actor_epoch(rollout, advantages, sampler, 2 * epoch, scheduled)
            losses += self._critic_epoch(rollout, critic_targets, 2 * epoch + 1, critic_rate)
        metrics = mean_actor_metrics(parts, self._shard)
        metrics["Losses/Value Loss"] = float(self._shard.add_up(torch.stack(losses).mean()))
        return metrics

    def _actor_epoch(
        self,
        rollout: GroupRollout,
        advantages: Tensor,
        sampler: MinibatchSampler,
        epoch: int,
        scheduled: Scheduled,
    ) -> list[Tensor]:
        """One pass of the actors. epoch: its number among those of actors and critic. Returns each step's metrics."""
        return [
            self._actor_step(rollout, advantages, steps, sequences, share, scheduled)
            for steps, sequences, share in self._with_progress(
                self._minibatches(sampler), epoch, self._hyper.num_epoch
            )
        ]

    def _with_progress(self, minibatches: Sequence[_T], epoch: int, epochs: int) -> Iterator[_T]:
        """Minibatches with progress: actors have half of an update's epochs, the critic as many."""
        return with_progress(minibatches, epoch, 2 * epochs, self._progress)

    def _actor_step(
        self,
        rollout: GroupRollout,
        advantages: Tensor,
        steps: Tensor,
        sequences: Sequences | None,
        share: float,
        scheduled: Scheduled,
    ) -> Tensor:
        """One gradient step of the actors on a share of a minibatch. Returns ``actor_step_metrics``, times that."""
        log_prob, entropy = self._log_prob_and_entropy(rollout, steps, sequences)
        old = rollout.old_log_prob[steps]
        clip_epsilon = self._clip_epsilon(scheduled)
        policy_loss = self._policy_loss(log_prob, old, advantages[steps], clip_epsilon)
        loss = policy_loss - scheduled.beta * entropy
        self._optimizer.minimize(loss, scheduled.learning_rate, self._hyper.max_grad_norm, share)
        metrics = actor_step_metrics(policy_loss, entropy, log_prob.detach() - old, clip_epsilon)
        return self._shard.weighted(metrics, share)

    def _clip_epsilon(self, scheduled: Scheduled) -> float:
        """How far from 1 a probability ratio may move."""
        return scheduled.epsilon

    def _policy_loss(self, log_prob: Tensor, old: Tensor, advantages: Tensor, clip_epsilon: float) -> Tensor:
        """The actors' loss without its entropy bonus, here −L^CLIP of PPO. All [B]; a scalar."""
        return clipped_surrogate_loss(log_prob, old, advantages, clip_epsilon=clip_epsilon)

    def _log_prob_and_entropy(
        self, rollout: GroupRollout, steps: Tensor, sequences: Sequences | None
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities of what was done at these steps by today's actors, [B], and their mean entropy."""
        parameters = self._policy.policy([sensor[steps] for sensor in rollout.observations], sequences)
        allowed, heads = rollout.allowed_actions[steps], self._policy.actions
        log_prob = heads.log_prob(
            parameters, allowed, rollout.continuous_actions[steps], rollout.discrete_actions[steps]
        )
        return log_prob, heads.entropy(parameters, allowed).mean()

    def _update_critic(
        self, rollout: GroupRollout, critic_targets: CriticTargets, learning_rate: float
    ) -> float:
        """Takes as many epochs of as many minibatches as the actors do. Returns the mean loss."""
        losses: list[Tensor] = []
        for epoch in range(self._hyper.num_epoch, 2 * self._hyper.num_epoch):
            losses += self._critic_epoch(rollout, critic_targets, epoch, learning_rate)
        return float(self._shard.add_up(torch.stack(losses).mean()))

    def _critic_epoch(
        self, rollout: GroupRollout, critic_targets: CriticTargets, epoch: int, learning_rate: float
    ) -> list[Tensor]:
        """One pass of the critic. epoch: its number among those of actors and critic. Returns each step's loss."""
        losses: list[Tensor] = []
        batches = joint_step_batches(
            rollout.joint_steps,
            len(minibatch_slices(len(rollout.trajectories), self._hyper.batch_size)),
            self._shuffling,
            device=self._device,
            whole_trajectories=self._settings.network_settings.memory is not None,
            shard=self._shard,
        )
        for batch in self._with_progress(list(batches), epoch, self._hyper.num_epoch):
            loss = self._critic_loss(rollout, critic_targets, batch)
            self._critic_optimizer.minimize(loss, learning_rate, self._hyper.max_grad_norm)
            losses.append(loss.detach())
        return losses

    def _minibatches(self, sampler: MinibatchSampler) -> list[tuple[Tensor, Sequences | None, float]]:
        steps, minibatches = sampler.shuffle(self._shuffling)
        return [(steps[chunk], sequences, share) for chunk, share, sequences in minibatches]

    def _for_rewards(self, trajectories: Trajectories) -> Trajectories:
        """Trajectories with only the sensors that reward sources look at."""
        seen, final = (
            tuple(sensors[i] for i in self._reward_sensors())
            for sensors in (trajectories.observations, trajectories.final_observations)
        )
        return replace(trajectories, observations=seen, final_observations=final)

    def _make_rollout(self, trajectories: Trajectories, experience: Experience) -> GroupRollout:
        both = zip(trajectories.observations, trajectories.final_observations, strict=True)
        none = np.zeros_like(trajectories.group_rewards)
        return GroupRollout(
            trajectories=trajectories,
            joint_steps=find_joint_steps(trajectories, self._group_size_of(trajectories)),
            rewards=[source.strength * source.record(experience) for source in self._rewards],
            group_rewards=[
                source.strength
                * (source.scaled(trajectories.group_rewards) if isinstance(source, ExtrinsicReward) else none)
                for source in self._rewards
            ],
            observations=self._normalizer.forward(
                [self._tensor(join_observations(sensor)) for sensor in both]
            ),
            continuous_actions=self._tensor(trajectories.continuous_actions),
            discrete_actions=self._tensor(trajectories.discrete_actions),
            allowed_actions=self._tensor(trajectories.allowed_actions),
            old_log_prob=self._tensor(trajectories.log_probs),
        )

    def _group_size_of(self, trajectories: Trajectories) -> int:
        """Agents of a group in these trajectories."""
        return self._hyper.num_agents

    def _networks(self) -> dict[str, nn.Module]:
        return {"actors": self._policy, "critic": self._critic}

    def _optimizers(self) -> dict[str, FlatAdam]:
        return {
            "actor_optimizer": self._optimizer.adam,
            "critic_optimizer": self._critic_optimizer.adam,
        }


def _weighted(advantages: Tensor, weights: Tensor | None) -> Tensor:
    """Advantages times importance weights, where there are any. All [S]"""
    return advantages if weights is None else weights * advantages
