"""Deep deterministic policy gradient, Lillicrap et al. 2016 (arXiv:1509.02971).

Top to bottom as in the paper's algorithm 1: act with noise, remember, and for every few steps one gradient step of
the critic, one of the policy, and a step of their targets. For continuous actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.common.acting import sample_actions, to_tensor
from trainer_service.algorithms.common.algorithm import Compute, Metrics
from trainer_service.algorithms.common.checks import require_settings
from trainer_service.algorithms.common.off_policy.action_noise import ActionNoise
from trainer_service.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.algorithms.common.off_policy.replay_sampler import ReplaySampler, horizon_of
from trainer_service.algorithms.common.off_policy.update_schedule import UpdateSchedule, target_tau
from trainer_service.algorithms.common.policy_network import PolicyNetwork, SquashedPolicyNetwork
from trainer_service.algorithms.common.schedules import learning_rate_at
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import DDPGSettings
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.flat import FlatOptimizer, TargetNetwork
from trainer_service.networks.policies.deterministic_actor import ActionCritic, DeterministicActor
from trainer_service.ops.q_learning import td_loss, td_targets
from trainer_service.replay.transitions import Sample, TransitionReplay
from trainer_service.rollout.assembler import Decisions
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation


class DDPG(ReplayLearner[Sample]):
    """One behavior's policy, critic, their targets, and replay buffer."""

    _exploration: ActionNoise

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that do not fit."""
        hyper = require_settings(settings, DDPGSettings)
        if spec.action_spec.discrete_branches or not spec.action_spec.continuous_size:
            branches = len(spec.action_spec.discrete_branches)
            raise ValueError(
                f"ddpg needs continuous actions alone; the behavior has {spec.action_spec.continuous_size} "
                f"continuous and {branches} discrete"
            )
        task = settings.reward_signals["extrinsic"]
        self._settings = settings
        self._hyper = hyper
        self._device = compute.device
        self._gamma, self._strength = task.gamma, task.strength
        network = settings.network_settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(compute.seed)
            self._actor = DeterministicActor(spec, network).to(self._device)
            self._critic = ActionCritic(spec, network).to(self._device)
        self._target_actor, self._target_critic = TargetNetwork(self._actor), TargetNetwork(self._critic)
        self._actor_optimizer = FlatOptimizer(self._actor.parameters())
        self._critic_optimizer = FlatOptimizer(self._critic.parameters())
        self._normalizer = ObservationNormalizer(spec.observation_specs, normalize=network.normalize).to(
            self._device
        )
        self._acting = torch.Generator(self._device).manual_seed(compute.seed + 1)
        self._exploration = ActionNoise(hyper, spec.action_spec.continuous_size, hyper.buffer_init_steps)
        self.memory_size = self._exploration.memory_size
        self.horizon = horizon_of(settings, hyper.n_step)
        alpha, n_step = hyper.replay.priority_exponent, hyper.n_step
        replay = TransitionReplay(spec, hyper.buffer_size, alpha=alpha, n_step=n_step, gamma=task.gamma)
        schedule = UpdateSchedule(max(hyper.buffer_init_steps, hyper.batch_size), hyper.steps_per_update)
        self._replay = ReplaySampler(replay, hyper, compute.seed, schedule)

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions:
        """Decides for M agents in one forward pass, and adds noise while it learns, unless ``deterministic``."""
        decisions = sample_actions(
            self._actor,
            self._normalizer.forward,
            observations,
            allowed_actions,
            memories,
            device=self._device,
            sample=self._actor.actions.most_likely,
        )
        if self._training and not deterministic:
            return self._exploration.add_noise(decisions, self._acting)
        return decisions

    def update(self, step: int) -> Metrics:
        """As many gradient steps as were earned since the last call."""
        rate = learning_rate_at(self._hyper, step, self._settings.max_steps)
        rng = self._replay.rng()
        reports = [self._step(sample, rate) for sample in self._replay.minibatches(rng)]
        metrics = {
            "Policy/Learning Rate": rate,
            "Policy/Exploration Noise": self._exploration.deviation,
        }
        if reports:
            critic_loss, error, value, policy_loss = torch.stack(reports).mean(dim=0).tolist()
            metrics |= {
                "Losses/Value Loss": critic_loss,
                "Losses/TD Error": error,
                "Losses/Policy Loss": policy_loss,
                "Policy/Mean Q": value,
            }
        return metrics | self._replay.metrics()

    def _step(self, sample: Sample, rate: float) -> Tensor:
        """One gradient step of critic and policy, and one of their targets. Returns what is reported of it. [4]"""
        seen = self._inputs(sample.observations)
        q, errors, critic_loss = self._update_critic(sample, seen, rate)
        policy_loss = self._update_actor(seen, rate)
        absolute = errors.abs()
        self._replay.finish_update(sample.rows, absolute)
        tau = target_tau(self._hyper, self._replay.updates)
        self._target_actor.soft_update(self._actor_optimizer.parameters, tau)
        self._target_critic.soft_update(self._critic_optimizer.parameters, tau)
        return torch.stack([critic_loss, absolute.mean(), q.mean(), policy_loss])

    def _update_critic(
        self, sample: Sample, seen: list[Tensor], rate: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Towards r + γ Q'(o', μ'(o')), eq. 4 and 5. Returns Q and its errors, [B] each, and the loss."""
        rewards, over = (
            to_tensor(column, self._device) for column in (sample.task_rewards, sample.terminated)
        )
        with torch.no_grad():
            follows = self._inputs(sample.next_observations)
            next_actions = self._target_actor.network.forward(follows)
            bootstrap = self._target_critic.network.forward(follows, next_actions)
            targets = td_targets(self._strength * rewards, self._discounts(sample), bootstrap, over)
        q = self._critic.forward(seen, to_tensor(sample.continuous_actions, self._device))
        errors = q - targets
        weights = None if sample.weights is None else to_tensor(sample.weights, self._device)
        loss = td_loss(errors, weights)
        self._critic_optimizer.minimize(loss, rate, self._hyper.max_grad_norm)
        return q.detach(), errors.detach(), loss.detach()

    def _update_actor(self, seen: list[Tensor], rate: float) -> Tensor:
        """Towards what the critic values more. Returns the loss."""
        loss = -self._critic.forward(seen, self._actor.forward(seen)).mean()
        self._actor_optimizer.minimize(loss, rate, self._hyper.max_grad_norm)
        return loss.detach()

    def _discounts(self, sample: Sample) -> Tensor | float:
        return self._gamma if sample.discounts is None else to_tensor(sample.discounts, self._device)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay buffer: see ``replay_state``."""
        return {
            "actor": self._actor.state_dict(),
            "critic": self._critic.state_dict(),
            "target_actor": self._target_actor.network.state_dict(),
            "target_critic": self._target_critic.network.state_dict(),
            "actor_optimizer": self._actor_optimizer.adam.state_dict(),
            "critic_optimizer": self._critic_optimizer.adam.state_dict(),
            "normalizer": self._normalizer.state_dict(),
            "acting": self._acting.get_state(),
            **self._replay.state_dict(),
            "lived": self._exploration.env_steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there with an empty buffer: learning goes on after ``buffer_init_steps``."""
        self.load_weights(state)
        self._actor_optimizer.adam.load_state_dict(state["actor_optimizer"])
        self._critic_optimizer.adam.load_state_dict(state["critic_optimizer"])
        self._acting.set_state(state["acting"].cpu())
        self._replay.load_state_dict(state)
        self._exploration.env_steps = state["lived"]

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Networks, targets and normalizer. Raises KeyError or RuntimeError where they do not fit."""
        self._actor.load_state_dict(state["actor"])
        self._critic.load_state_dict(state["critic"])
        self._target_actor.network.load_state_dict(state["target_actor"])
        self._target_critic.network.load_state_dict(state["target_critic"])
        self._normalizer.load_state_dict(state["normalizer"])

    def policy_network(self) -> PolicyNetwork:
        """Normalizer and actor as they are now, to be exported: without noise."""
        return SquashedPolicyNetwork(self._normalizer, self._actor)
