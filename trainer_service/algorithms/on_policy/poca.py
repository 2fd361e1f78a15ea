"""MA-POCA, Cohen et al. 2021 (arXiv:2111.05992), with ML-Agents' settings: credit beyond an agent's death.

All agents learn from the group's λ-returns, those too that died before these came. What an agent's own action was worth
is the return less a baseline that knows what all others saw and did.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.common.observation_selection import sensors_except
from trainer_service.algorithms.common.on_policy.group_learner import GroupLearner
from trainer_service.algorithms.common.on_policy.group_rollout import (
    CriticTargets,
    GroupRollout,
    JointStepBatch,
    all_joint_steps,
    group_advantages,
)
from trainer_service.algorithms.common.schedules import Scheduled
from trainer_service.config.hyperparameters.on_policy import POCASettings
from trainer_service.networks.critics.poca_critic import POCACritic
from trainer_service.networks.encoders.layers import in_chunks
from trainer_service.ops.losses import clipped_value_loss
from trainer_service.ops.returns import standardize
from trainer_service.rollout.sensor_roles import SensorRole
from trainer_service.rollout.trajectories import Trajectories

_CHUNK = 1024
_BASELINE_WEIGHT = 0.5


class POCA(GroupLearner):
    """PPO with a critic by attention, and counterfactual baselines."""

    _settings_type = POCASettings
    _hyper: POCASettings
    _critic: POCACritic

    def _make_critic(self, signals: int) -> POCACritic:
        # Agents of one behavior are interchangeable to the critic; those of a team are not.
        hidden = (
            {SensorRole.GLOBAL_STATE}
            if self._spec.members
            else {SensorRole.AGENT_ID, SensorRole.GLOBAL_STATE}
        )
        agent_sensors = sensors_except(self._spec, hidden)
        return POCACritic(
            self._spec, self._settings.network_settings, agent_sensors=agent_sensors, signals=signals
        )

    def _estimate_advantages(self, rollout: GroupRollout, scheduled: Scheduled) -> CriticTargets:
        values, baselines = self._values_and_baselines(rollout)
        estimate = group_advantages(
            rollout, self._rewards, values.unsqueeze(1).cpu().numpy(), gae_lambda=self._hyper.lambd
        )
        joint_steps = rollout.joint_steps
        returns = estimate.returns[joint_steps.of_step, 0]
        agent_baselines = baselines.cpu().numpy()[joint_steps.of_step, joint_steps.agent_of_step]
        advantages = standardize((returns - agent_baselines).sum(axis=1).astype(np.float32))
        targets = self._tensor(estimate.returns.astype(np.float32))
        return_range = self._tensor(np.ptp(estimate.returns[estimate.mask], axis=0).astype(np.float32))
        return CriticTargets(
            advantages=self._tensor(advantages.astype(np.float32)),
            targets=targets,
            mask=self._tensor(joint_steps.steps >= 0),
            old_values=torch.cat([values.unsqueeze(1), baselines], dim=1),
            clip_range=scheduled.epsilon * return_range,
            metrics=self._value_metrics(estimate.mask, values, agent_baselines),
        )

    def _group_size_of(self, trajectories: Trajectories) -> int:
        """Agents of the largest group: attention takes any number."""
        group_index = trajectories.group_index
        return 1 if group_index is None else int(group_index.agent_indices.max(initial=0)) + 1

    def _values_and_baselines(self, rollout: GroupRollout) -> tuple[Tensor, Tensor]:
        """Values of all joint steps, [F, signals], and baselines, [F, n, signals]."""
        members, actions = self._tensor(rollout.joint_steps.members), self._actions_taken(rollout)
        with torch.no_grad():
            if self._critic.memory is not None:
                batch = all_joint_steps(rollout.joint_steps, self._device)
                return self._critic.forward(rollout.observations, actions, members, batch.filled)
            chunks = [
                self._critic.forward(rollout.observations, actions, members[chunk])
                for chunk in in_chunks(len(members), _CHUNK)
            ]
        values, baselines = zip(*chunks, strict=True)
        return torch.cat(values), torch.cat(baselines)

    def _critic_loss(
        self, rollout: GroupRollout, critic_targets: CriticTargets, batch: JointStepBatch
    ) -> Tensor:
        """The loss of values, plus half that of baselines. Both learn the group's returns."""
        members = self._tensor(rollout.joint_steps.members)[batch.indices]
        values, baselines = self._critic.forward(
            rollout.observations, self._actions_taken(rollout), members, batch.filled
        )
        returns, old = critic_targets.targets[batch.indices], critic_targets.old_values[batch.indices]
        mask = critic_targets.mask[batch.indices]
        of_values = clipped_value_loss(values, old[:, 0], returns[:, 0], clip_range=critic_targets.clip_range)
        of_baselines = clipped_value_loss(
            baselines[mask],
            old[:, 1:][mask],
            returns.expand_as(baselines)[mask],
            clip_range=critic_targets.clip_range,
        )
        # A joint step has one value, but a baseline for each agent that is there: means over different numbers.
        of_values = self._shard.weighted(of_values, batch.share())
        of_baselines = self._shard.weighted(of_baselines, batch.share(critic_targets.mask))
        return of_values + _BASELINE_WEIGHT * of_baselines

    def _actions_taken(self, rollout: GroupRollout) -> Tensor:
        """Actions of every step as the critic sees them; zeros for ends. [S + P, continuous + choices]"""
        ends = len(rollout.trajectories.lengths)
        choices = rollout.continuous_actions.new_zeros(
            (len(rollout.trajectories), self._spec.action_spec.mask_size)
        )
        choices.scatter_(1, rollout.discrete_actions + self._policy.actions.offsets, 1.0)
        actions_taken = torch.cat([rollout.continuous_actions, choices], dim=1)
        return torch.cat([actions_taken, actions_taken.new_zeros((ends, actions_taken.shape[1]))])

    def _value_metrics(
        self, mask: NDArray[np.bool_], values: Tensor, baselines: NDArray[np.float32]
    ) -> dict[str, float]:
        predicted = values.cpu().numpy()[mask[:, 0]]
        metrics: dict[str, float] = {}
        for signal, source in enumerate(self._rewards):
            label = source.name.capitalize()
            metrics[f"Policy/{label} Value Estimate"] = float(predicted[:, signal].mean())
            metrics[f"Policy/{label} Baseline Estimate"] = float(baselines[:, signal].mean())
        return metrics
