"""The base of all learners with a replay buffer: recording, the minibatches of an update, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import ReplayHyperparameters
from trainer_service.learning.algorithms.common import reward_models
from trainer_service.learning.algorithms.common.acting import ActorNetwork
from trainer_service.learning.algorithms.common.actor import Actor, bounded_actions
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.cloning import BehavioralCloning
from trainer_service.learning.algorithms.common.learner import Compute, Learner, Metrics
from trainer_service.learning.algorithms.common.off_policy.replay_rewards import ReplayRewards
from trainer_service.learning.algorithms.common.off_policy.replay_sampler import ReplaySampler
from trainer_service.learning.algorithms.common.policy_network import PolicyNetwork
from trainer_service.learning.algorithms.common.schedules import learning_rate_at
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.flat import FlatOptimizer
from trainer_service.learning.networks.random_streams import random_stream, restore_streams
from trainer_service.learning.rollout.trajectories import Trajectories

_HORIZON = 8

BatchT = TypeVar("BatchT")
"""Type of an algorithm's minibatches."""


class ReplayParts(NamedTuple, Generic[BatchT]):
    """The parts of a learner that depend on its replay buffer."""

    replay: ReplaySampler[Any]
    """The empty buffer and its schedules."""

    rewards: ReplayRewards
    """Rewards of replayed steps."""

    minibatch: Callable[[Any], BatchT]
    """Makes a minibatch of tensors from the newest sample."""


class ReplayLearner(Learner, Generic[BatchT]):
    """An actor, a replay buffer and networks that learn from it. An algorithm makes them, and defines ``update``.

    In the order of Mnih et al. 2015: act, store steps, and for every few steps make one gradient step on a minibatch.
    """

    def __init__(
        self,
        settings: TrainerSettings,
        compute: Compute,
        *,
        actor: Actor,
        parts: ReplayParts[BatchT],
        cloning: BehavioralCloning | None,
        networks: Mapping[str, nn.Module],
        optimizers: Mapping[str, FlatOptimizer],
        streams: Mapping[str, torch.Generator] | None = None,
    ) -> None:
        """
        Args:
            settings: of the behavior.
            compute: device, seed and part of the work.
            actor: with its exploration.
            parts: the parts that depend on the replay buffer.
            cloning: the behavioral cloning; None without it.
            networks: all networks and targets, by their keys in checkpoints.
            optimizers: by their keys in checkpoints.
            streams: random streams of the updates, by their keys in checkpoints.
        """
        self.actor = actor
        self.horizon = _horizon_of(settings)
        self.settings = settings
        self.replay, self.rewards, self.minibatch = parts
        self.networks = networks
        self.optimizers = optimizers
        self.shard = compute.shard
        self.cloning = cloning
        self._streams = {"acting": actor.stream, **(streams or {})}

    def prepare(self, step: int) -> None:
        """Starts exploration and learning. Reads demonstrations in use. Raises UserError if they are invalid."""
        super().prepare(step)
        reward_models.read_demonstrations(self.rewards.sources, self.cloning, step)
        if self.replay.demonstrations is not None:
            self.replay.demonstrations.read()

    def record(self, trajectories: Trajectories) -> None:
        """Stores experience, and updates the normalizer."""
        self.actor.update_normalizer(trajectories)
        self.rewards.record(trajectories)
        self.replay.record(trajectories)
        self.actor.exploration.record(trajectories)

    def ready(self) -> bool:
        """Whether an update of the policy or the reward models is due."""
        return self.replay.schedule.due > 0 or bool(self.rewards.models and self.replay.reward_schedule.due)

    def collected(self) -> tuple[int, int] | None:
        """Recorded steps, and the steps needed for the first update."""
        return self.replay.schedule.collected

    def begin_update(self, step: int) -> ReplayUpdate[BatchT]:
        """Returns the gradient steps that became due since the last call, for ``update``."""
        return ReplayUpdate(self, step)

    def state_dict(self) -> dict[str, Any]:
        """The whole state except the replay buffer, see ``replay_state``."""
        return {
            **{key: network.state_dict() for key, network in self.networks.items()},
            **{key: optimizer.rule.state_dict() for key, optimizer in self.optimizers.items()},
            "normalizer": self.actor.normalizer.state_dict(),
            **{key: stream.get_state() for key, stream in self._streams.items()},
            "exploration": self.actor.exploration.state_dict(),
            **self.replay.state_dict(),
            **reward_models.state_dict(self.rewards.sources, self.cloning),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state with an empty buffer. Learning continues after ``buffer_init_steps``.

        Raises ValueError for other reward signals.
        """
        reward_models.require_same_signals(self.rewards.sources, state)
        self.load_weights(state)
        reward_models.load_state_dict(self.rewards.sources, self.cloning, state)
        for key, optimizer in self.optimizers.items():
            optimizer.rule.load_state_dict(state[key])
        restore_streams(self._streams, state)
        self.actor.exploration.load_state_dict(state["exploration"])
        self.replay.load_state_dict(state)

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Loads networks, targets and normalizer. Raises KeyError or RuntimeError if they do not fit."""
        for key, network in self.networks.items():
            network.load_state_dict(state[key])
        self.actor.normalizer.load_state_dict(state["normalizer"])
        reward_models.load_weights(self.rewards.sources, state)

    def replay_state(self) -> dict[str, NDArray[Any]] | None:
        """The replay buffer and the progress of learning from it, if they are saved."""
        return self.replay.replay_state()

    def load_replay_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restores the replay buffer."""
        self.replay.load_replay_state(state)


class ReplayUpdate(Generic[BatchT]):
    """One call of ``update``: its minibatches, gradient steps, and means of reported statistics.

    An algorithm calls ``finish_step`` and ``clone`` once for each minibatch, and ``learn_rewards`` last.
    """

    def __init__(self, learner: ReplayLearner[BatchT], step: int) -> None:
        settings = learner.settings
        self.rate = learning_rate_at(settings.hyperparameters, step, settings.max_steps)
        """The learning rate."""
        self._learner = learner
        self._replay = learner.replay
        self._step = step
        self.max_norm = settings.hyperparameters.max_grad_norm
        """Largest norm of a gradient; None for no limit."""
        self._cloned: Metrics = {}
        self._rng = learner.replay.rng()
        self._reports: dict[tuple[str, ...], tuple[list[int], list[Tensor]]] = {}
        """Numbers per tag of a report, and the reported values of gradient steps, by the tags."""

    def minibatches(self) -> Iterator[BatchT]:
        """Yields a minibatch for each due gradient step."""
        for sample in self._replay.minibatches(self._rng):
            yield self._learner.minibatch(sample)

    @property
    def share(self) -> float:
        """The share of the newest minibatch that this learner rank computes."""
        return self._replay.part.share

    def normal(self, like: Tensor, generator: torch.Generator) -> Tensor:
        """Draws with mean 0 and deviation 1 for the rows of the newest minibatch. Shape kept."""
        return self._learner.shard.normal(like, self._replay.part, generator)

    def exponential(self, like: Tensor, generator: torch.Generator) -> Tensor:
        """Draws of an exponential distribution with mean 1, like ``normal``. Shape kept."""
        return self._learner.shard.exponential(like, self._replay.part, generator)

    def minimize(self, optimizer: FlatOptimizer, loss: Tensor) -> None:
        """Makes one step with the gradient of a mean over the rows of the newest minibatch."""
        optimizer.minimize(loss, self.rate, self.max_norm, self.share)

    @torch.no_grad()
    def report(self, values: Mapping[str, Tensor]) -> None:
        """Records means over the newest minibatch by tag. A vector's tag has a ``{}`` for the index."""
        tags = tuple(values)
        if tags not in self._reports:
            self._reports[tags] = [value.numel() for value in values.values()], []
        means = torch.cat([value.reshape(-1) for value in values.values()])
        self._reports[tags][1].append(self._learner.shard.weighted(means, self.share))

    def finish_step(self, errors: Tensor) -> None:
        """Ends a gradient step: sets the priorities of its rows, and counts it in ``ReplaySampler.updates``.

        errors: |δ| of the newest minibatch's rows, unweighted, [B].
        """
        self._replay.finish_step(errors)

    def clone(self) -> None:
        """Makes the updates of behavioral cloning that follow a gradient step, if there is cloning."""
        if self._learner.cloning is not None:
            self._cloned = self._learner.cloning.update(self._step - self._learner.schedule_lead)

    def means(self) -> dict[str, float]:
        """Means of reported values over gradient steps, by tag."""
        found: dict[str, float] = {}
        for tags, (counts, reports) in self._reports.items():
            names = [tag.format(k) for tag, count in zip(tags, counts, strict=True) for k in range(count)]
            means = self._learner.shard.add_up(torch.stack(reports).mean(dim=0)).tolist()
            found.update(zip(names, means, strict=True))
        return found

    def metrics(self, own: Metrics | None = None) -> Metrics:
        """Returns the metrics of the update, except those of reward models' own learning.

        own: metrics of the algorithm; None for the means of reported values, with the replay's metrics.
        """
        learner = self._learner
        found: dict[str, float] = {"Policy/Learning Rate": self.rate, **learner.actor.exploration.metrics()}
        found |= {**self.means(), **self._replay.metrics()} if own is None else own
        return {**found, **learner.rewards.metrics(), **self._cloned}

    def learn_rewards(self) -> Metrics:
        """Makes the due updates of the reward models, after all gradient steps. Returns their statistics."""
        return self._learner.rewards.learn(self._replay, self._rng)


def bounded_actor(
    network: ActorNetwork,
    normalizer: ObservationNormalizer,
    compute: Compute,
    model: Callable[[ObservationNormalizer, Any], PolicyNetwork],
    **others: Any,
) -> Actor:
    """Makes an actor whose policy keeps continuous actions in [−1, 1]. All arguments as in ``Actor``."""
    # It has a separate random stream, so that updates do not depend on the number of decisions.
    stream = random_stream(compute.seed + 1)
    return Actor(
        network, normalizer, stream, compute.device, env_actions=bounded_actions, model=model, **others
    )


def _horizon_of(settings: TrainerSettings) -> int:
    """Returns the most steps of a trajectory."""
    hyper, memory = require_settings(settings, ReplayHyperparameters), settings.network_settings.memory
    if memory is not None:
        # A trajectory is one sequence, for any time_horizon. It is never longer, and shorter only at the end.
        return memory.sequence_length
    if hyper.relabels_goals:
        return settings.time_horizon  # a goal is replaced by a later one of the same trajectory
    # The observation after a segment is stored a second time, so a length of 1 would take twice the memory for
    # pictures. With hundreds, learning would lag behind. The last targets of a segment have fewer steps, so they should
    # be few.
    return min(settings.time_horizon, max(_HORIZON, 4 * hyper.target_steps))
