"""MA-POCA, Cohen et al. 2021 (arXiv:2111.05992), with ML-Agents' settings: credit beyond an agent's death.

All agents learn from the group's λ-returns, including agents that died earlier. An agent's advantage is the return
minus a baseline from the other agents' observations and actions.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import POCASettings
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute, Metrics
from trainer_service.learning.algorithms.common.observation_selection import sensors_except
from trainer_service.learning.algorithms.common.on_policy.group_rollout import (
    CriticTargets,
    JointStepBatch,
    all_joint_steps,
    group_advantages,
)
from trainer_service.learning.algorithms.common.on_policy.learner import OnPolicyLearner
from trainer_service.learning.algorithms.common.on_policy.parts import group_parts
from trainer_service.learning.algorithms.common.on_policy.rollout import GroupRollout, log_prob_and_entropy
from trainer_service.learning.algorithms.common.on_policy.update import surrogate
from trainer_service.learning.networks.critics.poca_critic import POCACritic
from trainer_service.learning.networks.encoders.layers import in_chunks
from trainer_service.learning.rollout.sensor_roles import SensorRole
from trainer_service.ops.losses import clipped_value_loss
from trainer_service.ops.returns import standardize
from unity_bridge.specs import BehaviorSpec

_CHUNK = 1024
_BASELINE_WEIGHT = 0.5


def make_poca_critic(spec: BehaviorSpec, network: NetworkSettings, signals: int) -> POCACritic:
    """Makes the critic's network, with one value for each reward signal."""
    # The critic treats agents of one behavior as interchangeable, but not agents of a heterogeneous group.
    hidden = {SensorRole.GLOBAL_STATE} if spec.members else {SensorRole.AGENT_ID, SensorRole.GLOBAL_STATE}
    return POCACritic(spec, network, agent_sensors=sensors_except(spec, hidden), signals=signals)


class POCA(OnPolicyLearner):
    """PPO with a critic by attention, and counterfactual baselines."""

    _hyper: POCASettings

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError if the networks do not support the behavior's sensors or actions."""
        require_settings(settings, POCASettings)
        make_critic = partial(make_poca_critic, spec, settings.network_settings)
        self._actors, self._critic, parts = group_parts(spec, settings, compute, make_critic)
        super().__init__(settings, compute, parts)

    def update(self, step: int) -> Metrics:
        """Makes ``num_epoch`` passes of actors and critic over the collected experience, which is then discarded."""
        hyper = self._hyper
        epochs = self.begin_group_update(step, self._actors, None)  # attention supports any number
        rollout, scheduled = epochs.rollout, epochs.scheduled
        targets = self.estimate(rollout, scheduled.epsilon)
        evaluate = partial(log_prob_and_entropy, self._actors)
        weighted = rollout.weighted(targets.advantages)
        loss = surrogate(evaluate, rollout, weighted, scheduled.epsilon, scheduled.beta)
        value_loss = partial(self._critic_loss, rollout, targets)
        epochs.one_after_the_other(loss, value_loss, hyper.num_epoch)
        return {
            **epochs.metrics(),
            **targets.metrics,
            **self.finish_update(rollout, scheduled, step),
        }

    def estimate(self, rollout: GroupRollout, clip_epsilon: float) -> CriticTargets:
        """Returns advantages by the critic before the update, and its targets."""
        values, baselines = self._values_and_baselines(rollout)
        estimate = group_advantages(
            rollout, self.rewards, values.unsqueeze(1).cpu().numpy(), gae_lambda=self._hyper.lambd
        )
        joint_steps = rollout.joint_steps
        returns = estimate.returns[joint_steps.of_step, 0]
        agent_baselines = baselines.cpu().numpy()[joint_steps.of_step, joint_steps.agent_of_step]
        advantages = standardize((returns - agent_baselines).sum(axis=1).astype(np.float32))
        return_range = np.ptp(estimate.returns[estimate.mask], axis=0).astype(np.float32)
        return CriticTargets(
            advantages=torch.from_numpy(advantages.astype(np.float32)).to(self._device),
            targets=torch.from_numpy(estimate.returns.astype(np.float32)).to(self._device),
            mask=torch.from_numpy(joint_steps.steps >= 0).to(self._device),
            old_values=torch.cat([values.unsqueeze(1), baselines], dim=1),
            clip_range=clip_epsilon * torch.from_numpy(return_range).to(self._device),
            metrics=self._value_metrics(estimate.mask, values, agent_baselines),
        )

    def _values_and_baselines(self, rollout: GroupRollout) -> tuple[Tensor, Tensor]:
        """Values of all joint steps, [F, signals], and baselines, [F, n, signals]."""
        members, actions, seen = rollout.members, self._actions_taken(rollout), rollout.joint_observations
        with torch.no_grad():
            if self._critic.memory is not None:
                batch = all_joint_steps(rollout.joint_steps, self._device)
                return self._critic.forward(seen, actions, members, batch.filled)
            chunks = [
                self._critic.forward(seen, actions, members[chunk])
                for chunk in in_chunks(len(members), _CHUNK)
            ]
        values, baselines = zip(*chunks, strict=True)
        return torch.cat(values), torch.cat(baselines)

    def _critic_loss(self, rollout: GroupRollout, targets: CriticTargets, batch: JointStepBatch) -> Tensor:
        """The loss of values, plus half the loss of baselines. Both learn the group's returns."""
        values, baselines = self._critic.forward(
            rollout.joint_observations,
            self._actions_taken(rollout),
            rollout.members[batch.indices],
            batch.filled,
        )
        returns, old = targets.targets[batch.indices], targets.old_values[batch.indices]
        learned = targets.mask[batch.indices].nonzero(as_tuple=True)  # once, since it waits for a GPU
        of_values = clipped_value_loss(values, old[:, 0], returns[:, 0], clip_range=targets.clip_range)
        of_baselines = clipped_value_loss(
            baselines[learned],
            old[:, 1:][learned],
            returns.expand_as(baselines)[learned],
            clip_range=targets.clip_range,
        )
        # A joint step has one value, but a baseline for each present agent, so the means have different counts.
        of_values = self._shard.weighted(of_values, batch.share())
        of_baselines = self._shard.weighted(of_baselines, batch.share(targets.mask))
        return of_values + _BASELINE_WEIGHT * of_baselines

    def _actions_taken(self, rollout: GroupRollout) -> Tensor:
        """Actions of every step for the critic; zeros for ends. [S + P, continuous + choices]"""
        ends = len(rollout.trajectories.lengths)
        choices = rollout.continuous_actions.new_zeros(
            (len(rollout.trajectories), sum(self._actors.actions.branches))
        )
        choices.scatter_(1, rollout.discrete_actions + self._actors.actions.offsets, 1.0)
        actions_taken = torch.cat([rollout.continuous_actions, choices], dim=1)
        return torch.cat([actions_taken, actions_taken.new_zeros((ends, actions_taken.shape[1]))])

    def _value_metrics(
        self, mask: NDArray[np.bool_], values: Tensor, baselines: NDArray[np.float32]
    ) -> dict[str, float]:
        predicted = values.cpu().numpy()[mask[:, 0]]
        metrics: dict[str, float] = {}
        for signal, source in enumerate(self.rewards):
            label = source.name.capitalize()
            metrics[f"Policy/{label} Value Estimate"] = float(predicted[:, signal].mean())
            metrics[f"Policy/{label} Baseline Estimate"] = float(baselines[:, signal].mean())
        return metrics
