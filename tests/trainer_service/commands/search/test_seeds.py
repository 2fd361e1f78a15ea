"""Runs with several seeds: seeds as text, plans, command lines, and whole runs that are killed and resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import Process
from run_files import write_end

import trainer_service
from trainer_service.cli import main
from trainer_service.commands.common.run_record import find_runs
from trainer_service.commands.parser import build_parser
from trainer_service.commands.search.seed_runs import (
    SeedRun,
    arguments_of_run,
    parse_seeds,
    plan_seeds,
)
from trainer_service.commands.search.seeds import is_finished, shared_flags
from trainer_service.config import RunOptions, parse_run_options
from trainer_service.errors import UserError

BASIC = ("basic", "--env=sim:basic", "--set=behaviors.Basic.max_steps=4000")


def options(tmp_path: Path, *, max_steps: int = 1000, **saved: Any) -> RunOptions:
    values = {
        "behaviors": {"Ball": {"max_steps": max_steps}},
        "checkpoint_settings": {"run_id": "walker", "results_dir": str(tmp_path), **saved},
    }
    return parse_run_options(values).options


def leave_run(
    tmp_path: Path, run_id: str, *, step: int, end: str = "finished", max_steps: int = 1000
) -> Path:
    """Writes what a run leaves that saved its last checkpoint at a step."""
    folder = tmp_path / run_id
    write_end(folder, end, Ball=step)
    values = {"behaviors": {"Ball": {"max_steps": max_steps}}, "max_env_steps": None}
    (folder / "configuration.yaml").write_text(yaml.safe_dump(values))
    row = {"behavior": "Ball", "step": step, "mean_return": 1.0}
    (folder / "metrics.jsonl").write_text(f"{json.dumps(row)}\n")
    return folder


@pytest.mark.parametrize(
    ("text", "seeds"), [("1-5", (1, 2, 3, 4, 5)), ("1,4,7", (1, 4, 7)), ("0", (0,)), ("7, 2-3", (7, 2, 3))]
)
def test_seeds_are_ranges_and_lists(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected seeds such as 1-5 or 1,4,7, got ''"),
        ("5-1", "expected seeds such as 1-5 or 1,4,7, got '5-1'"),
        ("one", "got 'one'"),
        ("1,2-4,3", "expected every seed once, got 3 twice"),
        ("0-9999999", "expected at most 1000 seeds"),
    ],
)
def test_other_seeds_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=f"--seeds: .*{message}"):
        parse_seeds(text)


def test_resume_skips_finished_runs_resumes_begun_ones_and_starts_the_others(tmp_path: Path) -> None:
    leave_run(tmp_path, "walker-1", step=1000)
    leave_run(tmp_path, "walker-2", step=400, end="interrupted")
    resumed = options(tmp_path, resume=True)
    runs = plan_seeds(resumed, (1, 2, 3), lambda folder: is_finished(folder, resumed))
    assert [(run.run_id, run.action) for run in runs] == [
        ("walker-1", "skip"),
        ("walker-2", "resume"),
        ("walker-3", "start"),
    ]


@pytest.mark.parametrize(
    ("step", "end", "budget", "finished"),
    [
        (1000, "finished", 1000, True),
        (1000, "finished", 2000, False),  # the budget was raised
        (400, "finished", 1000, True),  # by a stop rule
        (400, "interrupted", 1000, False),
        (400, "failed", 1000, False),
    ],
)
def test_a_run_has_finished_if_its_end_would_be_the_same_again(
    tmp_path: Path, step: int, end: str, budget: int, finished: bool
) -> None:
    folder = leave_run(tmp_path, "walker-1", step=step, end=end)
    assert is_finished(folder, options(tmp_path, max_steps=budget)) is finished


def test_runs_that_exist_are_only_overwritten_by_force(tmp_path: Path) -> None:
    leave_run(tmp_path, "walker-2", step=400)
    with pytest.raises(UserError, match=r"run id 'walker-2' is taken: .*--resume.*--force"):
        plan_seeds(options(tmp_path), (1, 2), lambda folder: False)
    runs = plan_seeds(options(tmp_path, force=True), (1, 2), lambda folder: False)
    assert [run.action for run in runs] == ["start", "start"]


def test_every_run_has_its_own_id_seed_and_ports(tmp_path: Path) -> None:
    given = options(tmp_path, force=True).model_dump(mode="json")
    given["env_settings"] |= {"base_port": 6000, "num_envs": 3}
    given["metrics_port"] = 9100
    shared = parse_run_options(given).options
    run = SeedRun(2, 7, "walker-7", tmp_path / "walker-7", "start")
    assert arguments_of_run(run, shared, file_resumes=False) == [
        "--run-id=walker-7",
        "--seed=7",
        "--base-port=6006",
        "--metrics-port=9102",
        "--force",
    ]


def test_flags_are_handed_on_as_they_were_given() -> None:
    flags = [
        "--env=sim:basic", "--num-envs=2", "--isolate", "--no-graphics", "--track=mlflow", "--track=wandb",
        "--time-scale=2.5", "--results-dir=elsewhere",
    ]  # fmt: skip
    parsed = build_parser().parse_args(["learn", *flags, "--run-id=a", "--seed=1", "--resume", "--force"])
    assert sorted(shared_flags(vars(parsed))) == sorted(flags)
    assert shared_flags({"isolate": False, "no_graphics": None}) == ["--set=env_settings.isolate=false"]
    assert shared_flags({"isolate": "auto"}) == ["--set=env_settings.isolate=auto"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--env=sim:basic", "--seed=3"], "--seed 3: expected --seed or --seeds, got both"),
        (["--env=sim:basic", "--inference"], "--seeds: expected runs that train, got --inference"),
        ([], "--seeds: expected an environment to start"),
        (["--port=5005"], "--port: with --seeds no simulator attaches"),
        (["--env=sim:basic", "--resume=best"], "--resume=best: with --seeds expected --resume alone"),
        (["--env=sim:basic", "--jobs=0"], "--jobs: expected at least 1, got 0"),
    ],
)
def test_flags_that_make_no_sense_with_seeds_are_refused(
    flags: list[str], message: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["learn", "basic", "--seeds=1-2", *flags]) == 2
    assert message in capsys.readouterr().err
    assert not (workplace / "results").exists()


def test_an_id_stands_for_its_runs_with_several_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id in ("walker-10", "walker-2", "walker-old"):
        leave_run(tmp_path, run_id, step=10)
    assert find_runs(["walker"], tmp_path) == [tmp_path / "walker-2", tmp_path / "walker-10"]
    monkeypatch.chdir(tmp_path.parent)
    assert find_runs([f"{tmp_path.name}/walker"], Path("results")) == [
        Path(tmp_path.name, "walker-2"),
        Path(tmp_path.name, "walker-10"),
    ]
    leave_run(tmp_path, "walker", step=10)
    assert find_runs(["walker"], tmp_path) == [tmp_path / "walker"]


@pytest.fixture
def learn(start: Callable[..., Process]) -> Callable[..., Process]:
    return partial(start, "learn", *BASIC)


def test_a_failed_run_is_told_with_its_last_lines(learn: Callable[..., Process], workplace: Path) -> None:
    process = learn("--run-id=b", "--seeds=1-2", "--initialize-from=nothing")
    assert process.end() == 2, process.output
    assert "b-1: exited with code 2; its last lines" in process.output
    assert "no run 'nothing' in 'results'" in process.output
    assert "0 of 2 runs finished" in process.output


@pytest.mark.thorough
def test_programs_train_several_seeds(
    processes: None, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = str(Path(trainer_service.__file__).parents[1])
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, (repository, os.environ.get("PYTHONPATH"))))
    )
    settings = {
        "trainer_type": "ppo",
        "max_steps": 1000,
        "hyperparameters": {"buffer_size": 200, "batch_size": 100},
    }
    outcomes = trainer_service.train_seeds(settings, "sim:basic", seeds=[3, 5], jobs=2, run_id="b", verbose=0)
    assert [*outcomes] == [3, 5]
    assert outcomes[5].folder == Path("results/b-5")
    assert outcomes[5].steps["Basic"] >= 1000
    assert not outcomes[5].interrupted
    assert Path("results/b.yaml").is_file()
    with pytest.raises(UserError, match="env: expected a name such as 'gym:MODULE:FUNCTION', got object"):
        trainer_service.train_seeds(settings, object(), seeds=[1])  # type: ignore[arg-type]
