"""Self-play and lessons where simulators live in rollout workers: they change between two requests."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process_workers import SMALL_PPO, Finished, InProcessWorkers, learn_in_process, options_of
from walkers import Walk, Walkers, walkers

from unity_bridge.simulators.academy import Academy

TEAMS = walkers({"A?team=0": Walk(agents=1), "A?team=1": Walk(agents=1)})
PLAY = {
    "save_steps": 20,
    "team_change": 40,
    "swap_steps": 10,
    "window": 3,
    "play_against_latest_model_ratio": 0.0,
}
DUEL = {**SMALL_PPO, "self_play": PLAY, "summary_freq": 10**6}


def lesson(require_reset: bool) -> dict[str, Any]:
    criteria = {
        "behavior": "A", "measure": "reward", "threshold": -1.0, "min_lesson_length": 4,
        "require_reset": require_reset,
    }  # fmt: skip
    lessons = [
        {"name": "first", "value": 1.0, "completion_criteria": criteria},
        {"name": "second", "value": 7.0},
    ]
    return {"environment_parameters": {"pay": {"curriculum": lessons}}}


@pytest.mark.parametrize(("collection", "require_reset"), [("sync", True), ("async", True), ("async", False)])
def test_lessons_change_between_two_requests(tmp_path: Path, require_reset: bool, collection: str) -> None:
    worlds: list[Walkers] = []

    def scenes(number: int, academy: Academy) -> Walkers:
        worlds.append(Walkers({"A?team=0": Walk(agents=1)}, academy))
        return worlds[-1]

    options = options_of({"A": SMALL_PPO}, **lesson(require_reset), distributed={"collection": collection})
    run = learn_in_process(options, scenes, tmp_path, arrival=Turns())
    told = [request.lessons["pay"] for request in run.pool.requests]
    assert told[0] == 0
    assert told[-1] == 1
    assert told == sorted(told)
    assert [world.resets for world in worlds] == [2 if require_reset else 1] * 2
    for answer, paid in paid_by_answer(run):
        value = (1.0, 7.0)[run.pool.requests[answer.number].lessons["pay"]]
        assert set(paid) <= {0.0, value} or not require_reset
    assert {7.0} <= {value for _, paid in paid_by_answer(run) for value in paid}


class Turns:
    """Lets workers answer in turn."""

    def __init__(self) -> None:
        self.last = 0

    def __call__(self, waiting: Any) -> int:
        self.last = min((each for each in waiting if each > self.last), default=waiting[0])
        return self.last


def paid_by_answer(run: Finished) -> list[tuple[Any, list[float]]]:
    return [
        (answer, np.unique(batch.trajectories.rewards).tolist())
        for _, answer in run.pool.answers
        for _, batch in answer.batches
        if batch.trajectories is not None
    ]


def test_one_team_learns_and_the_other_is_a_snapshot(tmp_path: Path) -> None:
    options = options_of({"A": DUEL}, distributed={"collection": "async"})
    run = learn_in_process(options, TEAMS, tmp_path, arrival=Turns())
    assert run.steps == {"A": 200}
    policies = [request.policies["A"] for request in run.pool.requests if request.policies]
    learning = [policy.learning_team for policy in policies]
    assert {0, 1} == set(learning)
    assert sum(before != after for before, after in pairwise(learning)) >= 2
    assert all(policy.learning_team not in policy.opponents for policy in policies)
    rules = run.behaviors["A"].self_play
    assert rules is not None
    assert rules.ghost_steps > 0
    assert all(
        batch.trajectories is None
        for _, answer in run.pool.answers
        for _, batch in answer.batches
        if batch.team != policies_of(run)[answer.number].learning_team
    )
    assert run.behaviors["A"].partial_summary(1.0).series["Self-play/ELO"].value > 0


def policies_of(run: Finished) -> dict[int, Any]:
    return {request.number: request.policies["A"] for request in run.pool.requests if request.policies}


@pytest.mark.parametrize("collection", ["sync", "async"])
def test_what_was_collected_before_a_turn_changed_does_not_count(tmp_path: Path, collection: str) -> None:
    options = options_of({"A": {**DUEL, "max_steps": 400}}, distributed={"collection": collection})
    now: dict[int, int] = {}
    """How often all had begun anew when an answer came, by its place among all answers."""

    def look(pool: InProcessWorkers) -> None:
        now[len(pool.answers)] = pool.requests[-1].restarts if pool.requests else 0

    run = learn_in_process(options, TEAMS, tmp_path, arrival=Turns(), before_wait=look)
    requests = {request.number: request for request in run.pool.requests}
    learned, late = 0, 0
    for place, (_, answer) in enumerate(run.pool.answers):
        request = requests[answer.number]
        for name, batch in answer.batches:
            if batch.team == request.policies[name].learning_team:
                if request.restarts == now[place]:
                    learned += batch.transitions
                else:
                    late += batch.transitions
    assert requests[max(requests)].restarts >= 3
    assert run.steps == {"A": learned} == {"A": 400}
    assert (late > 0) == (collection == "async")


def test_workers_meet_fixed_opponents(tmp_path: Path) -> None:
    self_play = {"opponents": ["random"], "team_change": 10**6, "save_steps": 50}
    options = options_of({"A": {**DUEL, "max_steps": 200, "self_play": self_play}})
    run = learn_in_process(options, TEAMS, tmp_path)
    published_to = [request.policies["A"] for request in run.pool.requests if request.policies]
    assert all(policy.learning_team == 0 for policy in published_to)
    # From the first request on: no team that is not known yet acts as the learner.
    assert all(policy.fixed_opponents[1].name.text == "random" for policy in published_to)
    assert run.steps["A"] >= 200
