"""The base of all learners from a replay buffer: recording, the time for updates, checkpoints."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.algorithms.common import reward_models
from trainer_service.algorithms.common.acting import to_tensor
from trainer_service.algorithms.common.actor import ActingNetwork, Actor
from trainer_service.algorithms.common.checks import require_settings
from trainer_service.algorithms.common.cloning import BehavioralCloning, CloningLoss
from trainer_service.algorithms.common.exploration import Exploration
from trainer_service.algorithms.common.group_metrics import value_loss_by_agent
from trainer_service.algorithms.common.learner import Compute, Learner, Metrics
from trainer_service.algorithms.common.off_policy.replay_rewards import ReplayRewards, as_transitions
from trainer_service.algorithms.common.off_policy.replay_sampler import ReplaySampler, SampleT
from trainer_service.algorithms.common.off_policy.update_schedule import UpdateSchedule
from trainer_service.algorithms.common.schedules import learning_rate_at
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import ReplayHyperparameters
from trainer_service.config.rewards import leading_signal
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.flat import FlatOptimizer
from trainer_service.networks.policies.imitator import Imitator
from trainer_service.networks.random_streams import random_stream, restore_streams
from trainer_service.networks.shard import Part
from trainer_service.replay.replay_buffer import ReplayBuffer
from trainer_service.replay.single_steps import SingleSteps
from trainer_service.rewards import Experience, Transitions
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.arrays import Rows
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation

_HORIZON = 8


class ReplayLearner(Learner, Generic[SampleT]):
    """One behavior's networks and replay buffer; methods differ in their networks and in one gradient step.

    Top to bottom as in Mnih et al. 2015: act, remember, and for every few steps one gradient step on a minibatch.
    """

    _settings_type: ClassVar[type[ReplayHyperparameters]]
    """The hyperparameters of the method."""

    _tags: ClassVar[tuple[str, ...]] = ()
    """Metrics of the numbers that ``_gradient_step`` reports; those after them are value losses of agents."""

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that do not fit.

        spec: as the learner sees it, with what observation selection adds.
        """
        self._spec = spec
        self._settings = settings
        self._hyper = require_settings(settings, self._settings_type)
        self._device = compute.device
        self._seed = compute.seed
        self._shard = compute.shard
        self._generators: dict[str, torch.Generator] = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(compute.seed)
            self._make_models()
        self._reward_models = [source for source in self._reward_sources if source.learns]
        self._replay_rewards = ReplayRewards(self._reward_sources, self._gamma, self._device, self._shard)
        self._normalizer = self._make_normalizer().to(self._device)
        self.actor = self._make_actor(self._make_generator("acting", 1))
        self.horizon = self._make_horizon()
        self._replay = self._make_sampler()
        self._cloning = None if settings.behavioral_cloning is None else self._make_cloning(compute)

    def _make_models(self) -> None:
        """Builds networks, then reward sources, so that networks begin alike whatever else pays."""
        self._make_networks()
        self._make_reward_sources()

    def _make_reward_sources(self) -> None:
        self._reward_sources = reward_models.make_reward_sources(
            self._reward_spec(), self._settings, self._device, self._shard
        )

    def _reward_spec(self) -> BehaviorSpec:
        """The behavior as reward sources see it."""
        return self._spec

    @property
    def _gamma(self) -> float:
        """γ of the one value of all reward signals."""
        signals = self._settings.reward_signals
        return signals[leading_signal(signals)].gamma

    @property
    def _task_strength(self) -> float:
        """Factor of the task's rewards; 0 where they do not count."""
        task = self._settings.reward_signals.get("extrinsic")
        return 0.0 if task is None else task.strength

    @abstractmethod
    def _make_networks(self) -> None:
        """Builds networks, targets and optimizers; random numbers are seeded."""

    @abstractmethod
    def _make_buffer(self) -> ReplayBuffer[SampleT]:
        """An empty replay buffer."""

    @property
    @abstractmethod
    def _policy(self) -> ActingNetwork:
        """The network that decides."""

    @abstractmethod
    def _make_actor(self, stream: torch.Generator) -> Actor:
        """The actor, with its exploration. stream: the random stream of its actions."""

    def _make_normalizer(self) -> ObservationNormalizer:
        normalize = self._settings.network_settings.normalize
        return ObservationNormalizer(self._spec.observation_specs, normalize=normalize)

    @property
    def _exploration(self) -> Exploration:
        return self.actor.exploration

    def _make_horizon(self) -> int:
        memory = self._settings.network_settings.memory
        if memory is not None:
            # A trajectory is a sequence: whatever time_horizon says, none is longer, and none shorter but at the end.
            return memory.sequence_length
        # The observation after a segment is stored a second time, so with 1 pictures would take twice the memory;
        # with hundreds, learning would lag behind. A segment's last targets look less far ahead: they shall be few.
        return min(self._settings.time_horizon, max(_HORIZON, 4 * self._hyper.target_steps))

    def _make_sampler(self) -> ReplaySampler[SampleT]:
        hyper, memory = self._hyper, self._settings.network_settings.memory
        sequences = None if memory is None else max(hyper.batch_size // memory.sequence_length, 1)
        return ReplaySampler(
            self._make_buffer(),
            hyper,
            self._seed,
            *self._make_schedules(),
            sample_size=sequences,
            shard=self._shard,
        )

    def _make_schedules(self) -> list[UpdateSchedule]:
        """When gradient steps are due, and where there are reward models, when their updates are."""
        hyper = self._hyper
        schedule = UpdateSchedule(hyper.learning_starts, hyper.steps_per_update)
        self._reward_schedule = UpdateSchedule(hyper.learning_starts, hyper.reward_signal_steps_per_update)
        return [schedule, self._reward_schedule] if self._reward_models else [schedule]

    @abstractmethod
    def _make_cloning(self, compute: Compute) -> BehavioralCloning:
        """The learning from demonstrations beside all else."""

    def _cloning_of(
        self,
        network: nn.Module,
        imitators: Sequence[Imitator],
        loss: CloningLoss,
        optimizer: FlatOptimizer,
        compute: Compute,
    ) -> BehavioralCloning:
        """Learning from demonstrations by the imitators of a network with that optimizer."""
        spec, parameters = self._reward_spec(), optimizer.parameters
        return BehavioralCloning(
            spec, self._settings, network, imitators, loss, parameters, self._normalize_own, compute
        )

    def _normalize_own(self, observations: Sequence[Tensor]) -> list[Tensor]:
        """Normalizes what demonstrations have of an agent's sensors."""
        return self._normalizer.forward(observations)

    def _make_generator(self, name: str, stream: int) -> torch.Generator:
        """A random stream that is saved under its name."""
        self._generators[name] = random_stream(self._seed + stream)
        return self._generators[name]

    def prepare(self, step: int) -> None:
        """Begins to explore and to learn. Reads demonstrations in use. Raises UserError where they are no good."""
        super().prepare(step)
        reward_models.read_demonstrations(self._reward_sources, self._cloning, step)

    def record(self, trajectories: Trajectories) -> None:
        """Remembers experience, and lets the normalizer see it."""
        self.actor.update_normalizer(trajectories)
        if self._reward_models:
            experience = Experience(self._for_rewards(trajectories), self._device)
            for source in self._reward_models:
                source.update_statistics(experience)
        self._remember(trajectories)
        self._exploration.record(trajectories)

    def _for_rewards(self, trajectories: Trajectories) -> Trajectories:
        """Trajectories with only the sensors that reward sources look at."""
        return trajectories

    def _remember(self, trajectories: Trajectories) -> None:
        self._replay.record(trajectories)

    def ready(self) -> bool:
        """Whether an update was earned, of the policy or of the reward models."""
        return self._replay.schedule.due > 0 or bool(self._reward_models and self._reward_schedule.due)

    def collected(self) -> tuple[int, int] | None:
        """Steps recorded, of those before the first update."""
        return self._replay.schedule.collected

    def update(self, step: int) -> Metrics:
        """Makes as many gradient steps as were earned since the last call, then those of the reward models."""
        rate = learning_rate_at(self._hyper, step, self._settings.max_steps)
        rng = self._replay.rng()
        reports: list[Tensor] = []
        cloned: Metrics = {}
        for sample in self._replay.minibatches(rng):
            reports.append(self._addend(self._gradient_step(sample, rate)))
            if self._cloning is not None:
                cloned = self._cloning.update(step)
        metrics: dict[str, float] = {"Policy/Learning Rate": rate, **self._exploration.metrics()}
        if reports:
            means = self._shard.add_up(torch.stack(reports).mean(dim=0)).tolist()
            metrics |= self._reported(means)
        metrics |= self._own_metrics()
        return {**metrics, **self._replay_rewards.metrics(), **cloned, **self._update_reward_models(rng)}

    def _reported(self, means: list[float]) -> Metrics:
        """Metrics by tag. means: of what some gradient steps reported."""
        known = len(self._tags)
        named = dict(zip(self._tags, means[:known], strict=True))
        return named | value_loss_by_agent(means[known:])

    def _model_rewards(self, rows: Rows, *shape: int) -> Tensor:
        """What the reward models pay as of now for all steps that the targets of B rows look at, discounted sums.

        rows: of the newest minibatch; shape: of what is returned, [B], or [B, n] for agents of groups.
        """
        ahead = self._hyper.target_steps
        steps = self._replay.buffer.single_steps(rows, ahead)
        share = self._replay.part.share
        return self._replay_rewards.of_models(steps, self._transitions(steps), (ahead, *shape), share)

    def _transitions(self, steps: SingleSteps) -> Transitions:
        """Replayed steps as reward sources take them."""
        return as_transitions(steps, self._device)

    def _update_reward_models(self, rng: np.random.Generator) -> Metrics:
        """Makes the updates of reward models that are due. rng: the stream of the gradient steps before."""
        if not self._reward_models:
            return {}
        parts: dict[str, list[Tensor]] = defaultdict(list)
        for sample in self._reward_minibatches(rng):
            transitions = self._transitions(self._replay.buffer.single_steps(sample.rows, 1))
            part = self._reward_part()
            for source in self._reward_models:
                for tag, value in source.learn(transitions, part).items():
                    parts[tag].append(value)
        return reward_models.mean_statistics(parts, self._shard)

    def _reward_minibatches(self, rng: np.random.Generator) -> Iterator[SampleT]:
        """A minibatch for each update of the reward models that is due, from a stream of their own: gradient steps
        are the same without them."""
        own = self._replay.reward_rng()
        for _ in range(self._reward_schedule.due):
            yield self._replay.sample(own)
            self._reward_schedule.updates += 1
            self._replay.reward_updates += 1

    def _reward_part(self) -> Part:
        """Which of the newest minibatch's single steps are this learner rank's."""
        return self._replay.part

    def _addend(self, mean: Tensor) -> Tensor:
        """This learner rank's addend of a mean over the newest minibatch. mean: over the rank's rows."""
        return self._shard.weighted(mean, self._replay.part.share)

    def _optimizer_of(self, network: nn.Module) -> FlatOptimizer:
        return FlatOptimizer(network.parameters(), weight_decay=self._hyper.weight_decay, shard=self._shard)

    def _minimize(self, optimizer: FlatOptimizer, loss: Tensor, rate: float) -> None:
        """Makes one step against the gradient of a mean over this learner rank's rows of the newest minibatch."""
        optimizer.minimize(loss, rate, self._hyper.max_grad_norm, self._replay.part.share)

    @abstractmethod
    def _gradient_step(self, sample: SampleT, rate: float) -> Tensor:
        """Makes one gradient step of everything, and one of the targets. Returns what is reported of it, ``_tags``."""

    def _own_metrics(self) -> dict[str, float]:
        """More metrics of an update; those of the replay, unless a method says otherwise."""
        return self._replay.metrics()

    def _inputs(self, observations: Sequence[Observation]) -> list[Tensor]:
        """Inputs of the networks: observations as normalized tensors, one array [B, …] per sensor."""
        return self._normalizer.forward([to_tensor(sensor, self._device) for sensor in observations])

    def _weights(self) -> Mapping[str, nn.Module]:
        """Networks and targets, by the keys of a checkpoint."""
        return {}

    def _optimizers(self) -> Mapping[str, FlatOptimizer]:
        """Optimizers, by the keys of a checkpoint."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay buffer: see ``replay_state``."""
        return {
            **{key: network.state_dict() for key, network in self._weights().items()},
            **{key: optimizer.adam.state_dict() for key, optimizer in self._optimizers().items()},
            "normalizer": self._normalizer.state_dict(),
            **{name: generator.get_state() for name, generator in self._generators.items()},
            "exploration": self._exploration.state_dict(),
            **self._replay.state_dict(),
            **reward_models.state_dict(self._reward_sources, self._cloning),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there with an empty buffer: learning goes on after ``buffer_init_steps``.

        Raises ValueError for other rewards.
        """
        reward_models.require_same_signals(self._reward_sources, state)
        self.load_weights(state)
        reward_models.load_state_dict(self._reward_sources, self._cloning, state)
        for key, optimizer in self._optimizers().items():
            optimizer.adam.load_state_dict(state[key])
        restore_streams(self._generators, state)
        self._exploration.load_state_dict(state.get("exploration", {}))
        self._replay.load_state_dict(state)

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Takes networks, targets and normalizer. Raises KeyError or RuntimeError where they do not fit."""
        for key, network in self._weights().items():
            network.load_state_dict(state[key])
        self._normalizer.load_state_dict(state["normalizer"])
        reward_models.load_weights(self._reward_sources, state)

    def replay_state(self) -> dict[str, NDArray[Any]] | None:
        """The replay buffer and how far learning from it has come, if they shall be saved."""
        return self._replay.replay_state()

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continues with that buffer."""
        self._replay.load_replay_state(state)
