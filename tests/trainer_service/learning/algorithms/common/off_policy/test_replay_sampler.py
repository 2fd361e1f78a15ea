"""Minibatches of learners off policy: when they are drawn, and what is saved of that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from made_trajectories import trajectories_of

from trainer_service.config.hyperparameters.off_policy import DQNSettings
from trainer_service.learning.algorithms.common.off_policy.replay_sampler import ReplaySampler
from trainer_service.learning.algorithms.common.off_policy.update_schedule import UpdateSchedule
from trainer_service.learning.replay import replay_buffer
from trainer_service.learning.replay.sequence_replay import SequenceReplay
from trainer_service.learning.replay.transitions import Sample, TransitionReplay
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.arrays import Rows
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("a", (1,)),), ActionSpec(1, ()))


def steps(count: int) -> Trajectories:
    """Episodes of one step each, with their number as observation."""
    column = np.arange(count, dtype=np.float32)
    return trajectories_of(
        [column[:, None]],
        [1] * count,
        continuous_actions=column[:, None],
        rewards=column,
        final_observations=(-column[:, None],),
        terminated=np.ones(count, np.bool_),
    )


def replay(*others: UpdateSchedule, seed: int = 1, **changes: Any) -> ReplaySampler[Sample]:
    """Learns every second step after the tenth, from four rows each."""
    prioritized = {"type": "prioritized", "beta": 0.5, "beta_updates": 10}
    given = {"batch_size": 4, "save_replay_buffer": True, "replay": prioritized, **changes}
    hyper = DQNSettings(**given)
    buffer = TransitionReplay(SPEC, 100, alpha=hyper.replay.priority_exponent)
    return ReplaySampler(buffer, hyper, seed, UpdateSchedule(10, 2.0), *others)


def drawn(experience: ReplaySampler[Sample]) -> list[list[int]]:
    """The rows of all minibatches that are due; what stands in a row is as wrong as its number is large."""
    found = []
    for sample in experience.minibatches(experience.rng()):
        found.append(sample.rows.tolist())
        experience.finish_step(torch.from_numpy(sample.observations[0][:, 0]))
    return found


def test_there_is_a_minibatch_for_each_update_that_was_earned() -> None:
    experience = replay()
    experience.record(steps(16))
    assert experience.schedule.due == 3
    assert experience.metrics()["Replay/Largest Priority"] == 1.0
    rows_drawn = drawn(experience)
    assert [len(rows) for rows in rows_drawn] == [4, 4, 4]
    assert experience.metrics()["Replay/Largest Priority"] == pytest.approx(np.max(rows_drawn) ** 0.6)
    assert experience.updates == experience.schedule.updates == 3
    assert not drawn(experience)
    assert experience.metrics()["Replay/Beta"] == pytest.approx(0.5 + 0.5 * 0.3)
    assert replay(replay={"type": "uniform"}).metrics() == {}


def test_samples_that_are_gathered_together_are_those_of_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together, one_by_one = (replay(replay={"type": "uniform"}) for _ in range(2))
    for each in (together, one_by_one):
        each.record(steps(24))
    monkeypatch.setattr(replay_buffer, "_MOST_BYTES", 3 * 4 * row_bytes(together))
    assert together.buffer.most_together(4) == 3
    rng, found = one_by_one.rng(), list(together.minibatches(together.rng()))
    assert len(found) == 7  # of which the last one is alone
    for sample in found:
        expected = one_by_one.sample(rng)
        assert sample.weights is None
        np.testing.assert_array_equal(sample.rows, expected.rows)
        np.testing.assert_array_equal(sample.observations[0], expected.observations[0])
        np.testing.assert_array_equal(sample.next_observations[0], expected.next_observations[0])
        np.testing.assert_array_equal(sample.task_rewards, expected.task_rewards)
    assert together.undivided is found[-1]


class Newest(TransitionReplay):
    """Draws the newest rows, so that a sample may depend on what was drawn before."""

    def draw(self, count: int, rng: np.random.Generator, beta: float) -> tuple[Rows, None]:
        return np.arange(len(self) - count, len(self)), None


def test_samples_that_may_depend_on_the_one_before_are_gathered_one_by_one() -> None:
    sequences = SequenceReplay(SPEC, 100, memory_size=0)
    for buffer in (Newest(SPEC, 100), TransitionReplay(SPEC, 100, alpha=0.5), sequences):
        assert buffer.most_together(4) == 1
    assert TransitionReplay(SPEC, 100).most_together(4) > 1
    assert TransitionReplay(SPEC, 100).most_together(1 << 20) == 1  # more than fits into the cache


def row_bytes(experience: ReplaySampler[Sample]) -> int:
    return sum(column[0].nbytes for column in experience.buffer._steps.values())


def test_everything_that_learns_from_it_keeps_its_own_pace() -> None:
    slow = UpdateSchedule(10, 4.0)
    experience = replay(slow)
    experience.record(steps(18))
    assert (experience.schedule.due, slow.due) == (4, 2)
    slow.updates = 1
    saved = experience.replay_state()
    assert saved is not None
    assert saved["schedules"].tolist() == [[18, 0, 10, 2], [18, 1, 10, 4]]
    other = UpdateSchedule(10, 4.0)
    replay(other).load_replay_state(saved)
    assert (other.steps, other.updates) == (18, 1)
    with pytest.raises(ValueError, match="longer"):
        replay().load_replay_state(saved)


@pytest.mark.parametrize(
    ("start", "rate", "after", "due"),
    [
        (10, 2.0, 4, 2),  # as before: the counts continue
        (10, 8.0, 8, 1),  # slower: no pause
        (10, 1.0, 4, 4),  # faster: no burst
        (500, 2.0, 4, 2),  # learning has begun
    ],
)
def test_new_settings_of_a_resumed_run_hold_from_its_step_on(
    start: int, rate: float, after: int, due: int
) -> None:
    before, resumed = UpdateSchedule(10, 2.0), UpdateSchedule(start, rate)
    before.steps, before.updates = 1010, 500
    resumed.load_state(before.state())
    resumed.steps += after
    assert resumed.due == due


def test_a_later_start_of_a_run_that_has_not_begun_is_waited_for() -> None:
    before, resumed = UpdateSchedule(100, 1.0), UpdateSchedule(50, 1.0)
    before.steps = 40
    resumed.load_state(before.state())
    assert (resumed.steps, resumed.due) == (40, 0)
    resumed.steps += 15
    assert resumed.due == 5


def test_counts_of_older_files_continue() -> None:
    schedule = UpdateSchedule(10, 2.0)
    schedule.load_state([1010.0, 499.0])
    assert schedule.due == 1
