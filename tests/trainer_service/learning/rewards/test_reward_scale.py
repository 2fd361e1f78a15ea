"""The scale of normalized rewards, wherever trajectories are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from trainer_service.learning.rewards import Experience, RewardSource
from trainer_service.learning.rewards.reward_scale import RewardScale
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import BehaviorSpec

from .conftest import CHOICES, VECTOR

CPU = torch.device("cpu")
SPEC = BehaviorSpec((VECTOR,), CHOICES)
HORIZONS = (8, 1000)


def cut(episodes: Trajectories, horizon: int) -> list[Trajectories]:
    """The episodes of some agents, side by side, in parts of so many steps: first parts first."""
    parts = []
    starts = np.cumsum(episodes.lengths) - episodes.lengths
    for first in range(0, int(episodes.lengths.max()), horizon):
        lengths = np.clip(episodes.lengths - first, 0, horizon)
        agents = np.flatnonzero(lengths)
        lengths = lengths[agents]
        steps = np.concatenate(
            [s + first + np.arange(n) for s, n in zip(starts[agents], lengths, strict=True)]
        )
        ended = first + lengths == episodes.lengths[agents]
        seen = episodes.observations[0]
        next_steps = np.minimum(starts[agents] + first + lengths, len(seen) - 1)
        final = np.where(ended[:, None], episodes.final_observations[0][agents], seen[next_steps])
        of_steps = {
            name: getattr(episodes, name)[steps]
            for name in (
                "continuous_actions", "discrete_actions", "allowed_actions", "log_probs", "memories", "rewards",
                "group_rewards",
            )
        }  # fmt: skip
        parts.append(
            Trajectories(
                **of_steps,
                observations=(seen[steps],),
                lengths=lengths,
                final_observations=(final.astype(np.float32),),
                final_allowed_actions=episodes.final_allowed_actions[agents],
                final_memories=episodes.final_memories[agents],
                terminated=ended,
                ended=ended,
                begun=np.full(len(agents), first == 0),
                agents=agents + 5,
            )
        )
    return parts


def batches(parts: Sequence[Trajectories], size: int) -> list[Trajectories]:
    return [
        Trajectories.concatenate(parts[a:b]) for a, b in pairwise([*range(0, len(parts), size), len(parts)])
    ]


def plain_deviation(rewards: np.ndarray, lengths: Sequence[int], gamma: float) -> float:
    squares, start = [], 0
    for length in lengths:
        total = 0.0
        for reward in rewards[start : start + length].tolist():
            total = gamma * total + reward
            squares.append(total * total)
        start += length
    return float(np.mean(squares) ** 0.5)


@pytest.mark.parametrize("horizon", HORIZONS)
@pytest.mark.parametrize("together", [1, 3])
def test_a_scale_is_independent_of_where_trajectories_are_cut(
    make_trajectories, horizon: int, together: int
) -> None:
    lengths = [1000, 370, 5]
    episodes = make_trajectories(SPEC, lengths)
    rewards = np.random.default_rng(1).exponential(size=len(episodes)).astype(np.float32)
    scale = RewardScale(0.99)
    for part in batches(cut(replace(episodes, rewards=rewards), horizon), together):
        scale.update(part, part.rewards)
    assert scale.deviation == pytest.approx(plain_deviation(rewards, lengths, 0.99), rel=1e-9)


def scale_of(source: RewardSource) -> list[float]:
    scale: list[float] = source.state_dict()["scale"]
    return scale


@pytest.mark.parametrize("name", ["curiosity", "rnd"])
@pytest.mark.parametrize("replayed", [False, True])
def test_every_signal_has_one_scale_whatever_the_horizon(
    make_source, make_trajectories, name: str, replayed: bool
) -> None:
    episodes = make_trajectories(SPEC, [300, 90])
    scales = []
    for horizon in HORIZONS:
        source = make_source(name, SPEC, gamma=0.99, normalize_rewards=True)
        source.learn(Experience(episodes, CPU).take(slice(0, 64)))
        for part in cut(episodes, horizon):
            experience = Experience(part, CPU)
            source.update_statistics(experience) if replayed else source.record(experience)
        scales.append(scale_of(source)[1])
    assert scales == pytest.approx([scales[0]] * len(HORIZONS), rel=1e-5)
    assert scales[0] > 0.0
