"""Behaviors that come, go and end at different times and places, on rollout workers without processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_process_workers import SMALL_PPO, InProcessWorkers, learn_in_process, options_of
from walkers import Walk, walkers

from trainer_service.errors import UserError

A, B = "A?team=0", "B?team=0"
EARLY = {**SMALL_PPO, "max_steps": 40}


def test_behaviors_finish_at_their_own_budgets(tmp_path: Path) -> None:
    both = walkers({A: Walk(agents=1), B: Walk(agents=1)})
    run = learn_in_process(options_of({"A": SMALL_PPO, "B": EARLY}), both, tmp_path)
    assert run.steps["A"] == 200
    assert run.steps["B"] >= 40
    assert not any("B" in quota.steps for _, quota in run.pool.asked[-2:] if quota is not None)


def test_a_behavior_that_only_the_last_worker_has_comes_to_its_end(tmp_path: Path) -> None:
    worlds = walkers({A: Walk(agents=1)}, {A: Walk(agents=1)}, {B: Walk(agents=1)})
    behaviors = {"A": EARLY, "B": {**SMALL_PPO, "max_steps": 41}}
    options = options_of(behaviors, distributed={"num_workers": 3})
    run = learn_in_process(options, worlds, tmp_path)
    assert run.steps == {"A": 40, "B": 41}


def test_workers_with_different_sensors_are_refused(tmp_path: Path) -> None:
    def worlds(number, academy):
        return walkers({A: Walk()}, pictures=number == 1)(number, academy)

    with pytest.raises(UserError, match="behavior 'A' differs from what simulator 0 declared before"):
        learn_in_process(options_of({"A": SMALL_PPO}), worlds, tmp_path)


def test_a_behavior_that_no_worker_has_any_more_is_not_waited_for(tmp_path: Path) -> None:
    gone: list[bool] = []

    def kill(pool: InProcessWorkers) -> None:
        if len(pool.answers) > 8 and 1 in pool.workers:
            pool.kill(1)
        gone.append(1 not in pool.workers)

    worlds = walkers({A: Walk(agents=1)}, {B: Walk(agents=1)})
    run = learn_in_process(
        options_of({"A": SMALL_PPO, "B": {**SMALL_PPO, "max_steps": 10**6}}),
        worlds, tmp_path, before_wait=kill, absence_timeout_s=0.0,
    )  # fmt: skip
    assert gone[-1]
    assert run.steps["A"] == 200
    assert 0 < run.steps["B"] < 200
