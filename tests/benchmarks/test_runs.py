from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from measuring.runs import Block, Run, read_split, read_update_ms, run
from measuring.scenes import SCENES, Case
from measuring.training_log import Summary

CASE = Case(SCENES["basic"], agents=1, steps=20)

REPORTS = """
def report(step):
    print(f"[INFO] B. Step: {step}. Time Elapsed: 1.5 s. Mean Reward: 0.5. Std of Reward: 0.1.", flush=True)
"""
TRAINS_UNTIL_INTERRUPTED = f"""{REPORTS}
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    report(10)
    report(20)
    signal.pause()
except KeyboardInterrupt:
    report(30)
"""
BREAKS = f"""{REPORTS}
report(10)
raise SystemExit("out of luck")
"""


@dataclass(frozen=True)
class Scripted:
    """A trainer that does what a script says."""

    script: str
    name: str = "scripted"

    def command(self, case: Case, program: Path, results: Path, seed: int) -> list[str]:
        assert program.stat().st_mode & 0o100, "the simulator must be executable"
        return [sys.executable, "-c", self.script]

    def environment(self) -> dict[str, str]:
        return {}


pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform == "win32", reason="the real trainer is run on Linux"),
]


def test_a_run_is_interrupted_once_it_has_enough_steps() -> None:
    seen: list[Summary] = []
    done = run(Scripted(TRAINS_UNTIL_INTERRUPTED), CASE, 7, seen.append)
    assert done.failure is None
    assert [summary.step for summary in done.summaries] == [10, 20]
    assert seen == list(done.summaries)
    assert 0 < done.summaries[0].seen_s <= done.summaries[1].seen_s


def test_a_run_that_ends_early_says_what_it_printed_last() -> None:
    done = run(Scripted(BREAKS), CASE, 7)
    assert done.failure is not None
    assert done.failure.startswith("ended after 10 of 20 steps")
    assert "out of luck" in done.failure


def test_the_split_is_the_top_level_of_the_timers() -> None:
    inner = {"total": 1.0, "count": 5, "self": 1.0}
    timers = {
        "total": 4.0,
        "self": 0.5,
        "children": {"update": {"total": 3.5, "count": 2, "children": {"x": inner}}},
    }
    assert read_split(json.dumps(timers)) == {"update": Block(3.5, 2), "other": Block(0.5, 1)}


def test_an_update_is_found_in_the_timers_of_both_trainers() -> None:
    ours = {"children": {"receive": {"total": 9.0, "count": 90}, "update": {"total": 3.0, "count": 2}}}
    theirs = {
        "children": {
            "TrainerController.advance": {
                "total": 9.0,
                "count": 90,
                "children": {"trainer_advance": {"children": {"_update_policy": {"total": 8.0, "count": 4}}}},
            }
        }
    }
    assert read_update_ms(json.dumps(ours)) == 1500.0
    assert read_update_ms(json.dumps(theirs)) == 2000.0
    assert read_update_ms(json.dumps({"children": {}})) is None


def test_a_run_is_complete_unless_it_says_otherwise() -> None:
    assert Run("ours", 1, ()).failure is None
