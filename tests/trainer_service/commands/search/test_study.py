"""The study of a sweep: what is drawn, and what a kill leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer_service.commands.search.space import Space, read_space
from trainer_service.commands.search.study import SweepStudy

pytest.importorskip("optuna")

SPACE = read_space(
    {
        "rate": {"low": 1e-5, "high": 1e-2, "log": True},
        "kind": {"choices": ["ppo", "sac"]},
        "epochs": {"low": 1, "high": 10, "step": 4, "int": True, "when": {"kind": "ppo"}},
        "memory": {"choices": [None, {"memory_size": 8}]},
        "share": {"low": 0.0, "high": 1.0, "step": 0.3},
        "budget": {"fixed": 100},
    }
)


def study_in(folder: Path, space: Space = SPACE, **settings: Any) -> SweepStudy:
    return SweepStudy(
        folder / "journal.log",
        space,
        **{"direction": "maximize", "sampler": "tpe", "pruner": "median", "reports": 9, "seed": 3} | settings,
    )


def test_draws_are_of_the_space(tmp_path: Path) -> None:
    study = study_in(tmp_path)
    drawn = []
    for number in range(25):
        trial = study.ask()
        assert trial.number == number
        drawn.append(trial.values)
        study.complete(number, trial.values["share"], 10)
    assert all(1e-5 <= values["rate"] <= 1e-2 for values in drawn)
    assert {values["epochs"] for values in drawn if "epochs" in values} == {1, 5, 9}
    assert all(("epochs" in values) == (values["kind"] == "ppo") for values in drawn)
    assert {str(values["memory"]) for values in drawn} == {"None", "{'memory_size': 8}"}
    assert {values["share"] for values in drawn} <= {0.0, 0.3, 0.6, 0.9}
    assert {values["budget"] for values in drawn} == {100}


def test_study_that_is_opened_again_draws_what_one_would_have_drawn(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    whole = study_in(tmp_path / "whole")
    drawn = []
    for number in range(14):
        drawn.append(whole.ask().values)
        whole.complete(number, drawn[-1]["rate"], 10)
    again = []
    for number in range(14):
        broken = study_in(tmp_path / "broken")  # opened anew for every trial
        again.append(broken.ask().values)
        broken.complete(number, again[-1]["rate"], 10)
    assert again == drawn
    assert len({values["rate"] for values in drawn}) == 14


def test_every_state_survives(tmp_path: Path) -> None:
    study = study_in(tmp_path)
    values = [study.ask().values for _ in range(4)]
    study.complete(0, 1.5, 100)
    study.report(1, 1, 0.25)
    study.prune(1, 50)
    study.fail(2, 0, "out of memory")
    trials = study_in(tmp_path).trials()
    assert [trial.state for trial in trials] == ["complete", "pruned", "failed", "running"]
    assert [trial.score for trial in trials] == [1.5, 0.25, None, None]
    assert [trial.steps for trial in trials] == [100, 50, 0, 0]
    assert trials[2].message == "out of memory"
    assert [trial.values for trial in trials] == values


def test_half_a_line_and_a_lock_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    study_in(tmp_path).ask()
    with (tmp_path / "journal.log").open("ab") as journal:
        journal.write(b'{"op_code":4,"wor')
    (tmp_path / "journal.log.lock").symlink_to(tmp_path / "journal.log")
    study = study_in(tmp_path)
    assert study.ask().number == 1
    assert len(study_in(tmp_path).trials()) == 2


def test_trial_that_was_killed_between_two_draws_gets_the_others(tmp_path: Path) -> None:
    first = study_in(tmp_path).ask()
    journal = tmp_path / "journal.log"
    lines = journal.read_bytes().splitlines(keepends=True)
    kept = next(at for at, line in enumerate(lines) if b'"rate"' in line)
    journal.write_bytes(b"".join(lines[: kept + 1]))
    (trial,) = study_in(tmp_path).interrupted()
    assert trial.state == "running"
    assert trial.values["rate"] == first.values["rate"]
    assert trial.values.keys() >= {"kind", "memory", "share", "budget"}


def test_median_prunes_the_worse_half(tmp_path: Path) -> None:
    study = study_in(tmp_path)
    for number in range(5):
        study.ask()
        for at in range(1, 10):
            assert not study.report(number, at, float(number))
        study.complete(number, float(number), 10)
    study.ask()
    assert [study.report(5, at, 0.5) for at in range(1, 4)] == [False, False, True]
    study.ask()
    assert not any(study.report(6, at, 3.0) for at in range(1, 5))


def test_importances_name_the_parameter_that_matters(tmp_path: Path) -> None:
    study = study_in(tmp_path, sampler="random")
    assert study.importances() == {}
    for number in range(30):
        values = study.ask().values
        study.complete(number, 10 * values["share"] + (values["kind"] == "ppo"), 10)
    importances = study.importances()
    assert next(iter(importances)) == "share"
    assert sum(importances.values()) == pytest.approx(1.0)
