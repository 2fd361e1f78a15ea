"""``mlagents-style demo-info``: what is inside a recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unity_bridge.demonstrations import DemonstratedSegment, DemonstrationWriter
from unity_bridge.specs import (
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)

SPEC = BehaviorSpec(
    (
        ObservationSpec("speed", (2,), (DimensionProperty.NONE,), ObservationType.GOAL_SIGNAL),
        ObservationSpec("things", (3, 2), (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)),
    ),
    ActionSpec(1, (2,)),
)


def write(path: Path, *episodes: tuple[list[float], str], group: float = 0.0, starts: bool = True) -> None:
    """Episodes with these rewards and ends; what is done grows from −0.5 on."""
    with DemonstrationWriter(path, "Ball", SPEC, name=path.stem) as writer:
        for rewards, end in episodes:
            steps = len(rewards)
            writer.write(
                DemonstratedSegment(
                    observations=(np.zeros((steps, 2), np.float32), np.zeros((steps, 3, 2), np.float32)),
                    continuous_actions=(np.arange(steps, dtype=np.float32)[:, None] - 0.5),
                    discrete_actions=np.arange(steps)[:, None] % 2,
                    rewards=np.array(rewards, np.float32),
                    group_rewards=np.full(steps, group, np.float32),
                    final_observations=(np.zeros((1, 2), np.float32), np.zeros((1, 3, 2), np.float32)),
                    terminated=end == "task",
                    truncated=end == "clock",
                    starts_episode=starts,
                )
            )


def info(mlagents_style: Any, *words: object) -> list[dict[str, Any]]:
    said = mlagents_style("demo-info", "--json", *words)
    assert said.code == 0, said.err
    (line,) = said.out.splitlines()
    files: list[dict[str, Any]] = json.loads(line)["files"]
    return files


def test_everything_is_counted_row_by_row(mlagents_style: Any) -> None:
    write(Path("x.demo"), ([1, 2, 3], "task"), ([0.5], "clock"), ([-1, -1], "open"))
    (file,) = info(mlagents_style, "x.demo")
    assert file == {
        "path": "x.demo",
        "behavior": "Ball",
        "name": "x",
        "api_version": 1,
        "closed": True,
        "actions_lie": "one row later",
        "ambiguous_pictures": [],
        "sensors": [
            {"name": "speed", "shape": [2], "type": "GOAL_SIGNAL"},
            {"name": "things", "shape": [3, 2], "type": "DEFAULT"},
        ],
        "continuous_actions": 1,
        "discrete_branches": [2],
        "steps": 6,
        "episodes": 3,
        "terminated": 1,
        "truncated": 1,
        "returns": {"mean": 1.5, "min": -2.0, "max": 6.0},
        "group_returns": None,
        "action_ranges": [[-0.5, 1.5]],
        "choices": [[4, 2]],
    }


def test_an_episode_longer_than_a_segment_is_one(mlagents_style: Any) -> None:
    write(Path("x.demo"), ([1.0] * 3000, "clock"), group=0.5)
    (file,) = info(mlagents_style, "x.demo")
    assert (file["episodes"], file["steps"], file["returns"]["mean"]) == (1, 3000, 3000.0)
    assert file["group_returns"] == {"mean": 1500.0, "min": 1500.0, "max": 1500.0}


def test_people_get_a_page_per_file(mlagents_style: Any) -> None:
    Path("demos").mkdir()
    write(Path("demos/b.demo"), ([1, 2], "task"), ([0.5], "open"))
    write(Path("demos/a.demo"), ([1], "clock"), group=2.0)
    said = mlagents_style("demo-info", "demos")
    assert said.code == 0
    a, b = Path("demos/a.demo"), Path("demos/b.demo")
    assert said.out.splitlines() == [
        str(a),
        "  behavior   Ball, recorded as 'a'",
        "  sensors    speed: numbers 2, states the goal",
        "             things: list of things 3×2",
        "  actions    1 continuous, from -0.500 to -0.500; branch 0 of 2, chosen 100%, 0%",
        "  episodes   1: 1 interrupted by the clock",
        "  steps      1",
        "  return     mean 1.000, from 1.000 to 1.000",
        "  group's    mean 2.000, from 2.000 to 2.000",
        "  layout     actions lie one row after what they answer (as today's writers put them)",
        str(b),
        "  behavior   Ball, recorded as 'b'",
        "  sensors    speed: numbers 2, states the goal",
        "             things: list of things 3×2",
        "  actions    1 continuous, from -0.500 to 0.500; branch 0 of 2, chosen 67%, 33%",
        "  episodes   2: 1 ended by the task, 1 without a recorded end",
        "  steps      3",
        "  return     mean 1.750, from 0.500 to 3.000",
        "  layout     actions lie one row after what they answer (as today's writers put them)",
    ]


def test_a_recording_without_a_step_is_one_all_the_same(mlagents_style: Any, tmp_path: Path) -> None:
    write(Path("x.demo"), ([1], "open"))
    data = Path("x.demo").read_bytes()
    brain = data[34 : 34 + data[33]]
    first = 34 + len(brain)
    row = data[first : first + 1 + data[first]]
    head = b"\x02\x08\x01".ljust(33, b"\0")  # never closed
    Path("x.demo").write_bytes(head + data[33:first] + row)
    (file,) = info(mlagents_style, "x.demo")
    assert (file["steps"], file["episodes"], file["returns"], file["action_ranges"]) == (0, 0, None, [])
    assert not file["closed"]
    said = mlagents_style("demo-info", "x.demo")
    assert "the recorder did not close it" in said.out
    assert "  episodes   0\n  steps      0\n" in said.out


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda data: data[:-40], "the file ends"),
        (lambda data: data[:20], "got a file of 20 bytes"),
        (lambda data: b"#!/bin/sh\n" * 20, "got a file that begins otherwise"),
        (lambda data: data[: len(data) // 2] + b"\xff" * 200 + data[len(data) // 2 + 200 :], ""),
    ],
)
def test_what_is_damaged_is_told_in_one_line(mlagents_style: Any, change: Any, complaint: str) -> None:
    path = Path("x.demo")
    write(path, ([1.0] * 20, "task"))
    path.write_bytes(change(path.read_bytes()))
    for flags in ([], ["--json"]):
        said = mlagents_style("demo-info", path, *flags)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith("mlagents-style: error: 'x.demo'")
        assert said.err.count("\n") == 1
        assert complaint in said.err
