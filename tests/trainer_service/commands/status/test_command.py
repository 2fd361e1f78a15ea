"""The command ``status`` on folders of runs."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_files import write_end

from trainer_service.cli import main
from trainer_service.running.runs.lock import FileLock

RUN = Path("results/walker")


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of two behaviors, whose last summaries are 10 s apart."""
    monkeypatch.chdir(tmp_path)
    RUN.mkdir(parents=True)
    settings = {"max_steps": 1000}
    options = {"behaviors": {"Ball": settings, "Pad": settings}}
    (RUN / "configuration.yaml").write_text(yaml.safe_dump(options))
    rows = [
        {"behavior": "Pad", "step": 100, "wall_s": 20.0, "mean_return": 2.0, "steps_per_s": 5.0},
        {"behavior": "Ball", "step": 400, "wall_s": 30.0, "mean_return": 1.5, "steps_per_s": 50.0},
    ]
    (RUN / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@contextmanager
def locked() -> Iterator[None]:
    lock = FileLock(RUN / ".lock")
    yield
    lock.release()


@pytest.fixture
def status(capsys: pytest.CaptureFixture[str]) -> Callable[[], tuple[int, dict[str, Any]]]:
    def ask() -> tuple[int, dict[str, Any]]:
        code = main(["status", "walker", "--json"])
        return code, json.loads(capsys.readouterr().out)

    return ask


def test_a_run_that_goes_on_is_running(status) -> None:
    written_s = time.time() - 60
    os.utime(RUN / "metrics.jsonl", (written_s, written_s))
    with locked():
        code, told = status()
    assert (code, told["state"], told["process"]) == (0, "running", os.getpid())
    ball, pad = told["behaviors"]["Ball"], told["behaviors"]["Pad"]
    told_of_ball = [ball[key] for key in ("step", "max_steps", "mean_return", "steps_per_s")]
    assert told_of_ball == [400, 1000, 1.5, 50.0]
    assert 60 <= told["last_line_age_s"] <= ball["last_summary_age_s"] < 600
    assert pad["last_summary_age_s"] == pytest.approx(ball["last_summary_age_s"] + 10, abs=0.01)
    assert ball["checkpoint_age_s"] is ball["checkpoint_step"] is None


@pytest.mark.parametrize(
    ("how", "why", "steps", "state", "code"),
    [
        ("finished", "its budget, which is used up", 1000, "finished", 0),
        ("finished", "its budget of environment steps (max_env_steps), which is used up", 400, "finished", 0),
        ("finished", "stop: wall_clock, 1 s, is over", 400, "stopped early", 0),
        ("interrupted", "SIGTERM", 400, "stopped early", 0),
        ("failed", "simulator 0: exited with code 7", 400, "failed", 1),
    ],
)
def test_the_exit_code_tells_how_a_run_ended(
    status, how: str, why: str, steps: int, state: str, code: int
) -> None:
    write_end(RUN, how, why, Ball=steps, Pad=steps)
    assert status()[0] == code
    told = status()[1]
    assert (told["state"], told["ended_by"], told["ok"]) == (state, why, code == 0)
    assert told["behaviors"]["Ball"]["checkpoint_step"] == steps


def test_a_run_that_was_killed_is_broken_off(status) -> None:
    code, told = status()
    assert (code, told["state"], told["ended_by"], told["process"]) == (1, "broken off", "", None)


def test_the_words_name_steps_returns_and_ages(capsys: pytest.CaptureFixture[str]) -> None:
    write_end(RUN, "failed", "CUDA \x1b[2J is gone", Ball=400, Pad=100)
    (RUN / "Ball").mkdir()
    (RUN / "Ball" / "checkpoint.safetensors").touch()
    assert main(["status", str(RUN)]) == 1
    head, *behaviors = re.sub(r"\d+ s ago", "N s ago", capsys.readouterr().out).splitlines()
    assert head == r"walker: failed, ended by CUDA \x1b[2J is gone, last line N s ago"
    assert behaviors == [
        "  Pad: 100 of 1,000 steps (10 %), mean return 2.000, 5 steps/s, last summary N s ago, "
        "last checkpoint at step 100",
        "  Ball: 400 of 1,000 steps (40 %), mean return 1.500, 50 steps/s, last summary N s ago, "
        "last checkpoint at step 400, saved N s ago",
    ]


@pytest.mark.parametrize("command", ["status", "report"])
def test_an_unknown_run_is_answered_with_the_nearest(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "wakler"]) == 2
    assert "no run 'wakler' in 'results' (did you mean 'walker'?)" in capsys.readouterr().err
