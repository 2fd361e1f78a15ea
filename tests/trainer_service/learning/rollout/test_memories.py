"""Recurrent states of agents, and how long they last. Every decision writes agent and clock: 100·agent + clock."""

from __future__ import annotations

import numpy as np

from trainer_service.learning.rollout.assembler import Decisions, Observed, TrajectoryAssembler
from trainer_service.learning.rollout.recurrent_states import RecurrentStates
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import StepBatch

SPEC = BehaviorSpec((ObservationSpec("clock", (1,)),), ActionSpec(1))


def tick(ids: list[int], seen: list[float], *, terminated: int = 0, truncated: int = 0) -> StepBatch:
    """Terminated rows first, then truncated ones, then those that wait."""
    n, row = len(ids), np.arange(len(ids))
    return StepBatch(
        agent_ids=np.array(ids, np.int64),
        observations=(np.array(seen, np.float32)[:, None],),
        rewards=np.zeros(n, np.float32),
        terminated=row < terminated,
        truncated=(row >= terminated) & (row < terminated + truncated),
        allowed_actions=np.ones((n, 0), np.bool_),
        group_ids=np.zeros(n, np.int64),
        group_rewards=np.zeros(n, np.float32),
    )


class Driver:
    """Agents that remember two copies of what they saw last."""

    def __init__(self, horizon: int = 1000) -> None:
        self.assembler = TrajectoryAssembler(SPEC, horizon, memory_size=2)
        self.recalled: list[float] = []

    def __call__(self, batch: StepBatch, simulator: int = 0, team: int = 0) -> Observed:
        observed = self.assembler.observe(simulator, team, batch)
        memories = self.assembler.memories(observed.waiting)
        np.testing.assert_array_equal(memories[:, 0], memories[:, 1])
        self.recalled = memories[:, 0].tolist()
        seen = batch.observations[0][batch.num_terminal :]
        rows = len(seen)
        decisions = Decisions(
            seen, np.empty((rows, 0), np.int64), np.zeros(rows, np.float32), np.repeat(seen, 2, axis=1)
        )
        allowed = batch.allowed_actions[batch.num_terminal :]
        self.assembler.acted(observed.waiting, (seen,), allowed, decisions)
        return observed


def stored(trajectories: Trajectories | None) -> tuple[list[float], list[float]]:
    """Memories before each step and after the last ones."""
    assert trajectories is not None
    return trajectories.memories[:, 0].tolist(), trajectories.final_memories[:, 0].tolist()


def test_memory_is_zero_where_an_episode_follows_another() -> None:
    drive = Driver()
    drive(tick([1, 2], [101, 201]))
    observed = drive(tick([1, 1, 2], [102, 103, 202], terminated=1))
    assert stored(observed.trajectories) == ([0], [101])
    assert drive.recalled == [0, 201]
    drive(tick([1, 2], [104, 203]))
    assert drive.recalled == [103, 202]


def test_a_horizon_cuts_the_trajectory_but_not_the_memory() -> None:
    drive = Driver(horizon=2)
    drive(tick([1], [101]))
    drive(tick([1], [102]))
    cut = drive(tick([1], [103]))
    assert stored(cut.trajectories) == ([0, 101], [102])
    assert drive.recalled == [102]
    end = drive(tick([1], [104], terminated=1))
    assert stored(end.trajectories) == ([102], [103])


def test_memories_go_with_their_simulator_and_stay_with_their_team() -> None:
    drive = Driver()
    drive(tick([1], [101]), simulator=0)
    drive(tick([1], [111]), simulator=1)
    drive(tick([1], [121]), simulator=1, team=1)
    drive.assembler.drop(0)
    drive(tick([1], [102]), simulator=0)
    assert drive.recalled == [0]
    drive(tick([1], [112]), simulator=1)
    assert drive.recalled == [111]
    drive(tick([1], [122]), simulator=1, team=1)
    assert drive.recalled == [121]


def test_who_only_acts_remembers_the_same() -> None:
    """Compares with the assembler over hundreds of ticks with agents that come, go, skip and shuffle."""
    rng = np.random.default_rng(4)
    drive, states = Driver(), RecurrentStates(2)
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
        assert memories[:, 0].tolist() == drive.recalled
        states.set(rows, np.repeat(batch.observations[0][len(ended) :], 2, axis=1))
