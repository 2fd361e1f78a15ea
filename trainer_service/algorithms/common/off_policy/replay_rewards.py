"""Rewards of replayed steps as their sources see them now, and the updates of reward models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.common import reward_models
from trainer_service.algorithms.common.acting import to_tensor
from trainer_service.algorithms.common.learner import Compute
from trainer_service.algorithms.common.off_policy.replay_sampler import ReplaySampler
from trainer_service.config import TrainerSettings
from trainer_service.config.rewards import leading_signal
from trainer_service.rewards import Experience, RewardSource, Transitions
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.arrays import Rows
from unity_bridge.steps import Observation


class ReplayedSteps(Protocol):
    """B steps of agents in arrays, each with what its agent saw next: a sample of transitions, or single steps."""

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
    """Steps as reward sources take them. sensors: numbers of those that the sources look at; None for all."""
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


def discounted_sums(rewards: Tensor, places: Sequence[Tensor], shape: Sequence[int], gamma: float) -> Tensor:
    """Σ_k γᵏ r_k of each row: what the steps that its target looks at pay.

    rewards: of single steps, [M]; places: theirs in the table [n_step, …] of that ``shape``, see SingleSteps; places
    without a step pay nothing. Returns [...], the table's shape without its first dimension.
    """
    table = rewards.new_zeros(tuple(shape))
    table[tuple(places)] = rewards
    for k in range(1, len(table)):
        table[k] *= gamma**k
    return table.sum(dim=0)


class ReplayRewards:
    """The reward sources of a learner from a replay buffer: what they pay for replayed steps, and what they learn."""

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
        """target_steps: rewards that a target adds up; sensors: those of the learner's that the sources look at, and
        kept: those that the replay holds; None for all."""
        signals = settings.reward_signals
        self.sources = sources
        self.models = [source for source in sources if source.learns]
        """Those that learn."""
        self.gamma = signals[leading_signal(signals)].gamma
        """γ of a learner with one value for all signals."""
        task = signals.get("extrinsic")
        self.task_strength = 0.0 if task is None else task.strength
        """Factor of the task's rewards; 0 where they do not count."""
        self.device = compute.device
        """Where rewards are computed."""
        self._shard = compute.shard
        self._target_steps = target_steps
        self._sensors = sensors
        self._places = None if sensors is None or kept is None else [kept.index(sensor) for sensor in sensors]
        self._means: dict[str, list[Tensor]] = defaultdict(list)
        """Mean rewards of minibatches since the last report, by tag; of several learner ranks, this one's addends."""

    def record(self, trajectories: Trajectories) -> None:
        """Lets the models see new experience."""
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
        """What each source pays now for B transitions, times its strength. [B, S]"""
        return torch.stack([source.strength * source.rewards(transitions) for source in self.sources], dim=-1)

    def of_models(self, replay: ReplaySampler[Any], rows: Rows, *shape: int) -> Tensor:
        """What the models pay as of now for all steps that the targets of B rows look at, discounted sums.

        rows: of the newest minibatch; shape: of what is returned, [B] for agents alone, [B, n] for those of groups.
        """
        steps = replay.buffer.single_steps(rows, self._target_steps)
        transitions = as_transitions(steps, self.device, self._places)
        places = [to_tensor(place, self.device) for place in steps.places]
        total = torch.zeros(len(transitions), device=self.device)
        counts = torch.bincount(places[1], minlength=shape[0]).clamp(min=1)
        for source in self.sources:
            rewards = source.strength * source.rewards(transitions)
            # A mean over rows of each row's mean, for rows are what learner ranks divide.
            mean = torch.bincount(places[1], weights=rewards, minlength=shape[0]).div(counts).mean()
            addend = self._shard.weighted(mean, replay.part.share)
            self._means[f"Policy/{source.name.capitalize()} Reward"].append(addend)
            if source.learns:
                total = total + rewards
        return discounted_sums(total, places, (self._target_steps, *shape), self.gamma)

    def metrics(self) -> dict[str, float]:
        """Mean reward of a step by source since the last call, by tag; none where nothing was asked for."""
        means, self._means = self._means, defaultdict(list)
        return {tag: float(self._shard.add_up(torch.stack(values).mean())) for tag, values in means.items()}

    def learn(self, replay: ReplaySampler[Any], rng: np.random.Generator) -> dict[str, float]:
        """Makes the updates of the models that are due. rng: the stream of the gradient steps before.

        Returns the means of what they report, by tag.
        """
        if not self.models:
            return {}
        parts: dict[str, list[Tensor]] = defaultdict(list)
        for sample in replay.reward_minibatches(rng):
            steps = replay.buffer.single_steps(sample.rows, 1)
            transitions, part = as_transitions(steps, self.device, self._places), replay.part_of_steps
            for source in self.models:
                for tag, value in source.learn(transitions, part).items():
                    parts[tag].append(value)
        return reward_models.mean_statistics(parts, self._shard)
