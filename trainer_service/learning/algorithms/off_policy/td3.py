"""Twin delayed deep deterministic policy gradient (TD3), Fujimoto et al. 2018 (arXiv:1802.09477).

DDPG with three measures against overestimation. The smaller of two critics' values is the target (clipped double Q).
Noise is added to the target's action (target policy smoothing). Policy and targets are updated once for several steps
of the critics (delayed policy updates).
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import TD3Settings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute, Metrics
from trainer_service.learning.algorithms.common.off_policy.deterministic_parts import deterministic_parts
from trainer_service.learning.algorithms.common.off_policy.replay_learner import ReplayLearner, ReplayUpdate
from trainer_service.learning.algorithms.common.off_policy.transition_minibatch import TransitionMinibatch
from trainer_service.learning.algorithms.common.off_policy.update_schedule import target_tau
from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.learning.networks.policies.soft_actor import SoftCritics
from trainer_service.learning.networks.random_streams import random_stream
from trainer_service.ops.q_learning import td_loss, td_targets
from unity_bridge.specs import BehaviorSpec


class TwinCritics(SoftCritics):
    """Q₁ and Q₂: the critics of soft actor-critic, with one value each."""

    def forward(self, seen: EncoderInput, continuous: Tensor) -> Tensor:
        """Maps normalized observations and actions [B, C] to [2, B]."""
        return super().forward(seen, continuous)[..., 0, 0]


class TD3(ReplayLearner[TransitionMinibatch]):
    """A learner of a deterministic policy with two critics, their targets and a replay buffer."""

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError if the behavior's sensors or actions are not supported."""
        hyper = require_settings(settings, TD3Settings)
        own, parts = deterministic_parts(spec, settings, compute, partial(TwinCritics, value_heads=1))
        self._hyper, self._own = hyper, own
        self._smoothing = random_stream(compute.seed + 2)
        super().__init__(settings, compute, **parts, streams={"smoothing": self._smoothing})

    def update(self, step: int) -> Metrics:
        """Makes the gradient steps that are due, algorithm 1 of the paper."""
        own, updates = self._own, self.begin_update(step)
        for batch in updates.minibatches():
            targets = self.targets(batch, updates)
            q = own.critic.forward(batch.inputs, batch.continuous_actions)
            errors = q - targets
            loss = td_loss(errors[0], batch.weights) + td_loss(errors[1], batch.weights)
            updates.minimize(own.critic_optimizer, loss)
            absolute = errors.detach().abs().mean(dim=0)
            means = {
                "Losses/Value Loss": loss.detach() / 2.0,
                "Losses/TD Error": absolute.mean(),
                "Policy/Mean Q": q.detach().mean(),
            }
            updates.report(means)
            updates.finish_step(absolute)
            if self.replay.updates % self._hyper.policy_delay == 0:
                with own.critic_optimizer.held_still():
                    q = own.critic.forward(batch.inputs, own.policy.forward(batch.inputs))
                policy_loss = -q[0].mean()
                updates.minimize(own.policy_optimizer, policy_loss)
                updates.report({"Losses/Policy Loss": policy_loss})
                own.update_targets(target_tau(self._hyper, self.replay.updates))
            updates.clone()
        return {**updates.metrics(), **updates.learn_rewards()}

    @torch.no_grad()
    def targets(self, batch: TransitionMinibatch, updates: ReplayUpdate[TransitionMinibatch]) -> Tensor:
        """r + γ min(Q₁'(o', ã), Q₂'(o', ã)), ã = μ'(o') + clip(ε, −c, c), ε ~ N(0, σ): algorithm 1 of the paper. [B]"""
        hyper, limit = self._hyper, self._hyper.target_noise_clip
        next_actions = self._own.target_policy.network.forward(batch.next_inputs)
        noise = (hyper.target_noise * updates.normal(next_actions, self._smoothing)).clamp(-limit, limit)
        next_actions = (next_actions + noise).clamp(-1.0, 1.0)
        next_values = self._own.target_critic.network.forward(batch.next_inputs, next_actions)
        return td_targets(batch.rewards, batch.discounts, next_values.amin(dim=0), batch.terminated)
