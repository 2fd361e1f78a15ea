"""Deep Q-learning, Mnih et al. 2015 (Human-level control through deep reinforcement learning).

In the order of the paper's algorithm 1: act ε-greedily, store steps, and for every few steps make one gradient step
towards r + γ Q'(o', a'), where Q' is the target network. Later extensions are settings: double Q-learning (on by
default), priorities, n-step targets, dueling heads, and memory (DRQN, Hausknecht & Stone 2015, arXiv:1507.06527).
Sequences begin with the agent's stored memory. For discrete actions with one or more branches.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import DQNSettings
from trainer_service.learning.algorithms.common.checks import require_discrete, require_settings
from trainer_service.learning.algorithms.common.cloning import make_cloning, margin_loss
from trainer_service.learning.algorithms.common.exploration import EpsilonGreedy
from trainer_service.learning.algorithms.common.learner import Compute, Metrics
from trainer_service.learning.algorithms.common.off_policy.replay_learner import ReplayLearner, bounded_actor
from trainer_service.learning.algorithms.common.off_policy.transition_minibatch import (
    TransitionMinibatch,
    transition_parts,
)
from trainer_service.learning.algorithms.common.off_policy.update_schedule import target_tau
from trainer_service.learning.algorithms.common.policy_network import GreedyPolicyNetwork
from trainer_service.learning.algorithms.common.reward_models import make_reward_sources
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.flat import TargetNetwork
from trainer_service.learning.networks.optimizers import make_optimizer
from trainer_service.learning.networks.policies.imitator import Imitator
from trainer_service.learning.networks.policies.q_network import QNetwork
from trainer_service.learning.networks.random_streams import seeded
from trainer_service.ops.q_learning import (
    advantage_targets,
    best_value,
    chosen_value,
    double_q_value,
    td_loss,
    td_targets,
)
from unity_bridge.specs import BehaviorSpec


class DQN(ReplayLearner[TransitionMinibatch]):
    """A learner of action values, with a target network and a replay buffer."""

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError if the behavior's sensors or actions are not supported."""
        hyper = require_settings(settings, DQNSettings)
        require_discrete(settings.trainer_type, spec.action_spec)
        device, network_settings = compute.device, settings.network_settings
        with seeded(compute.seed):
            network = QNetwork(spec, network_settings, dueling=hyper.dueling).to(device)
            sources = make_reward_sources(spec, settings, device, compute.shard)
        target = TargetNetwork(network)
        optimizer = make_optimizer(network.parameters(), hyper, compute.shard)
        normalizer = ObservationNormalizer(spec.observation_specs, normalize=network_settings.normalize)
        normalizer.to(device)
        self._hyper = hyper
        self._branches = spec.action_spec.discrete_branches
        imitator, loss = Imitator.of_trunk(network.trunk, network.decide), margin_loss(self._branches)
        self._network, self._target, self._optimizer = network, target, optimizer
        super().__init__(
            settings,
            compute,
            actor=bounded_actor(
                network, normalizer, compute, GreedyPolicyNetwork, exploration=EpsilonGreedy(hyper)
            ),
            parts=transition_parts(spec, settings, compute, sources, normalizer, network.memory_size),
            cloning=make_cloning(
                spec,
                settings,
                compute,
                network,
                lambda: [imitator],
                loss,
                optimizer.parameters,
                normalizer.forward,
            ),
            networks={"network": network, "target": target.network},
            optimizers={"optimizer": optimizer},
        )

    def update(self, step: int) -> Metrics:
        """Makes the gradient steps that are due: Q(o, a) moves towards r + γ Q'(o', a')."""
        updates = self.begin_update(step)
        replay: Metrics = {}
        for batch in updates.minibatches():
            # The values at the last minibatch; none without a minibatch.
            replay = self.replay.metrics()
            targets = self.targets(batch)
            q = chosen_value(
                self._network.encoded_q_values(batch.inputs), batch.discrete_actions, self._branches
            )
            errors = q - targets
            loss = td_loss(errors, batch.weights)
            updates.minimize(self._optimizer, loss)
            absolute = errors.detach().abs()
            means = {
                "Losses/Value Loss": loss,
                "Losses/TD Error": absolute.mean(),
                "Policy/Mean Q": q.detach().mean(),
                "Policy/Extrinsic Reward": batch.task_rewards.mean(),
            }
            updates.report(means)
            updates.finish_step(absolute)
            tau = target_tau(self._hyper, self.replay.updates)
            self._target.soft_update(self._optimizer.parameters, tau)
            updates.clone()
        return {**updates.metrics({**updates.means(), **replay}), **updates.learn_rewards()}

    @torch.no_grad()
    def targets(self, batch: TransitionMinibatch) -> Tensor:
        """Targets r + γ Q'(o', a') of the actions' values, with the action gap of ``advantage_learning``. [B]"""
        q = self._target.network.encoded_q_values(batch.next_inputs)
        online_q = self._network.encoded_q_values(batch.next_inputs) if self._hyper.double else q
        values = double_q_value(online_q, q, batch.next_allowed_or_none, self._branches)
        targets = td_targets(batch.rewards, batch.discounts, values, batch.terminated)
        if not (alpha := self._hyper.advantage_learning):
            return targets
        q = self._target.network.encoded_q_values(batch.inputs)
        best = best_value(q, batch.allowed_or_none, self._branches)
        chosen = chosen_value(q, batch.discrete_actions, self._branches)
        return advantage_targets(targets, best, chosen, alpha)
