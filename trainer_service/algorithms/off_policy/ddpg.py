"""Deep deterministic policy gradient, Lillicrap et al. 2016 (arXiv:1509.02971).

Top to bottom as in the paper's algorithm 1: act with noise, remember, and for every few steps one gradient step of
the critic, one of the policy, and a step of their targets. For continuous actions. With memory policy and critic have
one each (recurrent deterministic policy gradient, Heess et al. 2015, arXiv:1512.04455).
"""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from trainer_service.algorithms.common.acting import to_tensor
from trainer_service.algorithms.common.actor import Actor, bounded_actions
from trainer_service.algorithms.common.checks import require_continuous
from trainer_service.algorithms.common.cloning import BehavioralCloning, action_loss
from trainer_service.algorithms.common.exploration import ActionNoise
from trainer_service.algorithms.common.learner import Compute
from trainer_service.algorithms.common.off_policy.transition_learner import TransitionLearner
from trainer_service.algorithms.common.off_policy.update_schedule import target_tau
from trainer_service.algorithms.common.policy_network import SquashedPolicyNetwork
from trainer_service.config.hyperparameters.off_policy import DDPGSettings
from trainer_service.networks.encoders.memory import EncoderInput
from trainer_service.networks.flat import FlatOptimizer, TargetNetwork
from trainer_service.networks.policies.deterministic_actor import (
    ActionCritic,
    DeterministicActor,
    RememberingActor,
    RememberingCritics,
)
from trainer_service.networks.policies.imitator import Imitator
from trainer_service.ops.q_learning import td_loss, td_targets
from trainer_service.replay.transitions import Sample


class DDPG(TransitionLearner):
    """A learner of a deterministic policy by a critic, with their targets and its replay buffer."""

    _settings_type = DDPGSettings
    _hyper: DDPGSettings
    _tags: ClassVar[tuple[str, ...]] = (
        "Losses/Value Loss", "Losses/TD Error", "Policy/Mean Q", "Losses/Policy Loss",
    )  # fmt: skip

    def _make_networks(self) -> None:
        require_continuous(self._settings.trainer_type, self._spec.action_spec)
        network = self._settings.network_settings
        self._actor = DeterministicActor(self._spec, network).to(self._device)
        self._critic = self._make_critic().to(self._device)
        critics = cast(RememberingCritics, self._critic)
        self._acting_network = RememberingActor(self._actor, critics) if critics.memory_size else self._actor
        self._target_actor, self._target_critic = TargetNetwork(self._actor), TargetNetwork(self._critic)
        self._actor_optimizer = self._optimizer_of(self._actor)
        self._critic_optimizer = self._optimizer_of(self._critic)

    def _make_critic(self) -> nn.Module:
        """Builds Q, from what was seen and actions [B, C] to values [B]: RememberingCritics."""
        return ActionCritic(self._spec, self._settings.network_settings)

    def _make_actor(self, stream: torch.Generator) -> Actor:
        hyper = self._hyper
        return Actor(
            self._acting_network,
            self._normalizer,
            stream,
            self._device,
            exploration=ActionNoise(hyper, self._spec.action_spec.continuous_size, hyper.buffer_init_steps),
            env_actions=bounded_actions,
            model=SquashedPolicyNetwork,
            exported=self._actor,
        )

    def _make_cloning(self, compute: Compute) -> BehavioralCloning:
        actor = self._actor
        imitator = Imitator.of_trunk(actor.actor, actor.decide)
        return self._cloning_of(actor, [imitator], action_loss(actor.actions), self._actor_optimizer, compute)

    @property
    def _policy(self) -> DeterministicActor | RememberingActor:
        return self._acting_network

    def _gradient_step(self, sample: Sample, rate: float) -> Tensor:
        inputs, next_inputs = self._encoder_inputs(sample)
        q, errors, critic_loss = self._update_critic(sample, inputs, next_inputs, rate)
        policy_loss = self._update_actor(inputs, rate)
        absolute = errors.abs()
        self._replay.finish_update(absolute)
        self._update_targets()
        return torch.stack([critic_loss, absolute.mean(), q.mean(), policy_loss])

    def _update_critic(
        self, sample: Sample, inputs: EncoderInput, next_inputs: EncoderInput, rate: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Moves the critic towards the targets, eq. 4. Returns Q and its errors, [B] each, and the loss."""
        targets = self._targets(sample, next_inputs)
        q: Tensor = self._critic.forward(inputs, to_tensor(sample.continuous_actions, self._device))
        errors = q - targets
        loss = td_loss(errors, self._importance_weights(sample))
        self._minimize(self._critic_optimizer, loss, rate)
        return q.detach(), errors.detach(), loss.detach()

    def _targets(self, sample: Sample, next_inputs: EncoderInput) -> Tensor:
        """Targets r + γ Q'(o', μ'(o')), eq. 5. [B]"""
        rewards, terminated = self._rewards(sample), to_tensor(sample.terminated, self._device)
        with torch.no_grad():
            next_actions = self._target_actor.network.forward(next_inputs)
            next_values: Tensor = self._target_critic.network.forward(next_inputs, next_actions)
            return td_targets(rewards, self._discounts(sample), next_values, terminated)

    def _update_actor(self, inputs: EncoderInput, rate: float) -> Tensor:
        """Moves the policy towards what the critic values more, eq. 6. Returns the loss."""
        loss: Tensor = -self._critic.forward(inputs, self._actor.forward(inputs)).mean()
        self._minimize(self._actor_optimizer, loss, rate)
        return loss.detach()

    def _update_targets(self) -> None:
        """Moves both targets towards their networks, eq. 7."""
        tau = target_tau(self._hyper, self._replay.updates)
        self._target_actor.soft_update(self._actor_optimizer.parameters, tau)
        self._target_critic.soft_update(self._critic_optimizer.parameters, tau)

    def _weights(self) -> dict[str, nn.Module]:
        return {
            "actor": self._actor,
            "critic": self._critic,
            "target_actor": self._target_actor.network,
            "target_critic": self._target_critic.network,
        }

    def _optimizers(self) -> dict[str, FlatOptimizer]:
        return {"actor_optimizer": self._actor_optimizer, "critic_optimizer": self._critic_optimizer}
