"""Current rewards of replayed steps, and the updates of reward models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.config.rewards import leading_signal
from trainer_service.learning.algorithms.common import reward_models
from trainer_service.learning.algorithms.common.acting import to_tensor
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.off_policy.replay_sampler import ReplaySampler
from trainer_service.learning.rewards import Experience, RewardSource, Transitions
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.arrays import Rows
from unity_bridge.steps import Observation


class ReplayedSteps(Protocol):
    """Arrays of B steps with their next observations: a sample of transitions, or single steps."""

    @property
    def observations(self) -> tuple[Observation, ...]: ...

    @property
    def next_observations(self) -> tuple[Observation, ...]: ...

    @property
    def continuous_actions(self) -> NDArray[np.float32]: ...

    @property
    def discrete_actions(self) -> NDArray[np.int64]: ...

    @property
    def task_rewards(self) -> NDArray[np.float32]: ...

    @property
    def terminated(self) -> NDArray[np.bool_]: ...


def as_transitions(
    steps: ReplayedSteps, device: torch.device, sensors: Sequence[int] | None = None
) -> Transitions:
    """Converts steps for reward sources. sensors: numbers of the sensors that the sources use; None for all."""
    seen, following = (
        [to_tensor(each, device) for each in (every if sensors is None else [every[i] for i in sensors])]
        for every in (steps.observations, steps.next_observations)
    )
    continuous = to_tensor(steps.continuous_actions, device)
    return Transitions(
        observations=seen,
        next_observations=following,
        continuous_actions=continuous,
        discrete_actions=to_tensor(steps.discrete_actions, device),
        executed_actions=continuous,
        task_rewards=to_tensor(steps.task_rewards, device),
        terminated=to_tensor(steps.terminated, device),
    )


def discounted_sums(rewards: Tensor, places: Sequence[Tensor], shape: Sequence[int], gamma: Tensor) -> Tensor:
    """Σ_k γᵏ r_k of each row: the discounted rewards of its target's steps.

    rewards: of single steps, [M]. places: of these steps in the table [n_step, …] of this ``shape``, see SingleSteps.
    gamma: γᵏ of each step, [M]. Returns [...], the table's shape without its first dimension.
    """
    table = rewards.new_zeros(tuple(shape))
    table[tuple(places)] = gamma * rewards
    return table.sum(dim=0)


class ReplayRewards:
    """The reward sources of a learner with a replay buffer: their rewards of replayed steps, and their updates."""

    def __init__(
        self,
        sources: Sequence[RewardSource],
        settings: TrainerSettings,
        compute: Compute,
        *,
        target_steps: int = 1,
        sensors: Sequence[int] | None = None,
        kept: Sequence[int] | None = None,
    ) -> None:
        """target_steps: number of rewards in a target. sensors: numbers of the sources' sensors. kept: numbers of the
        sensors in the replay buffer; None for all."""
        signals = settings.reward_signals
        self.sources = sources
        self.models = [source for source in sources if source.learns]
        """The sources that learn."""
        self.gamma = signals[leading_signal(signals)].gamma
        """γ of a learner with one value for all signals."""
        task = signals.get("extrinsic")
        self.task_strength = 0.0 if task is None else task.strength
        """Strength of the task's rewards; 0 without them."""
        self.device = compute.device
        """Device of the rewards."""
        self._shard = compute.shard
        self._target_steps = target_steps
        self._sensors = sensors
        self._places = None if sensors is None or kept is None else [kept.index(sensor) for sensor in sensors]
        self._means: dict[str, list[Tensor]] = defaultdict(list)
        """Mean rewards of minibatches since the last report, by tag; with several ranks, this rank's addends."""

    def record(self, trajectories: Trajectories) -> None:
        """Updates the models' statistics with new experience."""
        if not self.models:
            return
        if self._sensors is not None:
            seen, final = (
                tuple(every[i] for i in self._sensors)
                for every in (trajectories.observations, trajectories.final_observations)
            )
            trajectories = replace(trajectories, observations=seen, final_observations=final)
        experience = Experience(trajectories, self.device)
        for source in self.models:
            source.update_statistics(experience)

    def of_sources(self, transitions: Transitions) -> Tensor:
        """Returns the current reward of each source for B transitions, times its strength. [B, S]"""
        return torch.stack([source.strength * source.rewards(transitions) for source in self.sources], dim=-1)

    def of_models(self, replay: ReplaySampler[Any], rows: Rows, *shape: int) -> Tensor:
        """Returns discounted sums of the models' current rewards, over the steps of B rows' targets.

        rows: of the newest minibatch. shape: of the result, [B] for single agents, [B, n] for groups.
        """
        steps = replay.single_steps(rows, self._target_steps)
        transitions = as_transitions(steps, self.device, self._places)
        places = [to_tensor(place, self.device) for place in steps.places]
        total = torch.zeros(len(transitions), device=self.device)
        counts = torch.bincount(places[1], minlength=shape[0]).clamp(min=1)
        for source in self.sources:
            rewards = source.strength * source.rewards(transitions)
            # The mean over rows of each row's mean, since learner ranks divide rows.
            mean = torch.bincount(places[1], weights=rewards, minlength=shape[0]).div(counts).mean()
            addend = self._shard.weighted(mean, replay.part.share)
            self._means[f"Policy/{source.name.capitalize()} Reward"].append(addend)
            if source.learns:
                total = total + rewards
        elapsed = steps.places[0] if steps.elapsed is None else steps.elapsed
        discounts = to_tensor((self.gamma**elapsed).astype(np.float32), self.device)
        return discounted_sums(total, places, (self._target_steps, *shape), discounts)

    def metrics(self) -> dict[str, float]:
        """Mean reward of a step by source since the last call, by tag; empty without rewards."""
        means, self._means = self._means, defaultdict(list)
        return {tag: float(self._shard.add_up(torch.stack(values).mean())) for tag, values in means.items()}

    def learn(self, replay: ReplaySampler[Any], rng: np.random.Generator) -> dict[str, float]:
        """Makes the due updates of the models. rng: the random stream of the preceding gradient steps.

        Returns means of their statistics, by tag.
        """
        if not self.models:
            return {}
        parts: dict[str, list[Tensor]] = defaultdict(list)
        for sample in replay.reward_minibatches(rng):
            steps = replay.single_steps(sample.rows, 1)
            transitions, part = as_transitions(steps, self.device, self._places), replay.part_of_steps
            for source in self.models:
                for tag, value in source.learn(transitions, part).items():
                    parts[tag].append(value)
        return reward_models.mean_statistics(parts, self._shard)
