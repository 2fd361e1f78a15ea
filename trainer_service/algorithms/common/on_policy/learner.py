"""The base of every learner on policy: acting, collecting a rollout, updating reward models, saving.

A method says which networks it has, and in ``update`` what is learned from a rollout.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.algorithms.common import reward_models
from trainer_service.algorithms.common.actor import Actor
from trainer_service.algorithms.common.checks import require_settings
from trainer_service.algorithms.common.cloning import BehavioralCloning, action_loss
from trainer_service.algorithms.common.exploration import Exploration
from trainer_service.algorithms.common.learner import Compute, Learner, Metrics
from trainer_service.algorithms.common.on_policy.episode_rewards import EpisodeRewards
from trainer_service.algorithms.common.on_policy.minibatches import MinibatchSampler, SequenceSampler
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.on_policy import OnPolicyHyperparameters
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.flat import FlatAdam, FlatOptimizer
from trainer_service.networks.policies.action_heads import set_log_std
from trainer_service.networks.policies.actor_critic import ActorCritic
from trainer_service.networks.policies.group_actors import GroupActors
from trainer_service.networks.policies.imitator import Imitator
from trainer_service.networks.random_streams import random_stream, restore_streams
from trainer_service.rewards import Experience
from trainer_service.rollout.trajectories import OPTIONAL, GroupIndex, OnPolicyBuffer, Trajectories
from unity_bridge.specs import BehaviorSpec


class OnPolicyLearner(Learner):
    """One behavior's policy, the buffer that fills up between updates, and what is saved of both."""

    _settings_type: ClassVar[type[OnPolicyHyperparameters]]
    _adam_epsilon: ClassVar[float] = 1e-8

    _hyper: OnPolicyHyperparameters
    _policy: ActorCritic | GroupActors
    _critic: nn.Module | None

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that the networks cannot take."""
        self._hyper = require_settings(settings, self._settings_type)
        if compute.decoupled and not self._hyper.supports_stale_rollouts:
            raise ValueError(
                f"{settings.trainer_type} cannot learn from rollouts of an older policy: "
                "distributed.collection must be 'sync'"
            )
        self._spec = spec
        self._settings = settings
        self.horizon = settings.time_horizon
        self._device = compute.device
        self._progress = compute.progress
        self._decoupled = compute.decoupled
        self._shard = compute.shard
        self._behavior_name = compute.behavior
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(compute.seed)
            self._policy = self._make_policy().to(self._device)
            if self._hyper.log_std_init is not None:
                set_log_std(self._policy, self._hyper.log_std_init)
            self._rewards = reward_models.make_reward_sources(
                self._reward_spec(), settings, self._device, self._shard
            )
            critic = self._make_critic(len(self._rewards))
            self._critic = None if critic is None else critic.to(self._device)
        self._episode_rewards = EpisodeRewards(self._rewards)
        self._learned_rewards = [source for source in self._rewards if source.learns]
        self._normalizer = self._make_normalizer().to(self._device)
        self._optimizer = FlatOptimizer(
            self._policy.parameters(),
            epsilon=self._adam_epsilon,
            weight_decay=settings.hyperparameters.weight_decay,
            shard=self._shard,
        )
        # Acting and shuffling draw from streams of their own, so that neither depends on how often the
        # other was called.
        self.actor = Actor(
            self._policy,
            self._normalizer,
            random_stream(compute.seed + 1),
            self._device,
            exploration=self._make_exploration(),
            parameters=self._optimizer.parameters,
        )
        self._shuffling = random_stream(compute.seed + 2)
        self._buffer = OnPolicyBuffer()
        self._cloning = None if settings.behavioral_cloning is None else self._make_cloning(compute)

    def _make_cloning(self, compute: Compute) -> BehavioralCloning:
        return BehavioralCloning(
            self._reward_spec(),
            self._settings,
            self._policy,
            self._imitators(),
            action_loss(self._policy.actions),
            self._optimizer.parameters,
            self._normalize_own,
            compute,
        )

    def _imitators(self) -> list[Imitator]:
        """The actors that learn from demonstrations."""
        return [Imitator.of_trunk(self._policy.actor, self._policy.actions.forward)]

    def _normalize_own(self, observations: Sequence[Tensor]) -> list[Tensor]:
        """Normalizes what reward sources and demonstrations have of an agent's sensors."""
        return self._normalizer.forward(observations)

    @abstractmethod
    def _make_policy(self) -> ActorCritic | GroupActors:
        """The network that acts."""

    def _make_critic(self, signals: int) -> nn.Module | None:
        """A critic of its own, with a value for each reward signal; None where the policy has the value heads."""
        return None

    def _make_exploration(self) -> Exploration:
        """The exploration added to samples of the policy."""
        return Exploration()

    def _make_normalizer(self) -> ObservationNormalizer:
        """The normalizer that observations go through before any network."""
        return ObservationNormalizer(
            self._spec.observation_specs, normalize=self._settings.network_settings.normalize
        )

    def _reward_spec(self) -> BehaviorSpec:
        """The behavior as reward sources see it."""
        return self._spec

    @abstractmethod
    def update(self, step: int) -> Metrics:
        """Learns from everything collected, which is then thrown away."""

    def prepare(self, step: int) -> None:
        """Begins to learn, and reads demonstrations in use. Raises UserError where they are no good."""
        super().prepare(step)
        reward_models.read_demonstrations(self._rewards, self._cloning, step)

    def record(self, trajectories: Trajectories) -> None:
        """Adds experience for the next update, and lets the normalizer see it."""
        self._buffer.add(trajectories)
        self.actor.update_normalizer(trajectories)
        self.actor.exploration.record(trajectories)

    def ready(self) -> bool:
        """Whether ``buffer_size`` agent steps are there."""
        return len(self._buffer) >= self._hyper.buffer_size

    def collected(self) -> tuple[int, int]:
        """Agent steps in the buffer, and ``buffer_size``."""
        return len(self._buffer), self._hyper.buffer_size

    def _sampler(self, trajectories: Trajectories) -> MinibatchSampler:
        memory = self._settings.network_settings.memory
        batch_size = self._hyper.batch_size
        if memory is None:
            return MinibatchSampler(len(trajectories), batch_size, self._device, self._shard)
        return SequenceSampler(trajectories, memory.sequence_length, batch_size, self._device, self._shard)

    def _update_others(self, experience: Experience, step: int) -> Metrics:
        """Reward models learn as often as the policy did, from minibatches as large; then the policy clones."""
        metrics: dict[str, float] = {}
        if self._learned_rewards:
            metrics |= reward_models.update(
                self._learned_rewards,
                experience,
                epochs=self._hyper.num_epoch,
                batch_size=self._hyper.batch_size,
                generator=self._shuffling,
                shard=self._shard,
            )
        if self._cloning is not None:
            metrics |= self._cloning.update(step)
        return metrics

    @abstractmethod
    def _networks(self) -> dict[str, nn.Module]:
        """Every network, by its key in checkpoints."""

    @abstractmethod
    def _optimizers(self) -> dict[str, FlatAdam]:
        """Every optimizer, by its key in checkpoints."""

    def state_dict(self) -> dict[str, Any]:
        """Networks, normalizer, optimizers, random streams and what was collected for the next update."""
        collected = self._buffer.peek()
        return {
            **{key: network.state_dict() for key, network in self._networks().items()},
            "normalizer": self._normalizer.state_dict(),
            **{key: optimizer.state_dict() for key, optimizer in self._optimizers().items()},
            "acting": self.actor.stream.get_state(),
            "shuffling": self._shuffling.get_state(),
            **reward_models.state_dict(self._rewards, self._cloning),
            "episode_rewards": self._episode_rewards.state_dict(),
            "collected": None if collected is None else to_tensors(collected),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict``'s result. Raises ValueError for other rewards."""
        reward_models.require_same_signals(self._rewards, state)
        self.load_weights(state)
        reward_models.load_state_dict(self._rewards, self._cloning, state)
        for key, optimizer in self._optimizers().items():
            optimizer.load_state_dict(state[key])
        restore_streams({"acting": self.actor.stream, "shuffling": self._shuffling}, state)
        if "episode_rewards" in state:  # those of earlier versions have none
            self._episode_rewards.load_state_dict(state["episode_rewards"])
        self._buffer = OnPolicyBuffer()
        if state["collected"] is not None:
            self._buffer.add(from_tensors(state["collected"]))

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Takes networks and normalizer; reward models that the state does not know begin anew.

        Raises KeyError or RuntimeError where they do not fit.
        """
        for key, network in self._networks().items():
            network.load_state_dict(state[key])
        self._normalizer.load_state_dict(state["normalizer"])
        reward_models.load_weights(self._rewards, state)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def to_tensors(trajectories: Trajectories) -> dict[str, Any]:
    """Trajectories for a checkpoint: every field under its name, one tensor, or a list of one per sensor."""
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
    """The trajectories that ``to_tensors`` packed. Raises KeyError where a field is missing."""
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
