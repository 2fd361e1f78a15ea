"""The comparison of speeds with Stable-Baselines3 and SBX: everything but these, and the tables made of it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import readme_table
import versus_sb3
import yaml
from measuring import step_rates
from measuring.step_rates import (
    ROWS,
    Conditions,
    Pace,
    busy_cores,
    configuration,
    core_numbers,
    second_half_rate,
    table,
    task_of_others,
)
from measuring.timed import RunFailed

from trainer_service.config import load_run_options

PACES = [
    Pace("cartpole", "ours", 3000.0, 30.0, 20.0),
    Pace("cartpole", "ours", 5000.0, 30.0, 20.0),
    Pace("cartpole", "ours", 4000.0, 30.0, 20.0),
    Pace("cartpole", "stable_baselines3", 2000.0, 40.0, 30.0),
    Pace("cartpole", "sbx", 8000.0, 20.0, 15.0),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_all_sides_do_the_same(row, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(configuration(row)))
    options = load_run_options(tmp_path / "config.yaml").options
    ours = options.behaviors[row.env]
    assert list(options.env_settings.env_args) == ["--agents", str(row.copies)]
    assert not list(ours.remarks())
    theirs = task_of_others(row, seed=1)
    values, hyper = theirs["values"], ours.hyperparameters
    assert (theirs["units"], theirs["steps"]) == (ours.network_settings.hidden_units, ours.max_steps)
    assert values["batch_size"] == hyper.batch_size
    if row.learner == "ppo":
        assert values["n_steps"] * row.copies == hyper.buffer_size
        assert values["n_epochs"] == hyper.num_epoch
    else:
        assert (values["buffer_size"], values["learning_starts"]) == (
            hyper.buffer_size,
            hyper.buffer_init_steps,
        )
        assert hyper.steps_per_update == row.copies == 1


def test_the_speed_is_that_of_the_second_half() -> None:
    stamps = [(0, 0.0), (400, 90.0), (500, 91.0), (900, 93.0), (1000, 93.5)]
    assert second_half_rate(stamps) == 500 / 2.5
    with pytest.raises(RunFailed, match="too few stamps"):
        second_half_rate([(0, 0.0), (1000, 5.0)])


def test_the_table_has_medians_and_ratios() -> None:
    head, line = table(PACES).splitlines()
    assert head.split() == ["steps/s", "ours", "Stable-Baselines3", "ratio", "SBX", "ratio"]
    assert line.split("copies")[1].split() == [
        "4,000", "(3,000-5,000)", "2,000", "(2,000-2,000)", "2.00", "8,000", "(8,000-8,000)", "0.50",
    ]  # fmt: skip


@pytest.mark.process  # platform asks uname
def test_who_begins_rotates_and_a_failure_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order = []

    def run(row, trainer, seed, conditions, folder):
        order.append((row.name, trainer, seed))
        if trainer == "sbx":
            raise RunFailed("ended with 1")
        return Pace(row.name, trainer, 1000.0 * seed, 1.0, 1.0)

    monkeypatch.setattr(versus_sb3, "run", run)
    monkeypatch.setattr(versus_sb3, "there", lambda python: ("ours", "sbx"))
    out = tmp_path / "figures.json"
    assert versus_sb3.main(["--only", "cartpole", "--repetitions", "2", "--json", str(out)]) == 1
    assert order == [("cartpole", *each) for each in (("ours", 1), ("sbx", 1), ("sbx", 2), ("ours", 2))]
    assert "sbx: FAILED, ended with 1" in capsys.readouterr().out
    assert [pace["steps_per_s"] for pace in json.loads(out.read_text())["paces"]] == [1000.0, 2000.0]


def test_cores_are_a_list() -> None:
    assert core_numbers("0,2-3") == [0, 2, 3]
    with pytest.raises(SystemExit):
        versus_sb3.parse(["--cores", "all"])


@pytest.mark.process
def test_a_python_without_the_others_runs_ours_alone() -> None:
    assert versus_sb3.there(Path(sys.executable)) == ("ours",)


@pytest.mark.process
def test_busy_programs_end_with_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    popen = step_rates.subprocess.Popen
    monkeypatch.setattr(
        step_rates.subprocess, "Popen", lambda *given: started.append(popen(*given)) or started[-1]
    )
    with busy_cores(2, str(min(os.sched_getaffinity(0)))):
        assert [process.poll() for process in started] == [None, None]
    assert all(process.poll() is not None for process in started)


@pytest.mark.process
def test_ours_is_measured_with_further_flags(tmp_path: Path) -> None:
    row = replace(ROWS[0], steps=4 * step_rates.ROLLOUT)
    cores = str(min(os.sched_getaffinity(0)))
    flags = ("--set", f"behaviors.{row.env}.summary_freq=1024")
    pace = step_rates.run(row, "ours", 1, Conditions(cores, flags), tmp_path)
    assert pace.steps_per_s > 0.0
    assert len(step_rates.our_stamps(tmp_path / "run" / "metrics.jsonl")) == 8


def test_tables_of_the_readme_are_made_of_both_kinds_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = {
        "scene": "3dball", "variant": "", "agents": 12,
        "figures": {"agent steps/s, steady": {"ours": [9000.0, 9713.0, 9999.0], "theirs": [1877.0]}},
    }  # fmt: skip
    files = {
        "mlagents.json": [case],
        "sb3.json": {"busy": 0, "paces": [asdict(pace) for pace in PACES]},
        "busy.json": {"busy": 1, "paces": [asdict(pace) for pace in PACES[:1]]},
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert readme_table.main([str(tmp_path / name) for name in files]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| task, official settings | agent steps/s, ours | mlagents-learn | ratio |",
        "| --- | --- | --- | --- |",
        "| 3dball, 12 agents | 9,713 | 1,877 | 5.2 |",
        "",
        "| task | steps/s, ours | Stable-Baselines3 | ratio | SBX | ratio |",
        "| --- | --- | --- | --- | --- | --- |",
        "| PPO, CartPole-v1, 8 copies | 4,000 | 2,000 | 2.0 | 8,000 | 0.50 |",
        "| PPO, CartPole-v1, 8 copies, beside 1 busy programs | 3,000 | - | - | - | - |",
    ]
    for wrong in ([], ["no.json"]):
        with pytest.raises(SystemExit) as ending:
            readme_table.main(wrong)
        assert ending.value.code == 2
