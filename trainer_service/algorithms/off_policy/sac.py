"""Soft actor-critic, Haarnoja et al. 2018 (arXiv:1812.05905), with ML-Agents' settings.

Top to bottom as in the paper's algorithm 1: act, remember, and for every few steps one gradient step of the critics,
the policy, the temperatures and the critics' targets. For continuous and discrete actions, and both at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainer_service.algorithms.common import reward_models
from trainer_service.algorithms.common.algorithm import Compute, Metrics
from trainer_service.algorithms.common.cloning import BehavioralCloning
from trainer_service.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.algorithms.common.off_policy.replay_sampler import ReplaySampler
from trainer_service.algorithms.common.off_policy.sac_minibatch import SACMinibatchBuilder
from trainer_service.algorithms.common.off_policy.sac_update import SACUpdate
from trainer_service.algorithms.common.off_policy.transition_learner import make_transition_replay
from trainer_service.algorithms.common.off_policy.update_schedule import UpdateSchedule
from trainer_service.algorithms.common.policy_network import PolicyNetwork, SquashedPolicyNetwork
from trainer_service.algorithms.common.schedules import learning_rate_at
from trainer_service.config import SACSettings, TrainerSettings
from trainer_service.replay.transitions import Sample, TransitionReplay
from trainer_service.rewards import Experience
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.specs import BehaviorSpec


class SAC(ReplayLearner[Sample]):
    """A learner of a stochastic policy by soft critics, with its temperatures and replay buffer."""

    _settings_type = SACSettings
    _hyper: SACSettings

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that the networks cannot take."""
        super().__init__(spec, settings, compute)
        offsets = self._update_rule.actions.offsets
        self._minibatches = SACMinibatchBuilder(self._normalizer, self._reward_sources, offsets, self._device)
        self._cloning: BehavioralCloning | None = None
        if settings.behavioral_cloning is not None:
            actor, parameters = self._update_rule.actor, self._update_rule.actor_optimizer.parameters
            self._cloning = BehavioralCloning(spec, settings, actor, parameters, self._normalizer, compute)
        self._learning = self._make_generator("learning", 2)

    def _make_networks(self) -> None:
        self._reward_sources = reward_models.make_reward_sources(
            self._spec, self._settings, self._device, self._shard
        )
        self._reward_models = [source for source in self._reward_sources if source.learns]
        discounts = torch.tensor([source.gamma for source in self._reward_sources], device=self._device)
        self._update_rule = SACUpdate(self._spec, self._settings, self._hyper, discounts, self._shard)

    def _make_sampler(self) -> ReplaySampler[Sample]:
        hyper = self._hyper
        self._reward_schedule = UpdateSchedule(hyper.learning_starts, hyper.reward_signal_steps_per_update)
        return self._sampler_with(self._reward_schedule)

    def _make_buffer(self) -> TransitionReplay:
        return make_transition_replay(self._spec, self._hyper, self._update_rule.memory_size)

    @property
    def _policy(self) -> SACUpdate:
        return self._update_rule

    def prepare(self, step: int) -> None:
        """Reads demonstrations where something is still learned from them. Raises UserError where they are no good."""
        super().prepare(step)
        reward_models.read_demonstrations(self._reward_sources, self._cloning, step)

    def _remember(self, trajectories: Trajectories) -> None:
        if self._reward_models:
            experience = Experience(trajectories, self._device)
            for source in self._reward_models:
                source.update_statistics(experience)
        super()._remember(trajectories)

    def ready(self) -> bool:
        """Whether an update was earned, of the policy or of the reward models."""
        return super().ready() or bool(self._reward_models and self._reward_schedule.due)

    def update(self, step: int) -> Metrics:
        """Makes as many updates as were earned since the last call."""
        rate = learning_rate_at(self._hyper, step, self._settings.max_steps)
        rng = self._replay.rng()
        metrics = {"Policy/Learning Rate": rate}
        reports: list[Tensor] = []
        cloned: Metrics = {}
        for sample in self._replay.minibatches(rng):
            reports.append(self._gradient_step(sample, rate))
            if self._cloning is not None:
                cloned = self._cloning.update(step)
        if reports:
            means = self._shard.add_up(torch.stack(reports).mean(dim=0)).tolist()
            metrics |= self._update_rule.metrics(means, reward_models.names(self._reward_sources))
        return {**metrics, **cloned, **self._update_reward_models(rng)}

    def _gradient_step(self, sample: Sample, rate: float) -> Tensor:
        part = self._replay.part
        result = self._update_rule.gradient_step(self._minibatches.build(sample), part, rate, self._learning)
        self._replay.finish_update(result.errors)
        return self._addend(result.report())

    def _update_reward_models(self, rng: np.random.Generator) -> Metrics:
        """Makes the updates of reward models that are due, from minibatches of their own."""
        if not self._reward_models:
            return {}
        parts: dict[str, list[Tensor]] = defaultdict(list)
        for _ in range(self._reward_schedule.due):
            transitions = self._minibatches.transitions(self._replay.sample(rng))
            for source in self._reward_models:
                for tag, value in source.learn(transitions, self._replay.part).items():
                    parts[tag].append(value)
            self._reward_schedule.updates += 1
            self._replay.updates += 1
        return reward_models.mean_statistics(parts, self._shard)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay buffer: see ``replay_state``."""
        return {
            **super().state_dict(),
            **self._update_rule.state_dict(),
            **reward_models.state_dict(self._reward_sources, self._cloning),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there with an empty buffer: learning goes on after ``buffer_init_steps``."""
        reward_models.require_same_signals(self._reward_sources, state)
        super().load_state_dict(state)
        self._update_rule.load_state_dict(state)
        reward_models.load_state_dict(self._reward_sources, self._cloning, state)

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Takes reward signals by their names: what the state does not know of begins anew."""
        known = reward_models.names_in_checkpoint(state)
        names = reward_models.names(self._reward_sources)
        heads = [known.index(name) if name in known else None for name in names]
        self._update_rule.load_weights(state, heads, len(known))
        super().load_weights(state)
        reward_models.load_weights(self._reward_sources, state)

    def _acting_networks(self) -> Mapping[str, nn.Module]:
        return self._update_rule.acting_networks()

    def policy_network(self) -> PolicyNetwork:
        """Normalizer and actor as they are now, to be exported."""
        return SquashedPolicyNetwork(self._normalizer, self._update_rule.actor)
