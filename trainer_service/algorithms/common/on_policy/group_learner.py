"""What MAPPO, HAPPO, POCA and COMA share: actors that decide alone, and a critic that sees the group.

Top to bottom: act with the old policy, judge what was done by the critic, then some epochs of the actors on the
clipped surrogate and of the critic on returns. What a method makes of the group is in its own file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.algorithms.common import reward_models
from trainer_service.algorithms.common.acting import clip_actions, sample_actions
from trainer_service.algorithms.common.algorithm import Compute, Metrics
from trainer_service.algorithms.common.checks import require_settings
from trainer_service.algorithms.common.cloning import BehavioralCloning
from trainer_service.algorithms.common.group_metrics import (
    actor_step_metrics,
    mean_actor_metrics,
    reward_metrics,
)
from trainer_service.algorithms.common.observation_selection import (
    actor_sensors,
    sensors_except,
    with_sensors,
)
from trainer_service.algorithms.common.on_policy.group_rollout import (
    CriticTargets,
    GroupRollout,
    JointStepBatch,
    joint_step_batches,
)
from trainer_service.algorithms.common.on_policy.minibatches import (
    MinibatchSampler,
    make_sampler,
    with_progress,
)
from trainer_service.algorithms.common.on_policy.trajectory_state import from_tensors, to_tensors
from trainer_service.algorithms.common.policy_network import PolicyNetwork
from trainer_service.algorithms.common.schedules import Scheduled, scheduled_at
from trainer_service.algorithms.common.tensors import to_tensor
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import GroupOnPolicySettings
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.flat import FlatOptimizer
from trainer_service.networks.policies.action_heads import ActionParameters, executed
from trainer_service.networks.policies.group_actors import TeamActors
from trainer_service.ops.losses import clipped_surrogate_loss
from trainer_service.rewards import Experience
from trainer_service.rollout.assembler import Decisions
from trainer_service.rollout.joint_steps import find_joint_steps
from trainer_service.rollout.observation_selector import AGENT_ID
from trainer_service.rollout.trajectories import OnPolicyBuffer, Trajectories
from unity_bridge.specs import GLOBAL_STATE, BehaviorSpec
from unity_bridge.steps import Observation, join_observations

_ADAM_EPSILON = 1e-5
_T = TypeVar("_T")


class GroupLearner(ABC):
    """One behavior's actors, critic and update rule, for agents that come in groups."""

    _settings_type: ClassVar[type[GroupOnPolicySettings]]

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that the networks cannot take.

        spec: as the learner sees it: with the global state where the settings ask for it, with agents' ids last.
        """
        hyper = require_settings(settings, self._settings_type)
        self._spec = spec
        self._settings = settings
        self._hyper: GroupOnPolicySettings = hyper
        self.horizon = settings.time_horizon
        self._device = compute.device
        self._progress = compute.progress
        self._num_agents = hyper.num_agents
        self._actor_sensors = actor_sensors(spec, hyper)
        self._reward_sensors = sensors_except(spec, {AGENT_ID, GLOBAL_STATE})
        """Sensors that reward signals look at."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(compute.seed)
            self._actors = TeamActors(
                spec,
                settings.network_settings,
                agent_sensors=self._actor_sensors,
                index_sensor=len(spec.observation_specs) - 1 if hyper.share == "none" else None,
            ).to(self._device)
            self._rewards = reward_models.make_reward_sources(
                with_sensors(spec, self._reward_sensors), settings, self._device
            )
            self._critic = self._make_critic(len(self._rewards)).to(self._device)
        self._learned_rewards = [source for source in self._rewards if source.learns]
        self.memory_size = self._actors.memory_size
        self._normalizer = ObservationNormalizer(
            spec.observation_specs,
            normalize=settings.network_settings.normalize,
            except_for=AGENT_ID,
        ).to(self._device)
        self._actor_optimizer = FlatOptimizer(self._actors.parameters(), epsilon=_ADAM_EPSILON)
        self._critic_optimizer = FlatOptimizer(self._critic.parameters(), epsilon=_ADAM_EPSILON)
        self._acting = torch.Generator(self._device).manual_seed(compute.seed + 1)
        self._shuffling = torch.Generator(self._device).manual_seed(compute.seed + 2)
        self._buffer = OnPolicyBuffer()
        self._cloning = self._make_cloning(compute)

    def _make_cloning(self, compute: Compute) -> BehavioralCloning | None:
        settings = self._settings
        if settings.behavioral_cloning is None:
            return None
        parameters = self._actor_optimizer.parameters
        return BehavioralCloning(self._spec, settings, self._actors, parameters, self._normalizer, compute)

    @abstractmethod
    def _make_critic(self, signals: int) -> nn.Module:
        """The critic, with a value for each of so many reward signals."""

    @abstractmethod
    def _estimate_advantages(self, rollout: GroupRollout, scheduled: Scheduled) -> CriticTargets:
        """What the critic says of everything that was done, before it learns from it."""

    @abstractmethod
    def _critic_loss(
        self, rollout: GroupRollout, critic_targets: CriticTargets, batch: JointStepBatch
    ) -> Tensor:
        """Of some joint steps."""

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
        *,
        deterministic: bool,
    ) -> Decisions:
        """Decides for M agents in one forward pass, each from what it sees itself."""
        return sample_actions(
            self._actors,
            self._normalizer.forward,
            observations,
            allowed_actions,
            memories,
            device=self._device,
            sample=self._actors.actions.most_likely if deterministic else self._draw,
        )

    def _draw(self, parameters: ActionParameters, allowed: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Continuous actions [M, C], choices [M, branches] and log-probabilities [M]."""
        return self._actors.actions.sample(parameters, allowed, self._acting)

    def env_actions(self, decisions: Decisions) -> NDArray[np.float32]:
        """Between −1 and 1."""
        return clip_actions(decisions)

    def prepare(self, step: int) -> None:
        """Reads demonstrations where something is still learned from them. Raises UserError where they are no good."""
        reward_models.read_demonstrations(self._rewards, self._cloning, step)

    def record(self, trajectories: Trajectories) -> None:
        """Adds experience of the present policy, and lets the normalizer see it."""
        self._buffer.add(trajectories)
        self._normalizer.update([self._tensor(sensor) for sensor in trajectories.observations])

    def ready(self) -> bool:
        """``buffer_size`` agent steps are there."""
        return len(self._buffer) >= self._hyper.buffer_size

    def collected(self) -> tuple[int, int]:
        """Of ``buffer_size``."""
        return len(self._buffer), self._hyper.buffer_size

    def update(self, step: int) -> Metrics:
        """``num_epoch`` passes of actors and critic over everything collected, which is then thrown away."""
        scheduled = scheduled_at(self._hyper, step, self._settings.max_steps)
        trajectories = self._buffer.drain()
        experience = Experience(self._as_rewarded(trajectories), self._device, executed)
        rollout = self._as_tensors(trajectories, experience)
        critic_targets = self._estimate_advantages(rollout, scheduled)
        metrics = self._update_actors(rollout, critic_targets.advantages, scheduled)
        metrics["Losses/Value Loss"] = self._update_critic(rollout, critic_targets, scheduled)
        return {
            **metrics,
            "Policy/Learning Rate": scheduled.learning_rate,
            "Policy/Epsilon": scheduled.epsilon,
            "Policy/Beta": scheduled.beta,
            **critic_targets.metrics,
            **reward_metrics(rollout, self._rewards),
            **self._update_reward_models(experience),
            **({} if self._cloning is None else self._cloning.update(step)),
        }

    def _update_actors(
        self, rollout: GroupRollout, advantages: Tensor, scheduled: Scheduled
    ) -> dict[str, float]:
        """All agents at the same time. advantages: [S]. Returns what there is to report."""
        order = self._order(rollout.trajectories)
        parts = [
            self._actor_step(rollout, advantages, steps, sequences, scheduled)
            for epoch in range(self._hyper.num_epoch)
            for steps, sequences in self._with_progress(
                self._minibatches(order), epoch, self._hyper.num_epoch
            )
        ]
        return mean_actor_metrics(parts)

    def _with_progress(self, minibatches: Sequence[_T], epoch: int, epochs: int) -> Iterator[_T]:
        """Of the actors, which have the first half of an update's epochs, or of the critic."""
        return with_progress(minibatches, epoch, 2 * epochs, self._progress)

    def _actor_step(
        self,
        rollout: GroupRollout,
        advantages: Tensor,
        steps: Tensor,
        sequences: Sequences | None,
        scheduled: Scheduled,
    ) -> Tensor:
        """One gradient step. Returns what is reported of it."""
        log_prob, entropy = self._log_prob_and_entropy(rollout, steps, sequences)
        old = rollout.old_log_prob[steps]
        clip_epsilon = self._clip_epsilon(scheduled)
        policy_loss = self._policy_loss(log_prob, old, advantages[steps], clip_epsilon)
        loss = policy_loss - scheduled.beta * entropy
        self._actor_optimizer.minimize(loss, scheduled.learning_rate, self._hyper.max_grad_norm)
        return actor_step_metrics(policy_loss, entropy, log_prob.detach() - old, clip_epsilon)

    def _clip_epsilon(self, scheduled: Scheduled) -> float:
        """How far from 1 a probability ratio may move."""
        return scheduled.epsilon

    def _policy_loss(self, log_prob: Tensor, old: Tensor, advantages: Tensor, clip_epsilon: float) -> Tensor:
        """What the actors bring down, before the entropy. All [B]; a scalar."""
        return clipped_surrogate_loss(log_prob, old, advantages, clip_epsilon=clip_epsilon)

    def _log_prob_and_entropy(
        self, rollout: GroupRollout, steps: Tensor, sequences: Sequences | None
    ) -> tuple[Tensor, Tensor]:
        """Of what was done at these steps, by the actors as they are now: [B], and a mean."""
        parameters = self._actors.policy([sensor[steps] for sensor in rollout.observations], sequences)
        allowed, heads = rollout.allowed_actions[steps], self._actors.actions
        log_prob = heads.log_prob(
            parameters, allowed, rollout.continuous_actions[steps], rollout.discrete_actions[steps]
        )
        return log_prob, heads.entropy(parameters, allowed).mean()

    def _update_critic(
        self, rollout: GroupRollout, critic_targets: CriticTargets, scheduled: Scheduled
    ) -> float:
        """As many epochs and parts as the actors have. Returns the mean loss."""
        losses: list[Tensor] = []
        epochs = self._hyper.num_epoch
        for epoch in range(epochs, 2 * epochs):
            batches = joint_step_batches(
                rollout.joint_steps,
                -(-len(rollout.trajectories) // self._hyper.batch_size),
                self._shuffling,
                whole_trajectories=self._settings.network_settings.memory is not None,
            )
            for batch in self._with_progress(list(batches), epoch, epochs):
                loss = self._critic_loss(rollout, critic_targets, batch)
                self._critic_optimizer.minimize(
                    loss, scheduled.critic_learning_rate, self._hyper.max_grad_norm
                )
                losses.append(loss.detach())
        return float(torch.stack(losses).mean())

    def _update_reward_models(self, experience: Experience) -> Metrics:
        """As often as the policy learned, from minibatches as large."""
        return reward_models.update(
            self._learned_rewards,
            experience,
            epochs=self._hyper.num_epoch,
            batch_size=self._hyper.batch_size,
            generator=self._shuffling,
        )

    def _minibatches(self, order: MinibatchSampler) -> list[tuple[Tensor, Sequences | None]]:
        steps, minibatches = order.shuffle(self._shuffling)
        return [(steps[chunk], sequences) for chunk, sequences in minibatches]

    def _order(self, trajectories: Trajectories) -> MinibatchSampler:
        memory = self._settings.network_settings.memory
        return make_sampler(trajectories, memory, self._hyper.batch_size, self._device)

    def _as_rewarded(self, trajectories: Trajectories) -> Trajectories:
        """As reward signals see them."""
        seen, final = (
            tuple(sensors[i] for i in self._reward_sensors)
            for sensors in (trajectories.observations, trajectories.final_observations)
        )
        return replace(trajectories, observations=seen, final_observations=final)

    def _as_tensors(self, trajectories: Trajectories, experience: Experience) -> GroupRollout:
        both = zip(trajectories.observations, trajectories.final_observations, strict=True)
        none = np.zeros_like(trajectories.group_rewards)
        return GroupRollout(
            trajectories=trajectories,
            joint_steps=find_joint_steps(trajectories, self._group_size_of(trajectories)),
            rewards=[source.strength * source.record(experience) for source in self._rewards],
            common_rewards=[
                source.strength * (trajectories.group_rewards if source.name == "extrinsic" else none)
                for source in self._rewards
            ],
            observations=self._normalizer.forward(
                [self._tensor(join_observations(sensor)) for sensor in both]
            ),
            continuous_actions=self._tensor(trajectories.continuous_actions),
            discrete_actions=self._tensor(trajectories.discrete_actions),
            allowed_actions=self._tensor(trajectories.allowed_actions),
            old_log_prob=self._tensor(trajectories.log_probs),
        )

    def _group_size_of(self, trajectories: Trajectories) -> int:
        """How many agents groups have there."""
        return self._num_agents

    def state_dict(self) -> dict[str, Any]:
        """Networks, normalizer, optimizers, random streams and what was collected for the next update."""
        collected = self._buffer.peek()
        return {
            "actors": self._actors.state_dict(),
            "critic": self._critic.state_dict(),
            "normalizer": self._normalizer.state_dict(),
            "actors' optimizer": self._actor_optimizer.adam.state_dict(),
            "critic's optimizer": self._critic_optimizer.adam.state_dict(),
            "acting": self._acting.get_state(),
            "shuffling": self._shuffling.get_state(),
            **reward_models.state_dict(self._rewards, self._cloning),
            "collected": None if collected is None else to_tensors(collected),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        reward_models.require_same_signals(self._rewards, state)
        self.load_weights(state)
        reward_models.load_state_dict(self._rewards, self._cloning, state)
        self._actor_optimizer.adam.load_state_dict(state["actors' optimizer"])
        self._critic_optimizer.adam.load_state_dict(state["critic's optimizer"])
        self._acting.set_state(state["acting"].cpu())
        self._shuffling.set_state(state["shuffling"].cpu())
        self._buffer = OnPolicyBuffer()
        if state["collected"] is not None:
            self._buffer.add(from_tensors(state["collected"]))

    def replay_state(self) -> Mapping[str, NDArray[Any]] | None:
        """None: what was collected serves once, and is in ``state_dict`` until then."""
        return None

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Raises ValueError: there is none."""
        raise ValueError("a learner on policy keeps no experience")

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Actors, critic and normalizer. Raises KeyError or RuntimeError where they do not fit."""
        self._actors.load_state_dict(state["actors"])
        self._critic.load_state_dict(state["critic"])
        self._normalizer.load_state_dict(state["normalizer"])
        reward_models.load_weights(self._rewards, state)

    def policy_network(self) -> PolicyNetwork:
        """Normalizer and actors as they are now, to be exported."""
        return PolicyNetwork(self._normalizer, self._actors)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return to_tensor(array, self._device)
