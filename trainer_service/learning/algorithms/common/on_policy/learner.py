"""The base of every on-policy learner: collecting a rollout, updating reward models, saving.

An algorithm defines its ``parts``, and in ``update`` the learning from a rollout.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

import torch

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import OnPolicyHyperparameters
from trainer_service.learning.algorithms.common import reward_models
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute, Learner, Metrics
from trainer_service.learning.algorithms.common.on_policy.kl_control import KLControl
from trainer_service.learning.algorithms.common.on_policy.parts import Parts
from trainer_service.learning.algorithms.common.on_policy.rollout import (
    MinibatchSampler,
    OnPolicyActor,
    Rollout,
    SequenceSampler,
    decouple,
    make_group_rollout,
    weight_metrics,
)
from trainer_service.learning.algorithms.common.on_policy.update import GroupEpochs
from trainer_service.learning.algorithms.common.schedules import Scheduled, learning_rate_at, scheduled_at
from trainer_service.learning.networks.policies.group_actors import GroupActors
from trainer_service.learning.networks.random_streams import random_stream, restore_streams
from trainer_service.learning.rollout.episode_runs import EpisodeRewards
from trainer_service.learning.rollout.trajectories import OPTIONAL, GroupIndex, OnPolicyBuffer, Trajectories


class OnPolicyLearner(Learner):
    """One behavior's parts, the buffer of experience between updates, and their checkpoints."""

    _hyper: OnPolicyHyperparameters

    def __init__(self, settings: TrainerSettings, compute: Compute, parts: Parts) -> None:
        """Raises ValueError if rollouts may be of an older policy and the algorithm cannot correct for that."""
        self._hyper = require_settings(settings, OnPolicyHyperparameters)
        if compute.decoupled and not self._hyper.supports_stale_rollouts:
            raise ValueError(
                f"{settings.trainer_type} cannot learn from rollouts of an older policy: "
                "distributed.collection must be 'sync'"
            )
        self.actor = parts.actor
        self.rewards = parts.rewards
        """The reward sources, in the order of the value heads."""
        self.networks = parts.networks
        """Every network, by its key in checkpoints."""
        self.optimizers = parts.optimizers
        """Every optimizer, by its key in checkpoints."""
        self.buffer = OnPolicyBuffer()
        """Trajectories for the next update."""
        self.horizon = settings.time_horizon
        self._settings = settings
        self._device = compute.device
        self._progress = compute.progress
        self._decoupled = compute.decoupled
        self._shard = compute.shard
        # A separate stream, so that minibatches and actions do not affect each other's random numbers.
        self._shuffling = random_stream(compute.seed + 2)
        self._episode_rewards = EpisodeRewards([source.name for source in self.rewards])
        self._kl_control: KLControl | None = None
        """Set if the KL divergence controls the learning rate or the epochs."""
        if self._hyper.measures_kl:
            self._kl_control = KLControl(self._hyper, cast(OnPolicyActor, parts.actor.network))
        self.cloning = parts.cloning
        self._reward_sensors = parts.reward_sensors

    @abstractmethod
    def update(self, step: int) -> Metrics:
        """Makes an update from all collected experience, which is then discarded."""

    def prepare(self, step: int) -> None:
        """Starts learning, and reads demonstrations in use. Raises UserError if they are invalid."""
        super().prepare(step)
        reward_models.read_demonstrations(self.rewards, self.cloning, step)

    def record(self, trajectories: Trajectories) -> None:
        """Adds experience for the next update, and updates the normalizer."""
        self.buffer.add(trajectories)
        self.actor.update_normalizer(trajectories)
        self.actor.exploration.record(trajectories)

    def ready(self) -> bool:
        """Whether ``buffer_size`` agent steps are collected."""
        return len(self.buffer) >= self._hyper.buffer_size

    def collected(self) -> tuple[int, int]:
        """Agent steps in the buffer, and ``buffer_size``."""
        return len(self.buffer), self._hyper.buffer_size

    def sampler(self, trajectories: Trajectories) -> MinibatchSampler:
        """Makes minibatches of these trajectories: of steps, or of sequences for policies with memory."""
        memory, batch_size = self._settings.network_settings.memory, self._hyper.batch_size
        if memory is None:
            return MinibatchSampler(len(trajectories), batch_size, self._device, self._shard)
        return SequenceSampler(trajectories, memory.sequence_length, batch_size, self._device, self._shard)

    def begin_group_update(self, step: int, actors: GroupActors, num_agents: int | None) -> GroupEpochs:
        """Makes the rollout of all collected experience, and the epochs that learn from it.

        num_agents: of a group; None for the size of the largest group.
        """
        hyper, most, trajectories = self._hyper, self._settings.max_steps, self.buffer.drain()
        rollout = make_group_rollout(
            trajectories,
            self.rewards,
            self.actor.normalizer,
            self.sampler(trajectories),
            reward_sensors=self._reward_sensors,
            num_agents=num_agents,
        )
        return GroupEpochs(
            decouple(rollout, actors) if self._decoupled else rollout,
            scheduled_at(hyper, step, most),
            learning_rate_at(hyper, step, most, initial=hyper.initial_critic_learning_rate),
            self.optimizers,
            hyper.max_grad_norm,
            self._shuffling,
            self._progress,
            self._kl_control,
        )

    def finish_update(self, rollout: Rollout, scheduled: Scheduled, step: int) -> dict[str, float]:
        """Updates reward models, then behavioral cloning. Returns the common metrics of on-policy learners.

        Reward models learn for ``num_epoch`` epochs, with minibatches of the policy's size.
        """
        metrics = {
            "Policy/Learning Rate": scheduled.learning_rate,
            "Policy/Epsilon": scheduled.epsilon,
            "Policy/Beta": scheduled.beta,
            **self._episode_rewards.metrics(rollout.trajectories, rollout.rewards),
        }
        if "epsilon" in self._hyper.unused:
            del metrics["Policy/Epsilon"]
        if self._kl_control is not None:
            metrics |= self._kl_control.finish(scheduled.learning_rate)
        if rollout.weights is not None:
            metrics |= weight_metrics(rollout.weights)
        if learning := [source for source in self.rewards if source.learns]:
            metrics |= reward_models.update(
                learning,
                rollout.experience,
                epochs=self._hyper.num_epoch,
                batch_size=self._hyper.batch_size,
                generator=self._shuffling,
                shard=self._shard,
            )
        if self.cloning is not None:
            metrics |= self.cloning.update(step - self.schedule_lead)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Networks, normalizer, optimizers, random streams and the collected experience."""
        collected = self.buffer.peek()
        return {
            **{key: network.state_dict() for key, network in self.networks.items()},
            "normalizer": self.actor.normalizer.state_dict(),
            **{key: optimizer.rule.state_dict() for key, optimizer in self.optimizers.items()},
            "acting": self.actor.stream.get_state(),
            "shuffling": self._shuffling.get_state(),
            **reward_models.state_dict(self.rewards, self.cloning),
            "episode_rewards": self._episode_rewards.state_dict(),
            **({} if self._kl_control is None else {"kl_control": self._kl_control.state_dict()}),
            "collected": None if collected is None else to_tensors(collected),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores ``state_dict``'s result. Raises ValueError for other reward signals."""
        reward_models.require_same_signals(self.rewards, state)
        self.load_weights(state)
        reward_models.load_state_dict(self.rewards, self.cloning, state)
        for key, optimizer in self.optimizers.items():
            optimizer.rule.load_state_dict(state[key])
        restore_streams({"acting": self.actor.stream, "shuffling": self._shuffling}, state)
        self._episode_rewards.load_state_dict(state["episode_rewards"])
        if self._kl_control is not None and "kl_control" in state:
            self._kl_control.load_state_dict(state["kl_control"])
        self.buffer = OnPolicyBuffer()
        if state["collected"] is not None:
            self.buffer.add(from_tensors(state["collected"]))

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Loads networks and normalizer. Reward models that are not in the state start from their initial state.

        Raises KeyError or RuntimeError if they do not fit.
        """
        for key, network in self.networks.items():
            network.load_state_dict(state[key])
        self.actor.normalizer.load_state_dict(state["normalizer"])
        reward_models.load_weights(self.rewards, state)


def to_tensors(trajectories: Trajectories) -> dict[str, Any]:
    """Converts trajectories for a checkpoint: every field by name, one tensor, or a list of one per sensor."""
    packed: dict[str, Any] = {}
    for field in fields(Trajectories):
        value = getattr(trajectories, field.name)
        if value is None:
            continue
        if isinstance(value, GroupIndex):
            packed[field.name] = {
                column.name: torch.from_numpy(getattr(value, column.name)) for column in fields(GroupIndex)
            }
        elif isinstance(value, tuple):
            packed[field.name] = [torch.from_numpy(sensor) for sensor in value]
        else:
            packed[field.name] = torch.from_numpy(value)
    return packed


def from_tensors(packed: Mapping[str, Any]) -> Trajectories:
    """Restores the trajectories of ``to_tensors``. Raises KeyError if a field is missing."""
    unpacked: dict[str, Any] = {}
    for field in fields(Trajectories):
        if field.name in OPTIONAL and field.name not in packed:
            continue
        value = packed[field.name]
        if isinstance(value, Mapping):
            unpacked[field.name] = GroupIndex(**{name: column.numpy() for name, column in value.items()})
        elif isinstance(value, list):
            unpacked[field.name] = tuple(sensor.numpy() for sensor in value)
        else:
            unpacked[field.name] = value.numpy()
    return Trajectories(**unpacked)
