"""Rewards of replayed steps as their sources see them now, added up for a learner with one value for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.common.acting import to_tensor
from trainer_service.networks.shard import Shard
from trainer_service.replay.single_steps import SingleSteps
from trainer_service.rewards import RewardSource, Transitions
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
    """What the reward models of a learner pay for replayed steps, and a record of what all its sources paid."""

    def __init__(
        self, sources: Sequence[RewardSource], gamma: float, device: torch.device, shard: Shard
    ) -> None:
        """gamma: the discount of the learner's value."""
        self._sources = sources
        self._gamma = gamma
        self._device = device
        self._shard = shard
        self._means: dict[str, list[Tensor]] = defaultdict(list)
        """Mean rewards of minibatches since the last report, by tag; of several learner ranks, this one's addends."""

    def of_models(
        self, steps: SingleSteps, transitions: Transitions, shape: Sequence[int], share: float
    ) -> Tensor:
        """What the reward models pay for the steps that B rows' targets look at, times the models' strengths.

        shape: of the table in which the steps have their places; share: of the minibatch that the B rows are. Returns
        [B] for agents alone, [B, n] for those of groups.
        """
        places = [to_tensor(place, self._device) for place in steps.places]
        total = torch.zeros(len(transitions), device=self._device)
        counts = torch.bincount(places[1], minlength=shape[1]).clamp(min=1)
        for source in self._sources:
            rewards = source.strength * source.rewards(transitions)
            # A mean over rows of each row's mean, for rows are what learner ranks divide.
            mean = torch.bincount(places[1], weights=rewards, minlength=shape[1]).div(counts).mean()
            self._means[f"Policy/{source.name.capitalize()} Reward"].append(self._shard.weighted(mean, share))
            if source.learns:
                total = total + rewards
        return discounted_sums(total, places, shape, self._gamma)

    def metrics(self) -> dict[str, float]:
        """Mean reward of a step by source since the last call, by tag; none where nothing was asked for."""
        means, self._means = self._means, defaultdict(list)
        return {tag: float(self._shard.add_up(torch.stack(values).mean())) for tag, values in means.items()}
