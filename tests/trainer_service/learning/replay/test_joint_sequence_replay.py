"""The replay of whole group trajectories, on groups with agents that join, die, and decide at odd times."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from group_lives import NUM_AGENTS, SPEC, GroupLife

from trainer_service.learning.algorithms.common.off_policy.joint_layout import JointLayout, joint_layout
from trainer_service.learning.replay.joint_sequence_replay import JointSequenceReplay
from trainer_service.learning.replay.joint_transitions import JointSample
from trainer_service.learning.rollout.joint_steps import find_joint_steps, split_group_trajectories

MEMORY = 2


def replay_of(capacity: int = 4000, longest: int = 64, **changes: Any) -> JointSequenceReplay:
    given: dict[str, Any] = {"num_agents": NUM_AGENTS, "discount": 0.5, "memory_size": MEMORY}
    return JointSequenceReplay(SPEC, capacity, longest=longest, **{**given, **changes})


def everything(replay: JointSequenceReplay) -> JointSample:
    return replay._gather_whole(np.arange(len(replay._starts) - 1), None)


def numbers_at(layout: JointLayout, sample: JointSample) -> np.ndarray:
    """The number that was seen at each place."""
    assert sample.sequences is not None
    after = sample.sequences.follow_observations[0][layout.follows]
    seen = np.concatenate([sample.observations[0], after])[..., 0]
    numbers: np.ndarray = seen[layout.rows, layout.agents]
    return numbers


@pytest.mark.parametrize(
    ("together", "longest", "follow_agents", "n_step"),
    [(True, 3, False, 3), (False, 3, True, 3), (False, 64, False, 1)],
)
def test_agents_sequences_hold_what_they_lived_through(
    together: bool, longest: int, follow_agents: bool, n_step: int
) -> None:
    replay = replay_of(longest=longest, n_step=n_step, follow_agents=follow_agents)
    remembered: dict[float, float] = {}
    for trajectories in islice(GroupLife(1, together=together, memory_size=MEMORY), 80):
        replay.add(trajectories)
        remembered |= zip(trajectories.observations[0][:, 0], trajectories.memories[:, 0], strict=True)
    sample = everything(replay)
    assert sample.sequences is not None
    assert int(sample.sequences.lengths.max()) <= longest
    assert sample.present.sum() == len(remembered)
    layout = joint_layout(sample.sequences, sample.present)
    numbers = numbers_at(layout, sample)
    np.testing.assert_array_equal(
        numbers[layout.selected][sample.present], sample.observations[0][..., 0][sample.present]
    )
    there = sample.next_present
    assert there.sum() > 50
    np.testing.assert_array_equal(
        numbers[layout.next_selected][there], sample.next_observations[0][..., 0][there]
    )
    # An agent begins with what it remembered, zeros if it is new, and remembers what it saw before.
    ends = np.cumsum(layout.filled.sum(axis=1))
    for memory, places in zip(layout.memories, np.split(numbers, ends[:-1]), strict=True):
        decisions = places[:-1]
        assert memory.tolist() == [remembered[decisions[0]]] * MEMORY
        assert [remembered[number] for number in decisions[1:]] == decisions[:-1].tolist()
    assert not layout.memories.all()
    assert layout.memories.any()


def test_a_split_loses_nothing_and_goes_on_where_it_cut() -> None:
    split, longest = 0, 2
    for whole in islice(GroupLife(3, memory_size=MEMORY), 60):
        parts = split_group_trajectories(whole, NUM_AGENTS, longest)
        assert int(find_joint_steps(parts, NUM_AGENTS).lengths.max()) <= longest
        np.testing.assert_array_equal(parts.observations[0], whole.observations[0])
        assert parts.terminated.sum() == whole.terminated.sum()
        ends = np.cumsum(parts.lengths)
        cut = ~np.isin(ends, np.cumsum(whole.lengths))
        np.testing.assert_array_equal(parts.final_observations[0][cut], whole.observations[0][ends[cut]])
        np.testing.assert_array_equal(parts.final_memories[cut], whole.memories[ends[cut]])
        assert not parts.terminated[cut].any()
        split += int(cut.sum())
    assert split > 20


@pytest.mark.parametrize(("alpha", "after"), [(None, 30), (0.6, 60), (None, 90)])
def test_a_saved_state_continues_in_a_buffer_of_any_size(alpha: float | None, after: int) -> None:
    saved, resumed = replay_of(60, 4, alpha=alpha), replay_of(after, 4, alpha=alpha)
    life = iter(GroupLife(1, memory_size=MEMORY))
    for trajectories in islice(life, 50):
        saved.add(trajectories)
    resumed.load_state({name: column.copy() for name, column in saved.state().items()})
    for trajectories in islice(life, 30):
        saved.add(trajectories)
        resumed.add(trajectories)
    if after == 60:
        one, other = (each.sample(9, np.random.default_rng(2)) for each in (saved, resumed))
        np.testing.assert_array_equal(one.rows, other.rows)
    kept, others = everything(resumed), everything(saved)
    fewest = min(len(kept.rows), len(others.rows))
    np.testing.assert_array_equal(kept.observations[0][-fewest:], others.observations[0][-fewest:])
    assert fewest > 20
