"""Soft actor-critic, Haarnoja et al. 2018 (arXiv:1812.05905), with ML-Agents' settings.

Top to bottom as in the paper's algorithm 1: act, remember, and for every few steps one gradient step of the critics,
the policy, the temperatures and the critics' targets. For continuous and discrete actions, and both at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer_service.algorithms.common import reward_models
from trainer_service.algorithms.common.actor import Actor, bounded_actions
from trainer_service.algorithms.common.cloning import BehavioralCloning, action_loss
from trainer_service.algorithms.common.learner import Compute, Metrics
from trainer_service.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.algorithms.common.off_policy.sac_minibatch import SACMinibatchBuilder
from trainer_service.algorithms.common.off_policy.sac_update import SACUpdate
from trainer_service.algorithms.common.off_policy.transition_learner import make_transition_replay
from trainer_service.algorithms.common.off_policy.update_schedule import UpdateSchedule
from trainer_service.algorithms.common.policy_network import SquashedPolicyNetwork
from trainer_service.config import SACSettings, TrainerSettings
from trainer_service.networks.policies.deterministic_actor import RememberingActor
from trainer_service.networks.policies.imitator import Imitator
from trainer_service.networks.policies.soft_actor import SoftActor
from trainer_service.replay.transitions import Sample, TransitionReplay
from unity_bridge.specs import BehaviorSpec


class SAC(ReplayLearner[Sample]):
    """A learner of a stochastic policy by soft critics, with its temperatures and replay buffer."""

    _settings_type = SACSettings
    _hyper: SACSettings

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that the networks cannot take."""
        super().__init__(spec, settings, compute)
        offsets = self._update_rule.actor.actions.offsets
        self._minibatches = SACMinibatchBuilder(self._normalizer, self._reward_sources, offsets, self._device)
        self._learning = self._make_generator("learning", 2)

    def _make_models(self) -> None:
        """Builds reward sources, then networks: the critics have a value for each."""
        self._make_reward_sources()
        self._make_networks()

    def _make_networks(self) -> None:
        discounts = torch.tensor([source.gamma for source in self._reward_sources], device=self._device)
        self._update_rule = SACUpdate(self._spec, self._settings, self._hyper, discounts, self._shard)

    def _make_schedules(self) -> list[UpdateSchedule]:
        # Its saved replay buffers have always had both.
        return [super()._make_schedules()[0], self._reward_schedule]

    def _make_buffer(self) -> TransitionReplay:
        return make_transition_replay(self._spec, self._hyper, self._update_rule.acting.memory_size)

    def _make_cloning(self, compute: Compute) -> BehavioralCloning:
        actor = self._update_rule.actor
        imitator = Imitator.of_trunk(actor.actor, actor.actions.forward)
        optimizer = self._update_rule.actor_optimizer
        return self._cloning_of(actor, [imitator], action_loss(actor.actions), optimizer, compute)

    def _make_actor(self, stream: torch.Generator) -> Actor:
        return Actor(
            self._update_rule.acting,
            self._normalizer,
            stream,
            self._device,
            env_actions=bounded_actions,
            model=SquashedPolicyNetwork,
            exported=self._update_rule.actor,
        )

    @property
    def _policy(self) -> RememberingActor | SoftActor:
        return self._update_rule.acting

    def _gradient_step(self, sample: Sample, rate: float) -> Tensor:
        part = self._replay.part
        result = self._update_rule.gradient_step(self._minibatches.build(sample), part, rate, self._learning)
        self._replay.finish_update(result.errors)
        return result.report()

    def _reported(self, means: list[float]) -> Metrics:
        return self._update_rule.metrics(means, reward_models.names(self._reward_sources))

    def _own_metrics(self) -> dict[str, float]:
        return {}

    def _reward_minibatches(self, rng: np.random.Generator) -> Iterator[Sample]:
        # Runs of earlier versions drew them from one stream with all others, and go on as they were.
        for _ in range(self._reward_schedule.due):
            yield self._replay.sample(rng)
            self._reward_schedule.updates += 1
            self._replay.updates += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay buffer: see ``replay_state``."""
        return {**super().state_dict(), **self._update_rule.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there with an empty buffer: learning goes on after ``buffer_init_steps``."""
        super().load_state_dict(state)
        self._update_rule.load_state_dict(state)

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Takes reward signals by their names: what the state does not know of begins anew."""
        known = reward_models.names_in_checkpoint(state)
        names = reward_models.names(self._reward_sources)
        heads = [known.index(name) if name in known else None for name in names]
        self._update_rule.load_weights(state, heads, len(known))
        super().load_weights(state)
