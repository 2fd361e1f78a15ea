"""Twin delayed deep deterministic policy gradient (TD3), Fujimoto et al. 2018 (arXiv:1802.09477).

DDPG with three remedies for a critic that overestimates: the smaller of two critics' values is the target
(clipped double Q), its action is blurred by noise (target policy smoothing), and policy and targets move once for
several steps of the critics (delayed policy updates).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer_service.algorithms.common.acting import to_tensor
from trainer_service.algorithms.common.learner import Compute
from trainer_service.algorithms.off_policy.ddpg import DDPG
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import TD3Settings
from trainer_service.networks.encoders.memory import EncoderInput
from trainer_service.networks.policies.soft_actor import SoftCritics
from trainer_service.ops.q_learning import td_loss, td_targets
from trainer_service.replay.transitions import Sample
from unity_bridge.specs import BehaviorSpec


class TwinCritics(SoftCritics):
    """Q₁ and Q₂: the critics of soft actor-critic, with one value each."""

    def forward(self, seen: EncoderInput, continuous: Tensor) -> Tensor:
        """Normalized observations and actions [B, C] to [2, B]."""
        return super().forward(seen, continuous)[..., 0, 0]


class TD3(DDPG):
    """A learner of a deterministic policy by two critics, with their targets and its replay buffer."""

    _settings_type = TD3Settings
    _hyper: TD3Settings
    _tags = ("Losses/Value Loss", "Losses/TD Error", "Policy/Mean Q")

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that do not fit."""
        super().__init__(spec, settings, compute)
        self._smoothing = self._make_generator("smoothing", 2)
        self._policy_losses: list[Tensor] = []
        """Losses of the policy since the last report."""

    def _make_critic(self) -> nn.Module:
        return TwinCritics(self._spec, self._settings.network_settings, value_heads=1)

    def _gradient_step(self, sample: Sample, rate: float) -> Tensor:
        inputs, next_inputs = self._encoder_inputs(sample)
        q, errors, loss = self._update_critic(sample, inputs, next_inputs, rate)
        absolute = errors.abs().mean(dim=0)
        self._replay.finish_update(absolute)
        if self._replay.updates % self._hyper.policy_delay == 0:
            self._policy_losses.append(self._addend(self._update_actor(inputs, rate)))
            self._update_targets()
        return torch.stack([loss, absolute.mean(), q.mean()])

    def _update_critic(
        self, sample: Sample, inputs: EncoderInput, next_inputs: EncoderInput, rate: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Moves each critic towards the same targets. Returns Q and its errors, [2, B] each, and the mean loss."""
        targets, weights = self._targets(sample, next_inputs), self._importance_weights(sample)
        q: Tensor = self._critic.forward(inputs, to_tensor(sample.continuous_actions, self._device))
        errors = q - targets
        loss = td_loss(errors[0], weights) + td_loss(errors[1], weights)
        self._minimize(self._critic_optimizer, loss, rate)
        return q.detach(), errors.detach(), loss.detach() / 2.0

    def _targets(self, sample: Sample, next_inputs: EncoderInput) -> Tensor:
        """r + γ min(Q₁'(o', ã), Q₂'(o', ã)), ã = μ'(o') + clip(ε, −c, c), ε ~ N(0, σ): algorithm 1 of the paper. [B]"""
        hyper, rewards = self._hyper, self._rewards(sample)
        with torch.no_grad():
            next_actions = self._target_actor.network.forward(next_inputs)
            noise = hyper.target_noise * self._shard.normal(next_actions, self._replay.part, self._smoothing)
            noise = noise.clamp(-hyper.target_noise_clip, hyper.target_noise_clip)
            next_actions = (next_actions + noise).clamp(-1.0, 1.0)
            next_values: Tensor = self._target_critic.network.forward(next_inputs, next_actions)
            terminated = to_tensor(sample.terminated, self._device)
            return td_targets(rewards, self._discounts(sample), next_values.amin(dim=0), terminated)

    def _update_actor(self, inputs: EncoderInput, rate: float) -> Tensor:
        """Moves the policy towards what the first critic values more. Returns the loss."""
        loss: Tensor = -self._critic.forward(inputs, self._actor.forward(inputs))[0].mean()
        self._minimize(self._actor_optimizer, loss, rate)
        return loss.detach()

    def _own_metrics(self) -> dict[str, float]:
        losses, self._policy_losses = self._policy_losses, []
        policy = (
            {"Losses/Policy Loss": float(self._shard.add_up(torch.stack(losses).mean()))} if losses else {}
        )
        return super()._own_metrics() | policy
