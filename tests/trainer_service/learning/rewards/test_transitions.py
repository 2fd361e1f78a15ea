"""Next observations: of the same agent, of the same episode, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from trainer_service.learning.rewards import Experience
from unity_bridge import specs
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

CPU = torch.device("cpu")
VECTOR = ObservationSpec("vector", (1,))
PICTURE = ObservationSpec("picture", (1, 20, 20), specs.PICTURE)


def numbered(make_trajectories, lengths: list[int]):
    """Trajectories of an agent that sees 0, 1, 2 …, a hundred more in each: its final observation is one more."""
    spec = BehaviorSpec((VECTOR,), ActionSpec(1, (2,)))
    seen = np.concatenate([100 * segment + np.arange(length) for segment, length in enumerate(lengths)])
    final = np.array([100 * segment + length for segment, length in enumerate(lengths)])
    made = make_trajectories(spec, lengths)
    return replace(
        made,
        observations=(seen[:, None].astype(np.float32),),
        final_observations=(final[:, None].astype(np.float32),),
    )


@pytest.mark.parametrize("lengths", [[1], [5], [1, 1, 1], [3, 1, 4, 1, 5], [64, 7, 64]], ids=str)
def test_the_next_observation_is_the_next_of_the_same_segment(make_trajectories, lengths) -> None:
    experience = Experience(numbered(make_trajectories, lengths), CPU)
    order = torch.randperm(len(experience), generator=torch.Generator().manual_seed(1))
    for rows in (slice(None), slice(1, 3), order, order[:2]):
        transitions = experience.take(rows)
        seen, followed = transitions.observations[0], transitions.next_observations[0]
        assert torch.equal(followed, seen + 1)


def test_everything_of_a_row_is_of_one_step(make_trajectories) -> None:
    trajectories = numbered(make_trajectories, [3, 2])
    trajectories = replace(
        trajectories, rewards=np.arange(5, dtype=np.float32), group_rewards=np.full(5, 10.0, np.float32)
    )
    rows = torch.tensor([4, 0, 2])
    transitions = Experience(trajectories, CPU).take(rows)
    assert len(transitions) == 3
    assert transitions.observations[0][:, 0].tolist() == [101, 0, 2]
    assert transitions.task_rewards.tolist() == [14.0, 10.0, 12.0]
    assert np.array_equal(transitions.continuous_actions, trajectories.continuous_actions[rows])
    assert np.array_equal(transitions.discrete_actions, trajectories.discrete_actions[rows])


def test_bytes_and_floats_of_one_sensor_mean_the_same(make_trajectories) -> None:
    spec = BehaviorSpec((PICTURE,), ActionSpec(1, ()))
    trajectories = make_trajectories(spec, [2, 1])
    (bytes_,) = trajectories.final_observations
    as_floats = replace(trajectories, final_observations=(bytes_.astype(np.float32) / 255,))
    mixed = Experience(as_floats, CPU).take(slice(None)).next_observations[0]
    pure = Experience(trajectories, CPU).take(slice(None)).next_observations[0]
    torch.testing.assert_close(mixed, pure / 255)
