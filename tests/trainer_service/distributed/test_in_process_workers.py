"""Whole runs on rollout workers without processes: who collects what, what is learned from it, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from behavior_worlds import assert_equal_states, flat
from in_process_workers import SMALL_PPO, Finished, learn_in_process, options_of
from walkers import Walk, walkers

from trainer_service.distributed import worker

REPLAY = {"batch_size": 16, "buffer_size": 1000, "buffer_init_steps": 40, "steps_per_update": 10}


ONE = walkers({"A?team=0": Walk()})


def states(run: Finished) -> dict[str, Any]:
    return flat({name: each.algorithm for name, each in run.checkpoints().items()})


def last_first(waiting: Sequence[int]) -> int:
    return max(waiting)


def test_quotas_add_up_and_go_by_worker_number(tmp_path: Path) -> None:
    run = learn_in_process(options_of({"A": SMALL_PPO}, distributed={"num_workers": 3}), ONE, tmp_path)
    rounds = [quota for _, quota in run.pool.asked if quota is not None and quota.steps]
    assert [quota.steps["A"] for quota in rounds[:6]] == [22, 21, 21, 22, 21, 21]
    assert [number for number, _ in run.pool.asked[:6]] == [0, 1, 2, 0, 1, 2]


def test_the_order_in_which_workers_answer_changes_no_bit(tmp_path: Path) -> None:
    options = options_of({"A": SMALL_PPO}, distributed={"num_workers": 3})
    forward = learn_in_process(options, ONE, tmp_path / "forward")
    backward = learn_in_process(options, ONE, tmp_path / "backward", arrival=last_first)
    assert [number for number, _ in forward.pool.answers[-3:]] == [0, 1, 2]
    assert [number for number, _ in backward.pool.answers[-3:]] == [2, 1, 0]
    assert_equal_states(states(forward), states(backward))


def test_a_worker_that_starts_late_changes_no_bit(tmp_path: Path) -> None:
    options = options_of({"A": SMALL_PPO})
    prompt = learn_in_process(options, ONE, tmp_path / "prompt")
    late = learn_in_process(options, ONE, tmp_path / "late", starts_at={0: 5, 1: 2})
    assert late.pool.waits > prompt.pool.waits
    assert_equal_states(states(prompt), states(late))


def test_pieces_in_which_a_quota_comes_change_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of({"A": {**SMALL_PPO, "trainer_type": "sac", "hyperparameters": REPLAY}})
    whole = learn_in_process(options, ONE, tmp_path / "whole")
    monkeypatch.setattr(worker, "REPORT_S", 0.0)
    pieces = learn_in_process(options, ONE, tmp_path / "pieces")
    assert len(pieces.pool.answers) > 2 * len(whole.pool.answers)
    assert whole.behaviors["A"].updates == pieces.behaviors["A"].updates > 0
    assert_equal_states(states(whole), states(pieces))


def test_two_resumes_of_one_checkpoint_are_equal(tmp_path: Path) -> None:
    options = options_of({"A": SMALL_PPO})
    half = learn_in_process(options, ONE, tmp_path / "half", turns=8)
    assert 0 < half.steps["A"] < 200
    one = learn_in_process(options, ONE, tmp_path / "one", resumed=half.checkpoints())
    other = learn_in_process(options, ONE, tmp_path / "other", resumed=half.checkpoints())
    assert one.steps == other.steps
    assert one.steps["A"] >= 200
    assert_equal_states(states(one), states(other))
    anew = learn_in_process(options, ONE, tmp_path / "anew")
    with pytest.raises(AssertionError):  # the world is resumed at its start, the policy is not
        assert_equal_states(states(one), states(anew))


def test_a_run_ends_with_its_exact_budget(tmp_path: Path) -> None:
    alone = walkers({"A?team=0": Walk(agents=1)})
    for workers, max_steps in ((1, 130), (2, 131), (3, 200)):
        options = options_of(
            {"A": {**SMALL_PPO, "max_steps": max_steps}}, distributed={"num_workers": workers}
        )
        assert learn_in_process(options, alone, tmp_path / str(workers)).steps == {"A": max_steps}


def test_a_budget_of_episodes_ends_a_run_with_the_round_that_fills_it(tmp_path: Path) -> None:
    settings = {**SMALL_PPO, "max_steps": 1000, "max_episodes": 20}
    options = options_of({"A": settings}, distributed={"num_workers": 2})
    run = learn_in_process(options, walkers({"A?team=0": Walk(agents=1)}), tmp_path)
    behavior = run.behaviors["A"]
    assert (behavior.step, behavior.episodes) == (
        140,
        28,
    )  # a round is 7 episodes of 5 steps from each worker


def test_environment_steps_of_workers_add_up_and_end_a_run_with_the_round_that_fills_them(
    tmp_path: Path,
) -> None:
    options = options_of(
        {"A": {**SMALL_PPO, "max_steps": 1000}}, distributed={"num_workers": 2}, max_env_steps=100
    )
    run = learn_in_process(options, walkers({"A?team=0": Walk(agents=2)}), tmp_path)
    assert run.behaviors.env_steps.taken == run.behaviors["A"].step / 2
    assert 100 <= run.behaviors.env_steps.taken < 140
    assert run.behaviors["A"].updates == run.behaviors["A"].step // 64
