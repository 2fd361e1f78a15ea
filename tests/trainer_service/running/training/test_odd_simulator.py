"""Learning from a simulator that keeps to the protocol and to nothing else; see tests/programs/odd.py."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the simulator is a script")

RETURNS = {"Plain": 5.0, "Späher": -2.0, "Wide": 1.0, "Seer": 0.5, "Chor": 0.0}


@pytest.mark.thorough
def test_every_return_is_right_and_every_agent_gets_its_actions(
    start, configure, program, workplace: Path
) -> None:
    configure(*RETURNS, max_steps=200, summary_freq=50, time_horizon=8)
    run = start("learn", "config.yaml", f"--env={program('odd')}", "--seed=3", "--run-id=odd")
    assert run.end() == 0, run.output
    lines = (workplace / "results" / "odd" / "metrics.jsonl").read_text().splitlines()
    summaries = [json.loads(line) for line in lines]
    assert {summary["behavior"] for summary in summaries} == set(RETURNS)
    for summary in summaries:
        assert summary["mean_return"] == pytest.approx(RETURNS[summary["behavior"]])
        assert summary["std_return"] == pytest.approx(0.0)
    # What is learned from is the agents' own rewards and those of their groups.
    learned = {
        each["extrinsic_reward"] for each in summaries if each["behavior"] == "Chor" and "entropy" in each
    }
    assert learned == {3.0}
