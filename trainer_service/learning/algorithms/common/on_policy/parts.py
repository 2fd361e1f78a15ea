"""The parts of on-policy learners, built in the order of their random initialization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import GroupOnPolicySettings, OnPolicyHyperparameters
from trainer_service.learning.algorithms.common.actor import Actor
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.cloning import BehavioralCloning, action_loss, make_cloning
from trainer_service.learning.algorithms.common.exploration import Exploration
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.observation_selection import (
    actor_sensors,
    sensors_except,
    with_sensors,
)
from trainer_service.learning.algorithms.common.on_policy.rollout import OnPolicyActor
from trainer_service.learning.algorithms.common.reward_models import make_reward_sources
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.flat import FlatOptimizer
from trainer_service.learning.networks.members import sensors_of_agents
from trainer_service.learning.networks.optimizers import make_optimizer
from trainer_service.learning.networks.policies.action_heads import set_log_std
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
from trainer_service.learning.networks.policies.group_actors import GroupActors
from trainer_service.learning.networks.policies.imitator import Imitator
from trainer_service.learning.networks.random_streams import random_stream, seeded
from trainer_service.learning.rewards import RewardSource
from trainer_service.learning.rollout.sensor_roles import SensorRole
from unity_bridge.specs import BehaviorSpec

PolicyT = TypeVar("PolicyT", ActorCritic, GroupActors)
CriticT = TypeVar("CriticT", bound=nn.Module)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Parts:
    """The parts of every on-policy learner, for any update."""

    actor: Actor

    rewards: Sequence[RewardSource]
    """The reward sources, in the order of the value heads."""

    reward_sensors: Sequence[int] = ()
    """Numbers of the sensors that reward sources use, for groups."""

    networks: Mapping[str, nn.Module]
    """Every network, by its key in checkpoints."""

    optimizers: Mapping[str, FlatOptimizer]
    """Every optimizer, by its key in checkpoints."""

    cloning: BehavioralCloning | None = None
    """The behavioral cloning; None without it."""


def agent_parts(
    spec: BehaviorSpec, settings: TrainerSettings, compute: Compute, make_policy: Callable[[], ActorCritic]
) -> tuple[ActorCritic, Parts]:
    """Makes the parts of a learner for single agents: one network with action and value heads.

    Returns this network and the parts.
    """
    with seeded(compute.seed):
        policy = _started(make_policy(), settings, compute.device)
        rewards = make_reward_sources(spec, settings, compute.device, compute.shard)
    normalizer = ObservationNormalizer(
        spec.observation_specs, normalize=settings.network_settings.normalize
    ).to(compute.device)
    optimizer = _optimizer(policy, settings, compute, epsilon=1e-8)
    imitator, loss = Imitator.of_trunk(policy.actor, policy.actions.forward), action_loss(policy.actions)
    parameters = optimizer.parameters
    return policy, Parts(
        actor=_actor(policy, normalizer, optimizer, compute),
        rewards=rewards,
        networks={"network": policy},
        optimizers={"optimizer": optimizer},
        cloning=make_cloning(
            spec, settings, compute, policy, lambda: [imitator], loss, parameters, normalizer.forward
        ),
    )


def group_parts(
    spec: BehaviorSpec,
    settings: TrainerSettings,
    compute: Compute,
    make_critic: Callable[[int], CriticT],
    exploration: Exploration | None = None,
) -> tuple[GroupActors, CriticT, Parts]:
    """Makes the parts of a group learner: decentralized actors, and a critic of the whole group.

    make_critic: makes the critic for a number of reward signals. Returns actors, critic and the parts.
    """
    hyper = require_settings(settings, GroupOnPolicySettings)
    own_sensors = sensors_except(spec, {SensorRole.AGENT_ID, SensorRole.GLOBAL_STATE})
    own = with_sensors(spec, own_sensors)
    told_apart = hyper.sharing != "full" or bool(spec.members)
    with seeded(compute.seed):
        actors = GroupActors(
            spec,
            settings.network_settings,
            agent_sensors=actor_sensors(spec, hyper),
            index_sensor=len(spec.observation_specs) - 1 if told_apart else None,
            share=hyper.sharing,
        )
        actors = _started(actors, settings, compute.device)
        rewards = make_reward_sources(own, settings, compute.device, compute.shard)
        critic = make_critic(len(rewards)).to(compute.device)
    normalizer = ObservationNormalizer(
        spec.observation_specs,
        normalize=settings.network_settings.normalize,
        has_sensor=sensors_of_agents(spec),
    ).to(compute.device)
    # ε of MAPPO's authors.
    optimizers = [_optimizer(network, settings, compute, epsilon=1e-5) for network in (actors, critic)]
    # A shared actor with ids learns for each id, and separate actors learn from the same demonstrations.
    shown = hyper.num_agents if hyper.agent_ids and hyper.sharing != "none" else 0
    parts = Parts(
        actor=_actor(actors, normalizer, optimizers[0], compute, exploration),
        rewards=rewards,
        reward_sensors=own_sensors,
        networks={"actors": actors, "critic": critic},
        optimizers={"actor_optimizer": optimizers[0], "critic_optimizer": optimizers[1]},
        cloning=make_cloning(
            own,
            settings,
            compute,
            actors,
            lambda: [
                imitator
                for each in actors
                for imitator in Imitator.of_trunk(each.trunk, each.actions.forward).of_each(shown)
            ],
            action_loss(actors.actions),
            optimizers[0].parameters,
            partial(normalizer.some, own_sensors),
        ),
    )
    return actors, critic, parts


def _started(policy: PolicyT, settings: TrainerSettings, device: torch.device) -> PolicyT:
    """Returns the policy on its device, with the initial deviations of the settings."""
    policy = policy.to(device)
    log_std = require_settings(settings, OnPolicyHyperparameters).log_std_init
    if log_std is not None:
        set_log_std(policy, log_std)
    return policy


def _optimizer(
    network: nn.Module, settings: TrainerSettings, compute: Compute, *, epsilon: float
) -> FlatOptimizer:
    return make_optimizer(network.parameters(), settings.hyperparameters, compute.shard, epsilon=epsilon)


def _actor(
    policy: OnPolicyActor,
    normalizer: ObservationNormalizer,
    optimizer: FlatOptimizer,
    compute: Compute,
    exploration: Exploration | None = None,
) -> Actor:
    # It has a separate random stream, so that minibatches do not depend on the number of decisions.
    stream, parameters = random_stream(compute.seed + 1), optimizer.parameters
    return Actor(policy, normalizer, stream, compute.device, exploration=exploration, parameters=parameters)
