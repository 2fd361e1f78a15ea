"""Agents' episodes found again in the trajectories that they come in."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from group_lives import GroupLife

from trainer_service.learning.rollout import episode_runs
from trainer_service.learning.rollout.episode_runs import EpisodeRuns, EpisodeValues
from trainer_service.learning.rollout.trajectories import Trajectories


def ends_of(trajectories: Trajectories, runs: EpisodeRuns) -> tuple[np.ndarray, np.ndarray]:
    """Numbers that the agents saw at each run's first step, and after its last."""
    seen, last = trajectories.observations[0][:, 0], np.cumsum(trajectories.lengths) - 1
    final = dict(zip(last.tolist(), trajectories.final_observations[0][:, 0].tolist(), strict=True))
    starts = np.cumsum(runs.lengths) - runs.lengths
    finals = [final[step] for step in runs.steps[starts + runs.lengths - 1].tolist()]
    for before, after in zip(runs.steps[:-1].tolist(), runs.steps[1:].tolist(), strict=True):
        if before in final and after not in runs.steps[starts]:
            assert seen[after] == final[before]
    return seen[runs.steps[starts]], np.array(finals)


@pytest.mark.parametrize("by_group", [False, True])
def test_runs_go_on_where_an_episode_was_cut(by_group: bool) -> None:
    # Whatever an agent's trajectory goes on with is what it saw after the one before.
    life, values = GroupLife(1, by_group=by_group), EpisodeValues()
    parts = list(islice(life, 120))
    continued = 0
    for i in range(0, len(parts), 3):
        trajectories = Trajectories.concatenate(parts[i : i + 3])
        runs = EpisodeRuns.of(trajectories)
        first, final = ends_of(trajectories, runs)
        before = values.before(runs)[:, 0]
        assert np.array_equal(before, np.where(runs.begun, 0.0, first))
        values.update(runs, final[:, None])
        continued += int(np.count_nonzero(~runs.begun))
        assert int(runs.lengths.sum()) == len(trajectories)
    assert continued > 50
    assert len(values.state_dict()["agents"]) <= 12


@pytest.mark.parametrize("by_group", [False, True])
def test_episodes_after_a_simulator_left_begin_anew(by_group: bool) -> None:
    life = GroupLife(4, by_group=by_group)
    list(islice(life, 60))
    for simulator in (0, 1):
        life.assembler.drop(simulator)
        life.allocator.drop(simulator)
    for key in life.alive:
        life.alive[key], life.asked[key] = set(), set()
    later = Trajectories.concatenate(list(islice(life, 60)))
    assert later.agents is not None
    assert later.begun is not None
    # Numbers are given away anew, the smallest first, and an agent's first trajectory begins its episode.
    assert later.agents.max() < 12 + 12 * by_group
    firsts = np.unique(later.agents, return_index=True)[1]
    assert later.begun[firsts].all()


def test_values_go_on_from_their_state() -> None:
    values, other = EpisodeValues(2), EpisodeValues(2)
    flags = np.array([False, False])
    runs = EpisodeRuns(np.arange(2), np.ones(2, np.int64), np.array([3, 1]), flags, np.array([False, True]))
    values.update(runs, np.array([[1.5, 2.0], [3.0, 4.0]]))
    assert values.state_dict() == {"agents": [3], "values": [[1.5, 2.0]]}
    other.load_state_dict(values.state_dict())
    assert other.before(runs).tolist() == [[1.5, 2.0], [0.0, 0.0]]


def test_agents_that_never_end_are_forgotten_one_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_runs, "_MOST_AGENTS", 2)
    values = EpisodeValues()
    for agent in (7, 8, 7, 9):  # 8 has been silent for longest
        run = EpisodeRuns(
            np.arange(1), np.ones(1, np.int64), np.array([agent]), np.zeros(1, bool), np.zeros(1, bool)
        )
        values.update(run, np.array([[float(agent)]]))
    assert values.state_dict() == {"agents": [7, 9], "values": [[7.0], [9.0]]}
