"""Deep Q-learning, Mnih et al. 2015 (Human-level control through deep reinforcement learning).

Top to bottom as in the paper's algorithm 1: act ε-greedily, remember, and for every few steps one gradient step
towards r + γ Q'(o', a'), whose Q' is a slower copy. What came since is a setting each: two estimates (on by default),
priorities, several steps at once, and dueling heads. For discrete actions, of one branch or several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.common.acting import allowed_or_none, sample_actions, to_tensor
from trainer_service.algorithms.common.algorithm import Compute, Metrics
from trainer_service.algorithms.common.checks import require_discrete, require_settings
from trainer_service.algorithms.common.off_policy.epsilon_greedy import EpsilonGreedy
from trainer_service.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.algorithms.common.off_policy.replay_sampler import ReplaySampler, horizon_of
from trainer_service.algorithms.common.off_policy.update_schedule import UpdateSchedule, target_tau
from trainer_service.algorithms.common.policy_network import GreedyPolicyNetwork, PolicyNetwork
from trainer_service.algorithms.common.schedules import learning_rate_at
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import DQNSettings
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.flat import FlatOptimizer, TargetNetwork
from trainer_service.networks.policies.q_network import QNetwork
from trainer_service.ops import q_learning
from trainer_service.replay.transitions import Sample, TransitionReplay
from trainer_service.rollout.assembler import Decisions
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation


class DQN(ReplayLearner[Sample]):
    """One behavior's action values, their target, and its replay buffer."""

    _exploration: EpsilonGreedy

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has actions that are no choices."""
        hyper = require_settings(settings, DQNSettings)
        require_discrete("dqn", spec.action_spec)
        task = settings.reward_signals["extrinsic"]
        self._settings = settings
        self._hyper = hyper
        self._gamma, self._strength = task.gamma, task.strength
        self._device = compute.device
        self._branches = spec.action_spec.discrete_branches
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(compute.seed)
            self._network = QNetwork(spec, settings.network_settings, dueling=hyper.dueling).to(self._device)
        self._target = TargetNetwork(self._network)
        self._optimizer = FlatOptimizer(self._network.parameters())
        normalize = settings.network_settings.normalize
        self._normalizer = ObservationNormalizer(spec.observation_specs, normalize=normalize).to(self._device)
        self._acting = torch.Generator(self._device).manual_seed(compute.seed + 1)
        self._exploration = EpsilonGreedy(hyper)
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
        """Decides for M agents in one forward pass: the best actions, or while it learns now and then any."""
        heads = self._network.actions
        best = deterministic or not self._training
        return sample_actions(
            self._network,
            self._normalizer.forward,
            observations,
            allowed_actions,
            memories,
            device=self._device,
            sample=heads.most_likely
            if best
            else partial(self._exploration.sample_actions, heads, self._acting),
        )

    def update(self, step: int) -> Metrics:
        """As many gradient steps as were earned since the last call."""
        rate = learning_rate_at(self._hyper, step, self._settings.max_steps)
        metrics = {"Policy/Learning Rate": rate, "Policy/Exploration Rate": self._exploration.epsilon}
        reports: list[Tensor] = []
        for sample in self._replay.minibatches(self._replay.rng()):
            metrics |= self._replay.metrics()
            reports.append(self._learn(sample, rate))
        if reports:
            tags = ("Losses/Value Loss", "Losses/TD Error", "Policy/Mean Q", "Policy/Extrinsic Reward")
            metrics |= zip(tags, torch.stack(reports).mean(dim=0).tolist(), strict=True)
        return metrics

    def _learn(self, sample: Sample, rate: float) -> Tensor:
        """One gradient step, and one of the target. Returns means: loss, |δ|, Q of what was done, rewards. [4]"""
        rewards = self._strength * to_tensor(sample.task_rewards, self._device)
        targets = self._targets(sample, rewards)
        actions = to_tensor(sample.discrete_actions, self._device)
        weights = None if sample.weights is None else to_tensor(sample.weights, self._device)
        q = self._network.q_values(self._inputs(sample.observations))
        chosen = q_learning.chosen_value(q, actions, self._branches)
        errors = chosen - targets
        loss = q_learning.td_loss(errors, weights)
        self._optimizer.minimize(loss, rate, self._hyper.max_grad_norm)
        absolute = errors.detach().abs()
        self._replay.finish_update(sample.rows, absolute)
        self._target.soft_update(self._optimizer.parameters, target_tau(self._hyper, self._replay.updates))
        return torch.stack([loss.detach(), absolute.mean(), chosen.detach().mean(), rewards.mean()])

    def _targets(self, sample: Sample, rewards: Tensor) -> Tensor:
        """What the values of the actions should have been. [B]"""
        with torch.no_grad():
            inputs = self._inputs(sample.next_observations)
            allowed = allowed_or_none(sample.next_allowed_actions, self._device)
            q = self._target.network.q_values(inputs)
            chooser = self._network.q_values(inputs) if self._hyper.double else q
            values = q_learning.double_q_value(chooser, q, allowed, self._branches)
            terminated = to_tensor(sample.terminated, self._device)
            discounts: Tensor | float = self._gamma
            if sample.discounts is not None:
                discounts = to_tensor(sample.discounts, self._device)
            return q_learning.td_targets(rewards, discounts, values, terminated)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay buffer: see ``replay_state``."""
        return {
            "network": self._network.state_dict(),
            "target": self._target.network.state_dict(),
            "optimizer": self._optimizer.adam.state_dict(),
            "normalizer": self._normalizer.state_dict(),
            "acting": self._acting.get_state(),
            **self._replay.state_dict(),
            "exploration": self._exploration.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there with an empty buffer: learning goes on after ``buffer_init_steps``."""
        self.load_weights(state)
        self._optimizer.adam.load_state_dict(state["optimizer"])
        self._acting.set_state(state["acting"].cpu())
        self._replay.load_state_dict(state)
        self._exploration.load_state_dict(state["exploration"])

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """The network, its target and the normalizer."""
        self._network.load_state_dict(state["network"])
        self._target.network.load_state_dict(state["target"])
        self._normalizer.load_state_dict(state["normalizer"])

    def policy_network(self) -> PolicyNetwork:
        """Normalizer and values as they are now, to be exported: it never explores."""
        return GreedyPolicyNetwork(self._normalizer, self._network)
