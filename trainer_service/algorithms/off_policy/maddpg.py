"""Multi-agent deep deterministic policy gradient, Lowe et al. 2017 (arXiv:1706.02275).

Top to bottom as in the paper's algorithm 1: act alone, remember joint steps, and for every few steps one gradient
step of the critics, which see all agents, one of the actors, and a step of their targets. Discrete actions are
relaxed by the Gumbel-softmax where a gradient must pass through them.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from trainer_service.algorithms.common.acting import allowed_or_none, to_tensor
from trainer_service.algorithms.common.actor import Actor, bounded_actions
from trainer_service.algorithms.common.cloning import BehavioralCloning, action_loss
from trainer_service.algorithms.common.exploration import ActionNoise
from trainer_service.algorithms.common.learner import Compute
from trainer_service.algorithms.common.off_policy.group_replay_learner import GroupReplayLearner
from trainer_service.algorithms.common.off_policy.maddpg_update import MADDPGUpdate
from trainer_service.algorithms.common.off_policy.update_schedule import target_tau
from trainer_service.algorithms.common.policy_network import SquashedPolicyNetwork
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import MADDPGSettings
from trainer_service.networks.flat import FlatOptimizer
from trainer_service.networks.groups.member_actor_critic import MemberActors
from trainer_service.networks.groups.stacked_actor_critic import StackedActors
from trainer_service.networks.members import continuous_of_agents
from trainer_service.replay.joint_transitions import JointSample
from unity_bridge.specs import BehaviorSpec


class MADDPG(GroupReplayLearner):
    """A learner of actors by central critics, for agents that come in groups, with its targets and replay buffer."""

    _settings_type = MADDPGSettings
    _hyper: MADDPGSettings
    _tags = (
        "Losses/Value Loss", "Losses/TD Error", "Policy/Mean Q", "Policy/Mean Target", "Losses/Policy Loss",
    )  # fmt: skip

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that do not fit. spec: see GroupReplayLearner."""
        super().__init__(spec, settings, compute)
        self._relaxing = self._make_generator("relaxing", 2)

    def _make_networks(self) -> None:
        network, sensors = self._settings.network_settings, self._agent_sensors
        self._update_rule = MADDPGUpdate(
            self._agent_spec, network, self._hyper, sensors, self._num_agents, self._device, self._shard
        )

    def _make_actor(self, stream: torch.Generator) -> Actor:
        hyper, has_number = self._hyper, continuous_of_agents(self._agent_spec)
        return Actor(
            self._update_rule.actors,
            self._normalizer,
            stream,
            self._device,
            exploration=ActionNoise(hyper, self._spec.action_spec.continuous_size, hyper.buffer_init_steps),
            env_actions=bounded_actions,
            model=SquashedPolicyNetwork,
            own_actions=None if has_number is None else has_number.numpy(),
        )

    def _make_cloning(self, compute: Compute) -> BehavioralCloning:
        rule, actors = self._update_rule, self._update_rule.actors
        loss = action_loss(actors.actions)
        return self._cloning_of(actors, actors.imitators(), loss, rule.actor_optimizer, compute)

    @property
    def _policy(self) -> StackedActors | MemberActors:
        return self._update_rule.actors

    def _gradient_step(self, sample: JointSample, rate: float) -> Tensor:
        rule, batch = self._update_rule, self._minibatch(sample)
        allowed = allowed_or_none(sample.allowed_actions, self._device)
        noise = partial(self._shard.exponential, part=self._replay.part, generator=self._relaxing)
        actions = rule.joint_actions(to_tensor(sample.continuous_actions, self._device), batch.actions)
        report = rule.update_critics(batch, actions, rate)
        policy_loss = rule.update_actors(batch, actions, allowed, rate, noise)
        self._replay.finish_update(report.absolute)
        rule.soft_update_targets(target_tau(self._hyper, self._replay.updates))
        means = (report.squared, report.absolute.mean(), report.value, report.target, policy_loss)
        return torch.cat([torch.stack(means), report.squared_by_agent])

    def _weights(self) -> dict[str, nn.Module]:
        return self._update_rule.weights()

    def _optimizers(self) -> dict[str, FlatOptimizer]:
        return self._update_rule.optimizers()
