"""Advantages of groups, worked by hand. Two agents of one group decide three times."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from made_trajectories import trajectories_of

from trainer_service.learning.algorithms.common.on_policy.group_rollout import (
    all_joint_steps,
    group_advantages,
    individual_advantages,
    joint_step_batches,
    referenced_observations,
)
from trainer_service.learning.algorithms.common.on_policy.rollout import (
    GroupRollout,
    MinibatchSampler,
    SequenceSampler,
)
from trainer_service.learning.algorithms.on_policy.coma import per_agent_rewards
from trainer_service.learning.rewards import Experience
from trainer_service.learning.rollout.joint_steps import JointSteps, find_joint_steps
from trainer_service.learning.rollout.trajectories import GroupIndex, Trajectories


@dataclass(frozen=True)
class Source:
    name: str = "extrinsic"
    strength: float = 1.0
    gamma: float = 0.9
    ignores_end: bool = False


def trajectories(
    lengths: list[int], terminated: list[bool], groups: list[int], agent_indices: list[int]
) -> Trajectories:
    """Trajectories that all begin at tick 0 of their group trajectory."""
    steps, segments = sum(lengths), len(lengths)
    return trajectories_of(
        [np.arange(steps, dtype=np.float32)[:, None]],
        lengths,
        final_observations=(100 + np.arange(segments, dtype=np.float32)[:, None],),
        terminated=np.array(terminated),
        group_index=GroupIndex(
            ticks=np.concatenate([np.arange(length) for length in lengths]),
            final_ticks=np.array(lengths),
            groups=np.array(groups),
            agent_indices=np.array(agent_indices),
            earned=np.full(steps, np.nan),
            final_earned=np.full(segments, np.nan),
        ),
    )


def rollout(
    group_rollout: Trajectories, rewards: list[float], common: list[float] | None = None
) -> GroupRollout:
    nothing, cpu = torch.empty(0), torch.device("cpu")
    shared = np.array(common or [0.0] * len(rewards), np.float32)
    joint_steps = find_joint_steps(replace(group_rollout, group_rewards=shared), 2)
    return GroupRollout(
        trajectories=group_rollout,
        experience=Experience(group_rollout, cpu),
        sampler=MinibatchSampler(len(group_rollout), 1, cpu),
        joint_steps=joint_steps,
        members=torch.from_numpy(joint_steps.members),
        joint_observations=[],
        observations=[],
        final=[],
        rewards=np.array(rewards, np.float32)[:, None],
        own_rewards=(np.array(rewards, np.float32) - shared)[:, None],
        group_rewards=joint_steps.group_rewards[:, None],
        continuous_actions=nothing,
        discrete_actions=nothing,
        allowed_actions=nothing,
        old_log_prob=nothing,
    )


def equal_values(joint_steps: JointSteps, *values: float) -> np.ndarray:
    """Values that are equal for every agent index. [F, 2, 1]"""
    assert len(joint_steps) == len(values)
    return np.repeat(np.array(values, np.float64)[:, None, None], 2, axis=1)


def test_one_agents_return_is_the_published_one() -> None:
    """r = 1, 1, 1; V = .5, .6, .7, then .4; γ .9, λ .8."""
    group_rollout = rollout(trajectories([3], [False], [0], [0]), [1.0, 1.0, 1.0])
    values = equal_values(group_rollout.joint_steps, 0.5, 0.6, 0.7, 0.4)[:, :1]
    for estimate in (individual_advantages, group_advantages):
        found = estimate(group_rollout, [Source()], values, gae_lambda=0.8)
        returns = found.returns[group_rollout.joint_steps.of_step, 0, 0]
        assert returns.tolist() == pytest.approx([2.623744, 2.1052, 1.36])


def test_all_rewards_count_for_all_agents_and_the_groups_once() -> None:
    group_rollout = rollout(
        trajectories([2, 2], [True, True], [0, 0], [0, 1]), [1.0, 7.0, 2.0, 6.0], common=[0.0, 5.0, 0.0, 5.0]
    )
    found = group_advantages(
        group_rollout,
        [Source(gamma=1.0)],
        equal_values(group_rollout.joint_steps, 0.0, 0.0)[:, :1],
        gae_lambda=1.0,
    )
    # First 1 and 2 of their own; then 2 and 1 of their own, and 5 for the group.
    assert found.returns[:, 0, 0].tolist() == pytest.approx([11.0, 8.0])
    assert found.advantages[:, 0].tolist() == pytest.approx([11.0, 8.0, 11.0, 8.0])


def test_rewards_after_a_death_count_only_through_the_group() -> None:
    group_rollout = rollout(trajectories([1, 3], [True, True], [0, 0], [0, 1]), [0.0, 0.0, 0.0, 4.0])
    values = equal_values(group_rollout.joint_steps, 0.0, 0.0, 0.0)
    alone = individual_advantages(group_rollout, [Source(gamma=1.0)], values, gae_lambda=1.0)
    together = group_advantages(group_rollout, [Source(gamma=1.0)], values[:, :1], gae_lambda=1.0)
    assert alone.advantages[0, 0] == 0.0
    assert together.advantages[0, 0] == pytest.approx(4.0)
    assert alone.mask.tolist() == [[True, True], [False, True], [False, True]]


def test_only_novelty_is_bootstrapped_past_the_end_of_a_task() -> None:
    group_rollout = rollout(trajectories([1], [True], [0], [0]), [1.0])
    values = equal_values(group_rollout.joint_steps, 3.0)
    for source, worth in ((Source(), 1.0), (Source(ignores_end=True), 1.0 + 0.9 * 3.0)):
        assert individual_advantages(group_rollout, [source], values, gae_lambda=1.0).returns[
            0, 0, 0
        ] == pytest.approx(worth)
        together = group_advantages(group_rollout, [source], values[:, :1], gae_lambda=1.0)
        assert together.returns[0, 0, 0] == pytest.approx(worth)


def test_advantages_of_groups_are_independent() -> None:
    group_rollout = rollout(trajectories([2, 2], [True, True], [0, 1], [0, 0]), [1.0, 1.0, 10.0, 10.0])
    found = group_advantages(
        group_rollout,
        [Source(gamma=1.0)],
        equal_values(group_rollout.joint_steps, *[0.0] * 4)[:, :1],
        gae_lambda=1.0,
    )
    assert found.returns[:, 0, 0].tolist() == pytest.approx([2.0, 1.0, 20.0, 10.0])


def test_comas_reward_is_the_sum_divided_by_the_group_size() -> None:
    group_rollout = per_agent_rewards(rollout(trajectories([1], [True], [0], [0]), [6.0], common=[4.0]), 2)
    assert group_rollout.own_rewards.tolist() == [[1.0]]
    assert group_rollout.group_rewards.tolist() == [[2.0]]


@pytest.mark.parametrize("whole_trajectories", [False, True])
def test_an_epoch_sees_every_joint_step_with_decisions_once(whole_trajectories: bool) -> None:
    group_rollout = trajectories(
        [3, 3, 2, 1, 4], [False, False, True, True, False], [0, 0, 1, 2, 3], [0, 1, 0, 0, 0]
    )
    joint_steps = find_joint_steps(group_rollout, 2)
    generator, cpu = torch.Generator().manual_seed(3), torch.device("cpu")
    # 13 steps make three minibatches, whatever the order.
    sampler = (
        SequenceSampler(group_rollout, 8, 5, cpu)
        if whole_trajectories
        else MinibatchSampler(len(group_rollout), 5, cpu)
    )
    batches = joint_step_batches(joint_steps, sampler, generator)
    assert len(batches) == 3
    indices = torch.cat([batch.indices for batch in batches]).tolist()
    assert sorted(indices) == sorted(joint_steps.in_time().tolist())
    if whole_trajectories:
        for batch in batches:
            assert batch.filled is not None
            assert int(batch.filled.sum()) == len(batch.indices)


def test_all_joint_steps_come_in_the_order_of_time() -> None:
    joint_steps = find_joint_steps(trajectories([3, 2], [False, True], [0, 1], [0, 0]), 1)
    batch = all_joint_steps(joint_steps, torch.device("cpu"))
    assert batch.indices.tolist() == list(range(len(joint_steps)))


def test_only_referenced_observations_are_encoded() -> None:
    table = torch.arange(10.0).unsqueeze(1)
    members = torch.tensor([[7, -1], [2, 7]])
    (some,), renumbered = referenced_observations([table], members)
    assert len(some) == 3
    assert renumbered.tolist() == [[0, -1], [1, 2]]
    assert some[renumbered[1]].squeeze(1).tolist() == [2.0, 7.0]
