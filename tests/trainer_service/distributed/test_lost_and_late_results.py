"""What workers lose with their processes, and what comes of a policy that is too old."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from in_process_workers import SMALL_PPO, Finished, InProcessWorkers, learn_in_process, options_of
from walkers import Walk, walkers

from trainer_service.distributed import worker
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.callbacks import Callback, RunView
from unity_bridge.errors import SimulatorLost

SINGLE_RANK = walkers({"A?team=0": Walk(agents=1)})
SETTINGS = {**SMALL_PPO, "summary_freq": 10**6}
"""No summary forgets what was counted."""


class Learned(Callback):
    """Counts the steps that go to the learner."""

    steps = 0

    def on_collection(self, run: RunView, behavior: str, trajectories: Trajectories) -> None:
        self.steps += len(trajectories)


class Slow:
    """Lets worker 1 answer only once for each ``times`` answers of worker 0."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.calls = 0

    def __call__(self, waiting: Sequence[int]) -> int:
        self.calls += 1
        return max(waiting) if self.calls % (self.times + 1) == 0 else min(waiting)


def total(run: Finished, name: str) -> float:
    """The sum that the next summary will say of ``Distributed/name``; 0 where it says none."""
    series = run.behaviors["A"].partial_summary(1.0).series
    found = series.get(f"Distributed/{name}")
    return 0.0 if found is None else found.value


def collected(run: Finished) -> int:
    """Agent steps in complete trajectories that workers have delivered."""
    return sum(map(len, run.trajectories()))


def counted(run: Finished) -> int:
    return sum(batch.transitions for batch in run.batches())


@pytest.mark.parametrize("comes_back", [False, True])
def test_others_collect_what_a_lost_worker_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    monkeypatch.setattr(worker, "REPORT_S", 0.0)  # results come in pieces, and one falls between two of them
    killed: list[int] = []
    owed: list[int] = []

    def kill(pool: InProcessWorkers) -> None:
        pieces = [answer for number, answer in pool.answers if number == 1][-12:]
        delivered = sum(
            len(batch.trajectories)
            for answer in pieces
            for _, batch in answer.batches
            if batch.trajectories is not None and answer.number == pool.requests[-1].number
        )
        if not killed and 8 < delivered < 32:
            pool.kill(1)
            killed.append(pool.waits)
            owed.append(32 - delivered)
        if comes_back and killed and pool.waits == killed[0] + 10:
            pool.spawn(1)

    learned = Learned()
    run = learn_in_process(
        options_of({"A": {**SETTINGS, "max_steps": 301}}),
        SINGLE_RANK, tmp_path, arrival=Slow(2), before_wait=kill, callbacks=[learned],
    )  # fmt: skip
    assert run.steps == {"A": 301} == {"A": counted(run)}
    assert learned.steps == collected(run)
    assert killed
    assert total(run, "Restarts") == run.source.num_restarts == 1
    assert run.source.num_simulators == 1 + comes_back
    assert [total(run, "Lost Steps")] == owed
    assert (run.pool.asked[-1][0] == 1 or run.pool.asked[-2][0] == 1) == comes_back


def test_too_few_workers_end_the_run_with_their_numbers(tmp_path: Path) -> None:
    def kill(pool: InProcessWorkers) -> None:
        if len(pool.answers) == 5:
            pool.kill(1)

    options = options_of({"A": SETTINGS}, distributed={"min_workers": 2})
    with pytest.raises(SimulatorLost, match="1 of 2 rollout workers are ready, min_workers is 2"):
        learn_in_process(options, SINGLE_RANK, tmp_path, before_wait=kill, timeout_wait_s=0.0)


def asynchronous(tmp_path: Path, max_policy_lag: int, **settings: Any) -> tuple[Finished, Learned]:
    learned = Learned()
    options = options_of(
        {"A": {**SETTINGS, "max_steps": 500, **settings}},
        distributed={"collection": "async", "max_policy_lag": max_policy_lag},
    )
    return learn_in_process(options, SINGLE_RANK, tmp_path, arrival=Slow(9), callbacks=[learned]), learned


def test_steps_of_a_policy_too_old_are_dropped_and_counted(tmp_path: Path) -> None:
    run, learned = asynchronous(tmp_path, 0)
    dropped = total(run, "Dropped Steps")
    assert dropped > 0
    assert learned.steps == collected(run) - dropped
    assert run.steps["A"] == 500
    assert total(run, "Policy Lag") == 0
    assert run.behaviors["A"].updates > 0


def test_steps_within_the_lag_are_learned_from(tmp_path: Path) -> None:
    run, learned = asynchronous(tmp_path, 50)
    assert total(run, "Dropped Steps") == 0
    assert learned.steps == collected(run)
    assert run.steps["A"] == 500 == counted(run)
    assert 0 < total(run, "Policy Lag") <= 2


def test_what_all_were_asked_for_keeps_to_the_budget(tmp_path: Path) -> None:
    for times, max_steps in ((1, 150), (3, 173), (5, 201)):
        options = options_of(
            {"A": {**SETTINGS, "max_steps": max_steps}},
            distributed={"num_workers": 3, "collection": "async", "max_policy_lag": 50},
        )
        run = learn_in_process(options, SINGLE_RANK, tmp_path / str(max_steps), arrival=Slow(times))
        assert run.steps == {"A": max_steps}


def test_a_worker_has_two_requests_at_most(tmp_path: Path) -> None:
    most = []

    def count(pool: InProcessWorkers) -> None:
        most.append(max(map(len, pool.calls.values())))

    options = options_of({"A": SETTINGS}, distributed={"collection": "async"})
    run = learn_in_process(options, SINGLE_RANK, tmp_path, arrival=Slow(3), before_wait=count)
    assert max(most) == 2
    assert run.steps["A"] == 200
