"""Whole runs on rollout workers without processes: who collects what, what is learned from it, and what is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from behavior_worlds import assert_equal_states, flat
from in_process_workers import Finished, learn_in_process, options_of
from walkers import Walk, Walkers

from trainer_service.distributed import worker
from unity_bridge.simulators.academy import Academy

SMALL: dict[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 16, "buffer_size": 64, "learning_rate_schedule": "constant"},
    "network_settings": {"hidden_units": 8, "num_layers": 1, "normalize": True},
    "max_steps": 200,
    "time_horizon": 8,
    "summary_freq": 100,
}
REPLAY = {"batch_size": 16, "buffer_size": 1000, "buffer_init_steps": 40, "steps_per_update": 10}


def scenes(*walks: dict[str, Walk], **more: Any) -> Callable[[int, Academy], Walkers]:
    """Simulator number n has the n-th of these worlds, further ones the last."""
    return lambda number, academy: Walkers(walks[min(number, len(walks) - 1)], academy, **more)


ONE = scenes({"A?team=0": Walk()})


def states(run: Finished) -> dict[str, Any]:
    return flat({name: each.algorithm for name, each in run.checkpoints().items()})


def last_first(waiting: Sequence[int]) -> int:
    return max(waiting)


def test_shares_add_up_and_go_by_worker_number(tmp_path: Path) -> None:
    run = learn_in_process(options_of({"A": SMALL}, distributed={"num_workers": 3}), ONE, tmp_path)
    rounds = [share for _, share in run.pool.asked if share is not None and share.steps]
    assert [share.steps["A"] for share in rounds[:6]] == [22, 21, 21, 22, 21, 21]
    assert [number for number, _ in run.pool.asked[:6]] == [0, 1, 2, 0, 1, 2]


def test_the_order_in_which_workers_answer_changes_no_bit(tmp_path: Path) -> None:
    options = options_of({"A": SMALL}, distributed={"num_workers": 3})
    forward = learn_in_process(options, ONE, tmp_path / "forward")
    backward = learn_in_process(options, ONE, tmp_path / "backward", arrival=last_first)
    assert [number for number, _ in forward.pool.answers[-3:]] == [0, 1, 2]
    assert [number for number, _ in backward.pool.answers[-3:]] == [2, 1, 0]
    assert_equal_states(states(forward), states(backward))


@pytest.mark.parametrize("trainer_type", ["ppo", "sac"])
def test_pieces_in_which_a_share_comes_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer_type: str
) -> None:
    settings = {**SMALL, "trainer_type": trainer_type}
    if trainer_type == "sac":
        settings["hyperparameters"] = {
            "batch_size": 16,
            "buffer_size": 1000,
            "buffer_init_steps": 40,
            "steps_per_update": 10,
        }
    options = options_of({"A": settings})
    whole = learn_in_process(options, ONE, tmp_path / "whole")
    monkeypatch.setattr(worker, "REPORT_S", 0.0)
    pieces = learn_in_process(options, ONE, tmp_path / "pieces")
    assert len(pieces.pool.answers) > 2 * len(whole.pool.answers)
    assert whole.behaviors["A"].updates == pieces.behaviors["A"].updates > 0
    assert_equal_states(states(whole), states(pieces))


def test_two_resumes_of_one_checkpoint_are_equal(tmp_path: Path) -> None:
    options = options_of({"A": SMALL})
    half = learn_in_process(options, ONE, tmp_path / "half", turns=8)
    assert 0 < half.steps["A"] < 200
    one = learn_in_process(options, ONE, tmp_path / "one", resumed=half.checkpoints())
    other = learn_in_process(options, ONE, tmp_path / "other", resumed=half.checkpoints())
    assert one.steps == other.steps
    assert one.steps["A"] >= 200
    assert_equal_states(states(one), states(other))
    anew = learn_in_process(options, ONE, tmp_path / "anew")
    with pytest.raises(AssertionError, match="differs"):
        assert_equal_states(states(one), states(anew))


def test_a_run_ends_with_its_exact_budget(tmp_path: Path) -> None:
    alone = scenes({"A?team=0": Walk(agents=1)})
    for workers, max_steps in ((1, 130), (2, 131), (3, 200)):
        options = options_of({"A": {**SMALL, "max_steps": max_steps}}, distributed={"num_workers": workers})
        assert learn_in_process(options, alone, tmp_path / str(workers)).steps == {"A": max_steps}
