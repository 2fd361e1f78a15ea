"""Recurrent states of agents, and how long they last. Every decision writes agent and clock: 100·agent + clock."""

from __future__ import annotations

import numpy as np
from ticking import Driver, tick

from trainer_service.learning.rollout.recurrent_states import RecurrentStates
from trainer_service.learning.rollout.trajectories import Trajectories


def stored(trajectories: Trajectories | None) -> tuple[list[float], list[float]]:
    """Memories before each step and after the last ones."""
    assert trajectories is not None
    return trajectories.memories[:, 0].tolist(), trajectories.final_memories[:, 0].tolist()


def test_memory_is_zero_where_an_episode_follows_another() -> None:
    drive = Driver(memory_size=2)
    drive(tick([1, 2], [101, 201]))
    observed = drive(tick([1, 1, 2], [102, 103, 202], terminated=1))
    assert stored(observed.trajectories) == ([0], [101])
    assert drive.recalled[:, 0].tolist() == [0, 201]
    drive(tick([1, 2], [104, 203]))
    assert drive.recalled[:, 0].tolist() == [103, 202]


def test_a_horizon_cuts_the_trajectory_but_not_the_memory() -> None:
    drive = Driver(2, memory_size=2)
    drive(tick([1], [101]))
    drive(tick([1], [102]))
    cut = drive(tick([1], [103]))
    assert stored(cut.trajectories) == ([0, 101], [102])
    assert drive.recalled[:, 0].tolist() == [102]
    end = drive(tick([1], [104], terminated=1))
    assert stored(end.trajectories) == ([102], [103])


def test_memories_go_with_their_simulator_and_stay_with_their_team() -> None:
    drive = Driver(memory_size=2)
    drive(tick([1], [101]), simulator=0)
    drive(tick([1], [111]), simulator=1)
    drive(tick([1], [121]), simulator=1, team=1)
    drive.assembler.drop(0)
    drive(tick([1], [102]), simulator=0)
    assert drive.recalled[:, 0].tolist() == [0]
    drive(tick([1], [112]), simulator=1)
    assert drive.recalled[:, 0].tolist() == [111]
    drive(tick([1], [122]), simulator=1, team=1)
    assert drive.recalled[:, 0].tolist() == [121]


def test_who_only_acts_remembers_the_same() -> None:
    """Compares with the assembler over hundreds of ticks with agents that come, go, skip and shuffle."""
    rng = np.random.default_rng(4)
    drive, states = Driver(memory_size=2), RecurrentStates(2)
    alive: set[int] = set()
    for clock in range(300):
        present = rng.permutation(40)[: rng.integers(0, 40)].tolist()
        ended = [agent for agent in present if agent in alive and rng.random() < 0.2]
        deciding = [agent for agent in present if agent not in ended or rng.random() < 0.5]
        alive = (alive - set(ended)) | set(deciding)
        ids = ended + deciding
        batch = tick(ids, [1000.0 * agent + clock for agent in ids], terminated=len(ended))
        drive(batch)
        rows, memories = states.get(0, 0, batch)
        np.testing.assert_array_equal(memories, drive.recalled)
        states.set(rows, np.repeat(batch.observations[0][len(ended) :], 2, axis=1))
