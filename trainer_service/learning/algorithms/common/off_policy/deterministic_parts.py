"""Shared parts of learners with a deterministic policy and a critic, for continuous actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import DDPGSettings
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.algorithms.common.checks import require_continuous, require_settings
from trainer_service.learning.algorithms.common.cloning import action_loss, make_cloning
from trainer_service.learning.algorithms.common.exploration import ActionNoise
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.off_policy.replay_learner import bounded_actor
from trainer_service.learning.algorithms.common.off_policy.transition_minibatch import transition_parts
from trainer_service.learning.algorithms.common.policy_network import SquashedPolicyNetwork
from trainer_service.learning.algorithms.common.reward_models import make_reward_sources
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.flat import FlatOptimizer, TargetNetwork
from trainer_service.learning.networks.optimizers import make_optimizer
from trainer_service.learning.networks.policies.deterministic_actor import (
    ActionCritic,
    DeterministicActor,
    RememberingActor,
)
from trainer_service.learning.networks.policies.imitator import Imitator
from trainer_service.learning.networks.policies.soft_actor import SoftCritics
from trainer_service.learning.networks.random_streams import seeded
from unity_bridge.specs import BehaviorSpec

Critic = ActionCritic | SoftCritics
"""One or more Q functions, from observations and actions [B, C] to values [..., B]."""


class PolicyAndCritic(NamedTuple):
    """A deterministic policy and its critic, their targets and their optimizers."""

    policy: DeterministicActor
    critic: Critic
    target_policy: TargetNetwork[DeterministicActor]
    target_critic: TargetNetwork[Critic]
    policy_optimizer: FlatOptimizer
    critic_optimizer: FlatOptimizer

    def update_targets(self, tau: float) -> None:
        """Moves both targets towards their networks by the share ``tau``."""
        self.target_policy.soft_update(self.policy_optimizer.parameters, tau)
        self.target_critic.soft_update(self.critic_optimizer.parameters, tau)


def deterministic_parts(
    spec: BehaviorSpec,
    settings: TrainerSettings,
    compute: Compute,
    make_critic: Callable[[BehaviorSpec, NetworkSettings], Critic],
) -> tuple[PolicyAndCritic, dict[str, Any]]:
    """Makes networks and their optimizers, and the arguments of ReplayLearner.

    Raises ValueError if the behavior's sensors or actions are not supported.
    """
    hyper = require_settings(settings, DDPGSettings)
    require_continuous(settings.trainer_type, spec.action_spec)
    device, network_settings = compute.device, settings.network_settings
    with seeded(compute.seed):
        policy = DeterministicActor(spec, network_settings).to(device)
        critic = make_critic(spec, network_settings).to(device)
        sources = make_reward_sources(spec, settings, device, compute.shard)
    own = PolicyAndCritic(
        policy,
        critic,
        TargetNetwork(policy),
        TargetNetwork(critic),
        *(make_optimizer(network.parameters(), hyper, compute.shard) for network in (policy, critic)),
    )
    normalizer = ObservationNormalizer(spec.observation_specs, normalize=network_settings.normalize).to(
        device
    )
    acting = RememberingActor(policy, critic) if critic.memory_size else policy
    noise = ActionNoise(hyper, spec.action_spec.continuous_size, hyper.buffer_init_steps)
    imitator, loss = Imitator.of_trunk(policy.actor, policy.decide), action_loss(policy.actions)
    parameters = own.policy_optimizer.parameters
    return own, {
        "actor": bounded_actor(
            acting, normalizer, compute, SquashedPolicyNetwork, exploration=noise, exported=policy
        ),
        "parts": transition_parts(spec, settings, compute, sources, normalizer, acting.memory_size),
        "cloning": make_cloning(
            spec, settings, compute, policy, lambda: [imitator], loss, parameters, normalizer.forward
        ),
        "networks": {
            "actor": policy,
            "critic": critic,
            "target_actor": own.target_policy.network,
            "target_critic": own.target_critic.network,
        },
        "optimizers": {"actor_optimizer": own.policy_optimizer, "critic_optimizer": own.critic_optimizer},
    }
