from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scaling import cases, costs_table, fastest, prediction_table, rollouts_table, runs_table
from workers.arithmetic import Costs, Shape, efficiency, learner_for, predict, steps_per_s
from workers.ray_costs import RolloutCosts, result_of, rollout, size_of
from workers.runs import CONFIG, Case, Measured, Update, measure, steady, write_simulator
from workers.sleeper import AGENTS, BEHAVIOR, Sleeper

from trainer_service.config import load_run_options
from unity_bridge.steps import ActionBatch

COSTS = Costs(
    step_s=0.009,
    exchange_s=0.001,
    call_s=0.0005,
    put_bytes_per_s=1e6,
    take_bytes_per_s=2e6,
    policy_bytes=1000,
    samples_per_s=36_000,
    large_samples_per_s=360_000,
)
SHAPE = Shape(workers=2, simulators=1, agents=10, steps=12_000, step_bytes=50)
ROLLOUT = RolloutCosts("vectors", 1000, 50_000, 0.001, 0.05, 0.005, 0.02)


def test_a_round_by_hand() -> None:
    times = predict(COSTS, SHAPE)
    # 12000 steps by 2 workers of 10 agents are 600 exchanges of 10 ms; three epochs of them are 36000 samples.
    assert (times.collect, times.update) == pytest.approx((6.0, 1.0))
    # 0.6 MB: each worker puts half of it at 1 MB/s, the learner takes all at 2 MB/s; a request and an answer each.
    assert times.move == pytest.approx(0.3 + 0.3 + 4 * 0.0005)
    assert steps_per_s(COSTS, SHAPE, "sync") == pytest.approx(12_000 / 7.602)
    assert steps_per_s(COSTS, SHAPE, "async") == pytest.approx(12_000 / 6.0)


def test_a_network_carries_rollout_and_policies() -> None:
    near = predict(COSTS, SHAPE)
    far = predict(COSTS, replace(SHAPE, network_bytes_per_s=1e6))
    assert far.move - near.move == pytest.approx(0.602)


def test_nothing_moves_without_workers() -> None:
    times = predict(COSTS, replace(SHAPE, workers=0))
    assert (times.collect, times.move) == pytest.approx((12.0, 0.0))


def test_many_simulators_wait_for_their_worker() -> None:
    # 20 answers of 1 ms take longer than a step of 9 ms and its answer.
    assert predict(COSTS, replace(SHAPE, simulators=20)).collect == pytest.approx(30 * 0.02)
    assert predict(COSTS, replace(SHAPE, simulators=5)).collect == pytest.approx(120 * 0.01)


def test_with_the_learner_asked_for_workers_collect_nine_tenths() -> None:
    shape = replace(SHAPE, step_bytes=1)
    needed = learner_for(predict(COSTS, shape), shape, 0.9)
    assert needed is not None
    times = predict(replace(COSTS, samples_per_s=needed), shape)
    assert times.collect / times.sync == pytest.approx(0.9)


def test_no_learner_makes_up_for_a_slow_network() -> None:
    shape = replace(SHAPE, network_bytes_per_s=1e5)
    assert learner_for(predict(COSTS, shape), shape, 0.9) is None


def test_efficiency_is_the_share_of_the_ideal() -> None:
    assert efficiency(1800.0, 2, 1000.0) == pytest.approx(0.9)


def test_the_steady_state_begins_with_the_second_update() -> None:
    updates = [Update(5.0, 90, 9.0), Update(10.0, 100, 9.0), Update(12.0, 400, 0.5), Update(14.0, 700, 1.5)]
    assert steady(updates) == Measured(steps_per_s=150.0, update_s=1.0)


def test_too_few_updates_are_refused() -> None:
    with pytest.raises(RuntimeError, match="expected more than 2 updates, got 2"):
        steady([Update(1.0, 1, 1.0), Update(2.0, 2, 1.0)])


def test_each_collection_is_measured_against_one_worker_of_its_own() -> None:
    runs = {
        Case(workers=0): Measured(1100.0, 0.2),
        Case(workers=1): Measured(1000.0, 0.2),
        Case(workers=2): Measured(1800.0, 0.2),
        Case(workers=1, collection="async"): Measured(2000.0, 0.2),
        Case(workers=4, collection="async"): Measured(4000.0, 0.2),
    }
    lines = runs_table(COSTS, 50, runs).strip().splitlines()[1:]
    shares = [line.split()[-3] for line in lines[1:]]
    assert shares == ["1.00", "0.90", "1.00", "0.50"]


def test_the_fastest_run_counts() -> None:
    case = Case(workers=1)
    assert (
        fastest({case: [Measured(1.0, 0.1), Measured(3.0, 0.2), Measured(2.0, 0.3)]})[case].steps_per_s == 3.0
    )


def test_every_case_is_told_apart() -> None:
    titles = [case.title for case in cases(("sync", "async"), 5.0, 1.0)]
    assert titles[:3] == ["no workers", "1 worker, sync", "2 workers, sync"]
    assert len(set(titles)) == 7


def test_every_part_has_its_line() -> None:
    assert len(costs_table(COSTS).strip().splitlines()) == 9
    assert rollouts_table([ROLLOUT]).strip().splitlines()[1].split() == [
        "vectors", "1,000", "50", "0.1", "1.0", "50.0", "5.0", "20.0",
    ]  # fmt: skip
    assert [line.split()[2] for line in prediction_table(COSTS, ROLLOUT).strip().splitlines()[1:]] == [
        "1", "8", "125",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "step_bytes"), [("vectors", 52), ("pictures, bytes", 21_400), ("pictures, floats", 85_300)]
)
def test_a_rollout_is_as_large_as_what_its_steps_hold(kind, step_bytes: int) -> None:
    steps = rollout(kind, 130)
    assert steps.lengths.tolist() == [64, 64, 2]
    # 8 floats, 2 actions, 3 scalars are 52 bytes; the ends of three trajectories and the frame of it come on top.
    assert step_bytes < size_of(result_of(steps)) / 130 < 1.5 * step_bytes


def test_a_sleeper_plays_on_for_ever() -> None:
    scene = Sleeper(agents=3, step_s=0.0)
    steps = scene.reset(seed=1)[BEHAVIOR]
    actions = ActionBatch(np.zeros((3, 2), np.float32), np.zeros((3, 0), np.int32))
    ended, rewards = 0, 0.0
    for _ in range(1000):
        steps = scene.step({BEHAVIOR: actions})[BEHAVIOR]
        assert len(steps) - steps.num_terminal == 3
        ended += steps.num_terminal
        rewards += float(steps.rewards.sum())
    assert ended > 10
    assert rewards == pytest.approx(0.1 * 3 * 1000, rel=1e-4)


def test_the_sleepers_settings_are_those_of_the_arithmetic(tmp_path: Path) -> None:
    options = load_run_options(CONFIG).options
    tuning = options.behavior_settings("Sleeper").hyperparameters
    assert (tuning.buffer_size, tuning.num_epoch) == (12_000, SHAPE.epochs)
    assert Case(workers=1).agents == AGENTS
    program = write_simulator(tmp_path, Case(workers=1, step_ms=2.5)).read_text(encoding="utf-8")
    assert "--agents 12 --step-ms 2.5" in program


@pytest.mark.process
@pytest.mark.thorough
def test_a_run_is_measured_from_update_to_update() -> None:
    measured = measure(Case(workers=0, agents=96, step_ms=0.0, seconds=0.1))
    assert measured.steps_per_s > 0
    assert measured.update_s > 0
