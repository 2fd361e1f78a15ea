"""Methods over several tasks agree with numbers worked on paper."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from trainer_service.commands.common.aggregates import performance_profile
from trainer_service.commands.common.run_record import RunRecord, read_run
from trainer_service.commands.compare.exports import (
    require_format,
    score_matrices,
    write_comparison,
)
from trainer_service.commands.compare.tasks import THRESHOLDS, TaskComparison, compare_over_tasks
from trainer_service.errors import UserError

FINALS: Mapping[str, Mapping[str, Sequence[float]]] = {
    "ppo": {"Ball": [0.0, 50.0], "Walk": [-100.0, 100.0]},
    "sac": {"Ball": [50.0, 100.0], "Walk": [300.0, 100.0]},
}
BOUNDS = {"Ball": (0.0, 100.0), "Walk": (-100.0, 300.0)}


@pytest.fixture
def runs(make_run: object) -> list[RunRecord]:
    """Two runs of each of two methods on each of two tasks."""
    found = []
    for method, tasks in FINALS.items():
        for task, finals in tasks.items():
            for seed, final in enumerate(finals):
                path = make_run(  # type: ignore[operator]
                    f"{method}-{task}-{seed}",
                    [(100, 1.0, 0.0), (200, 2.0, final)],
                    seed=seed,
                    behavior=task,
                    settings={"trainer_type": method},
                )
                found.append(read_run(path))
    return found


@pytest.fixture
def compared(runs: list[RunRecord]) -> TaskComparison:
    return compare_over_tasks(runs, bounds=BOUNDS)


def test_a_profile_is_the_share_of_scores_above_each_threshold() -> None:
    shares = performance_profile(np.array([0.0, 0.25, 0.5, 1.0]), np.array([0.0, 0.25, 0.75, 1.0]))
    assert shares.tolist() == [0.75, 0.5, 0.25, 0.0]  # above, not at


def test_scores_are_normalized_by_the_bounds_of_their_task(compared: TaskComparison) -> None:
    ppo, sac = compared.methods
    assert [[run.score for run in own] for own in ppo.runs.values()] == [[0.0, 0.5], [0.0, 0.5]]
    assert [[run.score for run in own] for own in sac.runs.values()] == [[0.5, 1.0], [1.0, 0.5]]
    assert compared.notes == (
        "Some tasks have 2 run(s) of a method: such intervals are rough, and often too narrow.",
    )


def test_aggregates_are_those_worked_on_paper(compared: TaskComparison) -> None:
    ppo, sac = compared.methods
    # Of [0, 0, ½, ½] the middle half is [0, ½]; each task has two of them, of which a resample may take one twice.
    assert ppo.iqm == (0.25, 0.0, 0.5)
    assert sac.iqm == (0.75, 0.5, 1.0)
    # In each task one pair of four is a tie, the other three are won.
    assert sac.improvement is not None
    assert sac.improvement.value == pytest.approx(3.5 / 4)
    assert (sac.improvement.low, sac.improvement.high) == (pytest.approx(0.625), 1.0)
    assert ppo.improvement is None
    at = {0.0: 0.5, 0.49: 0.5, 0.5: 0.0}
    for threshold, share in at.items():
        assert ppo.profile[0, np.flatnonzero(threshold == THRESHOLDS)[0]] == share
    assert ppo.profile[1:, 0].tolist() == [0.0, 1.0]


def test_without_bounds_the_lowest_and_highest_runs_are_0_and_1(runs: list[RunRecord]) -> None:
    compared = compare_over_tasks(runs)
    assert compared.bounds == {"Ball": (0.0, 100.0), "Walk": (-100.0, 300.0)}
    assert "lowest and the highest final score of these runs: Ball, Walk" in compared.notes[0]


def test_comparisons_that_make_no_sense_are_refused(runs: list[RunRecord]) -> None:
    with pytest.raises(
        UserError, match="method 'sac' has no run of Walk; expected runs of every task: Ball, Walk"
    ):
        compare_over_tasks(runs[:6])
    with pytest.raises(UserError, match=r"bounds of task 'Wall': no such task.*Walk"):
        compare_over_tasks(runs, bounds={"Wall": (0.0, 1.0)})
    with pytest.raises(
        UserError, match="bounds of task 'Ball': expected a lower and a higher score, got 5 and 5"
    ):
        compare_over_tasks(runs, bounds={"Ball": (5.0, 5.0)})
    with pytest.raises(UserError, match=r"no run has a value of 'mean_retrun'.*mean_return"):
        compare_over_tasks(runs, metric="mean_retrun")


def test_equal_behaviors_of_different_environments_are_different_tasks(runs: list[RunRecord]) -> None:
    other = [
        RunRecord(
            run.path, run.trainer, {**(run.options or {}), "env_settings": {"env_path": "gym:B"}}, run.curves
        )
        for run in runs
    ]
    compared = compare_over_tasks([*runs, *other], bounds=dict.fromkeys(["gym:B Ball"], (0.0, 1.0)))
    assert [*compared.bounds] == ["gym:B Ball", "gym:B Walk", "sim:3dball Ball", "sim:3dball Walk"]


def test_scores_are_written_for_rliable_and_marl_eval(compared: TaskComparison, tmp_path: Path) -> None:
    write_comparison(compared, tmp_path / "scores.npz")
    with np.load(tmp_path / "scores.npz", allow_pickle=False) as file:
        assert file["ppo"].tolist() == [[0.0, 0.0], [0.5, 0.5]]
        assert file["sac"].tolist() == [[0.5, 1.0], [1.0, 0.5]]
    write_comparison(compared, tmp_path / "raw.json")
    raw = json.loads((tmp_path / "raw.json").read_text())
    run = raw["all"]["Walk"]["sac"]["run_1"]
    assert run["step_0"] == {"step_count": 100, "return": [0.0]}
    assert run["step_19"] == {"step_count": 200, "return": [100.0]}
    assert run["absolute_metrics"] == {"return": [100.0]}
    with pytest.raises(UserError, match=r"--to x.png: expected a file that ends with .csv, .md, .tex$"):
        require_format(Path("x.png"), over_tasks=False)
    with pytest.raises(UserError, match=r".json and .npz need --tasks"):
        require_format(Path("x.npz"), over_tasks=False)


def test_uneven_numbers_of_runs_make_no_matrix(runs: list[RunRecord]) -> None:
    with pytest.raises(
        UserError, match="method 'sac': expected equally many runs of every task, got Ball: 2, Walk: 1"
    ):
        score_matrices(compare_over_tasks(runs[:-1]))
