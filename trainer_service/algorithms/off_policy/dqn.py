"""Deep Q-learning, Mnih et al. 2015 (Human-level control through deep reinforcement learning).

Top to bottom as in the paper's algorithm 1: act ε-greedily, remember, and for every few steps one gradient step
towards r + γ Q'(o', a'), where Q' is a slower copy. What came since is a setting each: two estimates (on by default),
priorities, several steps at once, dueling heads, and memory (DRQN, Hausknecht & Stone 2015, arXiv:1507.06527), with
sequences that begin with the memory which the agent had then. For discrete actions, of one branch or several.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer_service.algorithms.common.acting import allowed_or_none, to_tensor
from trainer_service.algorithms.common.actor import Actor, bounded_actions
from trainer_service.algorithms.common.checks import require_discrete
from trainer_service.algorithms.common.cloning import BehavioralCloning, margin_loss
from trainer_service.algorithms.common.exploration import EpsilonGreedy
from trainer_service.algorithms.common.learner import Compute
from trainer_service.algorithms.common.off_policy.transition_learner import TransitionLearner
from trainer_service.algorithms.common.off_policy.update_schedule import target_tau
from trainer_service.algorithms.common.policy_network import GreedyPolicyNetwork
from trainer_service.config.hyperparameters.off_policy import DQNSettings
from trainer_service.networks.encoders.memory import EncoderInput
from trainer_service.networks.flat import FlatOptimizer, TargetNetwork
from trainer_service.networks.policies.imitator import Imitator
from trainer_service.networks.policies.q_network import QNetwork
from trainer_service.ops import q_learning
from trainer_service.replay.transitions import Sample


class DQN(TransitionLearner):
    """A learner of action values, with their target and its replay buffer."""

    _settings_type = DQNSettings
    _hyper: DQNSettings
    _tags = ("Losses/Value Loss", "Losses/TD Error", "Policy/Mean Q", "Policy/Extrinsic Reward")

    def _make_networks(self) -> None:
        require_discrete("dqn", self._spec.action_spec)
        self._branches = self._spec.action_spec.discrete_branches
        network = QNetwork(self._spec, self._settings.network_settings, dueling=self._hyper.dueling)
        self._network = network.to(self._device)
        self._target = TargetNetwork(self._network)
        self._optimizer = self._optimizer_of(self._network)
        self._replay_metrics: dict[str, float] = {}

    def _make_actor(self, stream: torch.Generator) -> Actor:
        return Actor(
            self._network,
            self._normalizer,
            stream,
            self._device,
            exploration=EpsilonGreedy(self._hyper),
            env_actions=bounded_actions,
            model=GreedyPolicyNetwork,
        )

    def _make_cloning(self, compute: Compute) -> BehavioralCloning:
        imitator = Imitator.of_trunk(self._network.trunk, self._network.decide)
        loss = margin_loss(self._branches)
        return self._cloning_of(self._network, [imitator], loss, self._optimizer, compute)

    @property
    def _policy(self) -> QNetwork:
        return self._network

    def _gradient_step(self, sample: Sample, rate: float) -> Tensor:
        self._replay_metrics = self._replay.metrics()
        inputs, next_inputs = self._encoder_inputs(sample)
        actions = to_tensor(sample.discrete_actions, self._device)
        targets = self._widened(self._targets(sample, next_inputs), sample, inputs, actions)
        q = self._network.encoded_q_values(inputs)
        chosen = q_learning.chosen_value(q, actions, self._branches)
        errors = chosen - targets
        loss = q_learning.td_loss(errors, self._importance_weights(sample))
        self._minimize(self._optimizer, loss, rate)
        absolute = errors.detach().abs()
        self._replay.finish_update(absolute)
        self._target.soft_update(self._optimizer.parameters, target_tau(self._hyper, self._replay.updates))
        task_reward = self._task_rewards(sample).mean()
        return torch.stack([loss.detach(), absolute.mean(), chosen.detach().mean(), task_reward])

    def _targets(self, sample: Sample, next_inputs: EncoderInput) -> Tensor:
        """Targets r + γ Q'(o', a') of the actions' values. [B]"""
        rewards = self._rewards(sample)
        with torch.no_grad():
            allowed = allowed_or_none(sample.next_allowed_actions, self._device)
            q = self._target.network.encoded_q_values(next_inputs)
            online_q = self._network.encoded_q_values(next_inputs) if self._hyper.double else q
            values = q_learning.double_q_value(online_q, q, allowed, self._branches)
            terminated = to_tensor(sample.terminated, self._device)
            return q_learning.td_targets(rewards, self._discounts(sample), values, terminated)

    @torch.no_grad()
    def _widened(self, targets: Tensor, sample: Sample, inputs: EncoderInput, actions: Tensor) -> Tensor:
        """Targets with the gap between actions that ``advantage_learning`` asks for. [B]"""
        if not (alpha := self._hyper.advantage_learning):
            return targets
        q = self._target.network.encoded_q_values(inputs)
        best = q_learning.best_value(q, allowed_or_none(sample.allowed_actions, self._device), self._branches)
        chosen = q_learning.chosen_value(q, actions, self._branches)
        return q_learning.advantage_targets(targets, best, chosen, alpha)

    def _own_metrics(self) -> dict[str, float]:
        # As they were when the last minibatch was drawn; none where none was.
        metrics, self._replay_metrics = self._replay_metrics, {}
        return metrics

    def _weights(self) -> dict[str, nn.Module]:
        return {"network": self._network, "target": self._target.network}

    def _optimizers(self) -> dict[str, FlatOptimizer]:
        return {"optimizer": self._optimizer}
