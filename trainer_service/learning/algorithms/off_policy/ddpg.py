"""Deep deterministic policy gradient, Lillicrap et al. 2016 (arXiv:1509.02971).

In the order of the paper's algorithm 1: act with noise, store steps, and for every few steps make one gradient step of
the critic, one of the policy, and a step of their targets. For continuous actions. With memory, policy and critic have
one each (recurrent deterministic policy gradient, Heess et al. 2015, arXiv:1512.04455).
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import DDPGSettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute, Metrics
from trainer_service.learning.algorithms.common.off_policy.deterministic_parts import deterministic_parts
from trainer_service.learning.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.learning.algorithms.common.off_policy.transition_minibatch import TransitionMinibatch
from trainer_service.learning.algorithms.common.off_policy.update_schedule import target_tau
from trainer_service.learning.networks.policies.deterministic_actor import ActionCritic
from trainer_service.ops.q_learning import td_loss, td_targets
from unity_bridge.specs import BehaviorSpec


class DDPG(ReplayLearner[TransitionMinibatch]):
    """A learner of a deterministic policy with a critic, their targets and a replay buffer."""

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError if the behavior's sensors or actions are not supported."""
        hyper = require_settings(settings, DDPGSettings)
        own, parts = deterministic_parts(spec, settings, compute, ActionCritic)
        self._hyper, self._own = hyper, own
        super().__init__(settings, compute, **parts)

    def update(self, step: int) -> Metrics:
        """Makes the gradient steps that are due, of critic, policy and targets, eq. 4 to 7."""
        own, updates = self._own, self.begin_update(step)
        for batch in updates.minibatches():
            targets = self.targets(batch)
            q = own.critic.forward(batch.inputs, batch.continuous_actions)
            errors = q - targets
            critic_loss = td_loss(errors, batch.weights)
            updates.minimize(own.critic_optimizer, critic_loss)
            with own.critic_optimizer.held_still():
                policy_loss = -own.critic.forward(batch.inputs, own.policy.forward(batch.inputs)).mean()
            updates.minimize(own.policy_optimizer, policy_loss)
            absolute = errors.detach().abs()
            means = {
                "Losses/Value Loss": critic_loss,
                "Losses/TD Error": absolute.mean(),
                "Policy/Mean Q": q.detach().mean(),
                "Losses/Policy Loss": policy_loss,
            }
            updates.report(means)
            updates.finish_step(absolute)
            own.update_targets(target_tau(self._hyper, self.replay.updates))
            updates.clone()
        return {**updates.metrics(), **updates.learn_rewards()}

    @torch.no_grad()
    def targets(self, batch: TransitionMinibatch) -> Tensor:
        """Targets r + γ Q'(o', μ'(o')), eq. 5. [B]"""
        next_actions = self._own.target_policy.network.forward(batch.next_inputs)
        next_values = self._own.target_critic.network.forward(batch.next_inputs, next_actions)
        return td_targets(batch.rewards, batch.discounts, next_values, batch.terminated)
