"""Soft actor-critic, Haarnoja et al. 2018 (arXiv:1812.05905), with ML-Agents' settings.

Top to bottom as in the paper's algorithm 1: act, remember, and for every few steps one gradient step of the critics,
the policy, the temperatures and the critics' targets. For continuous and discrete actions, and both at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.common import reward_models
from trainer_service.algorithms.common.acting import sample_actions, to_tensor
from trainer_service.algorithms.common.algorithm import Compute, Metrics
from trainer_service.algorithms.common.checks import require_settings
from trainer_service.algorithms.common.cloning import BehavioralCloning
from trainer_service.algorithms.common.off_policy.replay_sampler import ReplaySampler, horizon_of
from trainer_service.algorithms.common.off_policy.sac_minibatch import SACMinibatchBuilder
from trainer_service.algorithms.common.off_policy.sac_update import SACUpdate
from trainer_service.algorithms.common.off_policy.update_schedule import UpdateSchedule
from trainer_service.algorithms.common.policy_network import PolicyNetwork, SquashedPolicyNetwork
from trainer_service.algorithms.common.schedules import learning_rate_at
from trainer_service.config import SACSettings, TrainerSettings
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.replay.sequence_replay import PrioritizedSequenceReplay, SequenceReplay
from trainer_service.replay.transitions import TransitionReplay
from trainer_service.rewards import Experience
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation


class SAC:
    """One behavior's policy, critics, temperatures and replay buffer."""

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that the networks cannot take."""
        hyper = require_settings(settings, SACSettings)
        self._settings = settings
        self._hyper = hyper
        self._device = compute.device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(compute.seed)
            self._rewards = reward_models.make_reward_sources(spec, settings, self._device)
            discounts = torch.tensor([source.gamma for source in self._rewards], device=self._device)
            self._update_rule = SACUpdate(spec, settings, hyper, discounts)
        self._learned_rewards = [source for source in self._rewards if source.learns]
        self.memory_size = self._update_rule.memory_size
        normalize = settings.network_settings.normalize
        self._normalizer = ObservationNormalizer(spec.observation_specs, normalize=normalize).to(self._device)
        offsets = self._update_rule.actor.actions.offsets
        self._minibatches = SACMinibatchBuilder(self._normalizer, self._rewards, offsets, self._device)
        self._cloning: BehavioralCloning | None = None
        if settings.behavioral_cloning is not None:
            actor, parameters = self._update_rule.actor, self._update_rule.actor_optimizer.parameters
            self._cloning = BehavioralCloning(spec, settings, actor, parameters, self._normalizer, compute)
        self._acting = torch.Generator(self._device).manual_seed(compute.seed + 1)
        self._learning = torch.Generator(self._device).manual_seed(compute.seed + 2)
        memory = settings.network_settings.memory
        if memory is None:
            self.horizon, sample_size = horizon_of(settings), hyper.batch_size
            replay = TransitionReplay(spec, hyper.buffer_size, alpha=hyper.replay.priority_exponent)
        else:
            # A trajectory is a sequence: whatever time_horizon says, none is longer, and none shorter but at the end.
            self.horizon = memory.sequence_length
            sample_size = max(hyper.batch_size // memory.sequence_length, 1)
            replay = _sequence_replay(spec, hyper, self.memory_size)
        start_at = max(hyper.buffer_init_steps, hyper.batch_size)
        schedule = UpdateSchedule(start_at, hyper.steps_per_update)
        self._reward_schedule = UpdateSchedule(start_at, hyper.reward_signal_steps_per_update)
        self._replay = ReplaySampler(
            replay, hyper, compute.seed, schedule, self._reward_schedule, sample_size=sample_size
        )

    def prepare(self, step: int) -> None:
        """Reads demonstrations where something is still learned from them. Raises UserError where they are no good."""
        reward_models.read_demonstrations(self._rewards, self._cloning, step)

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions:
        """Decides for M agents in one forward pass."""
        heads = self._update_rule.actor.actions
        return sample_actions(
            self._update_rule,
            self._normalizer.forward,
            observations,
            allowed_actions,
            memories,
            device=self._device,
            sample=heads.most_likely if deterministic else partial(heads.sample, generator=self._acting),
        )

    def env_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        """As they are: in (−1, 1) already."""
        return decisions.continuous_actions

    def record(self, trajectories: Trajectories) -> None:
        """Remembers experience, and lets the normalizer and the reward signals see it."""
        self._normalizer.update([to_tensor(sensor, self._device) for sensor in trajectories.observations])
        if self._learned_rewards:
            experience = Experience(trajectories, self._device)
            for source in self._learned_rewards:
                source.update_statistics(experience)
        self._replay.record(trajectories)

    def ready(self) -> bool:
        """An update was earned."""
        return self._replay.schedule.due > 0 or bool(self._learned_rewards and self._reward_schedule.due)

    def collected(self) -> tuple[int, int] | None:
        """Of those before the first update."""
        return self._replay.schedule.collected

    def update(self, step: int) -> Metrics:
        """As many updates as were earned since the last call."""
        rate = learning_rate_at(self._hyper, step, self._settings.max_steps)
        rng = self._replay.rng()
        metrics = {"Policy/Learning Rate": rate}
        reports: list[Tensor] = []
        cloned: Metrics = {}
        for sample in self._replay.minibatches(rng):
            made = self._update_rule.learn(self._minibatches.build(sample), rate, self._learning)
            self._replay.finish_update(sample.rows, made.errors)
            reports.append(made.report())
            if self._cloning is not None:
                cloned = self._cloning.update(step)
        if reports:
            means = torch.stack(reports).mean(dim=0).tolist()
            metrics |= self._update_rule.metrics(means, reward_models.names(self._rewards))
        return {**metrics, **cloned, **self._update_reward_models(rng)}

    def _update_reward_models(self, rng: np.random.Generator) -> Metrics:
        """What earns rewards of our own making learns on its own schedule, from draws of its own."""
        if not self._learned_rewards:
            return {}
        parts: dict[str, list[Tensor]] = defaultdict(list)
        for _ in range(self._reward_schedule.due):
            transitions = self._minibatches.transitions(self._replay.sample(rng))
            for source in self._learned_rewards:
                for tag, value in source.learn(transitions).items():
                    parts[tag].append(value)
            self._reward_schedule.updates += 1
            self._replay.updates += 1
        return {tag: float(torch.stack(values).mean()) for tag, values in parts.items()}

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay buffer: see ``replay_state``."""
        return {
            **self._update_rule.state_dict(),
            "normalizer": self._normalizer.state_dict(),
            "acting": self._acting.get_state(),
            "learning": self._learning.get_state(),
            **self._replay.state_dict(),
            **reward_models.state_dict(self._rewards, self._cloning),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there with an empty buffer: learning goes on after ``buffer_init_steps``."""
        reward_models.require_same_signals(self._rewards, state)
        self._update_rule.load_state_dict(state)
        self._normalizer.load_state_dict(state["normalizer"])
        reward_models.load_state_dict(self._rewards, self._cloning, state)
        self._acting.set_state(state["acting"].cpu())
        self._learning.set_state(state["learning"].cpu())
        self._replay.load_state_dict(state)

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Reward signals are known by their names: what the state does not know of begins anew."""
        theirs = reward_models.names_in_checkpoint(state)
        heads = [
            theirs.index(name) if name in theirs else None for name in reward_models.names(self._rewards)
        ]
        self._update_rule.load_weights(state, heads, len(theirs))
        self._normalizer.load_state_dict(state["normalizer"])
        reward_models.load_weights(self._rewards, state)

    def replay_state(self) -> dict[str, NDArray[Any]] | None:
        """The replay buffer and how far learning from it has come, if they shall be saved."""
        return self._replay.replay_state()

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continues with that buffer."""
        self._replay.load_replay_state(state)

    def policy_network(self) -> PolicyNetwork:
        """Normalizer and actor as they are now, to be exported."""
        return SquashedPolicyNetwork(self._normalizer, self._update_rule.actor)


def _sequence_replay(spec: BehaviorSpec, hyper: SACSettings, memory_size: int) -> TransitionReplay:
    if hyper.replay.priority_exponent is not None:
        return PrioritizedSequenceReplay(spec, hyper.buffer_size, memory_size, hyper.replay.priority_exponent)
    return SequenceReplay(spec, hyper.buffer_size, memory_size)
