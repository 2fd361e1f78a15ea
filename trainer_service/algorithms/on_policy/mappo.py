"""Multi-agent PPO, Yu et al. 2022 (arXiv:2103.01955): PPO with a critic that sees what all agents of a group see.

Advantages are estimated once per update, as in the authors' code, or anew for every epoch, and the critic works in
units of the returns' running scale. What they store for dead agents is not here at all: an absent agent is absent from
every loss, and shows as zeros in what the critic sees.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.common.observation_selection import sensors_except, sensors_of
from trainer_service.algorithms.common.on_policy.group_learner import GroupLearner
from trainer_service.algorithms.common.on_policy.group_rollout import (
    AdvantageEstimate,
    CriticTargets,
    GroupRollout,
    JointStepBatch,
    all_joint_steps,
    group_advantages,
    individual_advantages,
    referenced_observations,
)
from trainer_service.algorithms.common.schedules import Scheduled
from trainer_service.config.hyperparameters.on_policy import MAPPOSettings
from trainer_service.networks.critics.joint_critic import JointCritic
from trainer_service.networks.encoders.layers import in_chunks
from trainer_service.ops.losses import huber, squared
from trainer_service.ops.returns import standardize
from trainer_service.rollout.sensor_roles import SensorRole

_CHUNK = 4096


class MAPPO(GroupLearner):
    """PPO with a central critic and decentralized actors."""

    _settings_type = MAPPOSettings
    _hyper: MAPPOSettings
    _critic: JointCritic

    def _make_critic(self, signals: int) -> JointCritic:
        hyper = self._hyper
        if hyper.state == "environment":
            state_sensors = sensors_of(self._spec, SensorRole.GLOBAL_STATE)
        else:
            state_sensors = sensors_except(self._spec, {SensorRole.AGENT_ID, SensorRole.GLOBAL_STATE})
        return JointCritic(
            self._spec,
            self._settings.network_settings,
            state_sensors=state_sensors,
            state=hyper.state,
            num_agents=self._hyper.num_agents,
            signals=signals,
            members=1 if hyper.reward_mode == "team_sum" else self._hyper.num_agents,
            scaling=hyper.value_normalization,
        )

    def _estimate_advantages(self, rollout: GroupRollout, scheduled: Scheduled) -> CriticTargets:
        old = self._values(rollout)
        values = self._critic.value.raw(old).cpu().numpy()
        estimate = (group_advantages if self._hyper.reward_mode == "team_sum" else individual_advantages)(
            rollout, self._rewards, values, gae_lambda=self._hyper.lambd
        )
        return CriticTargets(
            advantages=self._tensor(self._normalized(rollout, estimate)),
            targets=self._tensor(estimate.returns),
            mask=self._tensor(estimate.mask),
            old_values=old,
            clip_range=old.new_full((len(self._rewards),), scheduled.epsilon),
            metrics=self._value_metrics(values, estimate),
        )

    def _values(self, rollout: GroupRollout) -> Tensor:
        """Values of every joint step, in the critic's units: [F, members, signals]."""
        members = self._tensor(rollout.joint_steps.members)
        with torch.inference_mode():
            if self._critic.memory is not None:
                batch = all_joint_steps(rollout.joint_steps, self._device)
                return self._critic.forward(rollout.observations, members, batch.filled).clone()
            chunks = [
                self._critic.forward(*referenced_observations(rollout.observations, members[chunk]))
                for chunk in in_chunks(len(members), _CHUNK)
            ]
        return torch.cat(chunks).clone()

    def _critic_loss(
        self, rollout: GroupRollout, critic_targets: CriticTargets, batch: JointStepBatch
    ) -> Tensor:
        mask = critic_targets.mask[batch.indices]
        returns = _returns(critic_targets, batch.indices)
        self._critic.value.update(returns if batch.undivided else _returns(critic_targets, batch.all_indices))
        members = self._tensor(rollout.joint_steps.members)[batch.indices]
        inputs = (
            (rollout.observations, members)
            if batch.filled is not None
            else referenced_observations(rollout.observations, members)
        )
        values = self._critic.forward(*inputs, batch.filled)[mask]
        targets = self._critic.value.scaled(returns)
        cost = huber if self._hyper.value_loss == "huber" else squared
        loss = cost(values - targets, self._hyper.huber_delta)
        if self._hyper.clip_value:
            old_values = critic_targets.old_values[batch.indices][mask]
            clipped = old_values + torch.clamp(
                values - old_values, -critic_targets.clip_range, critic_targets.clip_range
            )
            loss = torch.maximum(loss, cost(clipped - targets, self._hyper.huber_delta))
        return self._shard.weighted(loss.mean(), batch.share(critic_targets.mask))

    def _normalized(self, rollout: GroupRollout, estimate: AdvantageEstimate) -> NDArray[np.float32]:
        """One advantage per step: signals add up first, so that their strengths decide how they weigh."""
        advantages: NDArray[np.float32] = estimate.advantages.sum(axis=1).astype(np.float32)
        if self._hyper.advantage_normalization == "global":
            return standardize(advantages).astype(np.float32)
        if self._hyper.advantage_normalization == "per_agent":
            agent_indices = rollout.joint_steps.agent_of_step
            for agent_index in np.unique(agent_indices):
                advantages[agent_indices == agent_index] = standardize(
                    advantages[agent_indices == agent_index]
                )
        return advantages

    def _value_metrics(self, values: NDArray[np.float32], estimate: AdvantageEstimate) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for signal, source in enumerate(self._rewards):
            predicted, returns = (column[..., signal][estimate.mask] for column in (values, estimate.returns))
            label = source.name.capitalize()
            metrics[f"Policy/{label} Value Estimate"] = float(predicted.mean())
            variance = float(returns.var(dtype=np.float64))
            metrics[f"Policy/{label} Explained Variance"] = (
                1.0 - float((returns - predicted).var(dtype=np.float64)) / variance if variance > 0 else 0.0
            )
        return metrics


def _returns(critic_targets: CriticTargets, indices: Tensor) -> Tensor:
    """Returns that the critic shall learn at some joint steps, end to end. [targets, signals]"""
    return critic_targets.targets[indices][critic_targets.mask[indices]]
