"""Runs in segments with settings of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer_service.errors import ConfigError, UserError
from trainer_service.experiments.schedule import (
    Segment,
    dump_schedule,
    read_schedule,
    segment_overrides,
)
from trainer_service.experiments.space import with_values

RATE = "behaviors.Basic.hyperparameters.learning_rate"

SCHEDULE = f"""
segments:
- until: 300
  settings: {{{RATE}: 0.01, env_settings.seed: 4}}
- settings: {{{RATE}: 0.002}}
"""


@pytest.fixture
def schedule(workplace: Path) -> Path:
    path = workplace / "schedule.yaml"
    path.write_text(SCHEDULE)
    return path


def test_a_schedule_reads_as_it_was_written(schedule: Path) -> None:
    segments = read_schedule(schedule).segments
    assert segments == (
        Segment(until=300, settings={RATE: 0.01, "env_settings.seed": 4}),
        Segment(settings={RATE: 0.002}),
    )
    schedule.write_text(dump_schedule(segments))
    assert read_schedule(schedule).segments == segments


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("segments: []", "segments: expected at least one segment, got none"),
        ("segments: [{until: 5}, {until: 5}]", "segments[1].until: expected more than 5, got 5"),
        (
            "segments: [{}, {until: 5}]",
            "segments[0].until: required in every segment but the last, but not given",
        ),
        ("segments: [{till: 5}]", "segments[0].till: unknown key (did you mean 'until'?)"),
        ("parts: []", "segments: required, but not given"),
    ],
)
def test_a_mistake_in_a_schedule_is_named_with_its_line(schedule: Path, text: str, message: str) -> None:
    schedule.write_text(text)
    with pytest.raises(ConfigError) as refusal:
        read_schedule(schedule)
    assert (
        f"{schedule}:1: {message}" in refusal.value.problems
        or f"{schedule}: {message}" in refusal.value.problems
    )


def test_settings_of_a_segment_win_over_the_command_line_and_later_segments_resume(schedule: Path) -> None:
    given = {
        "checkpoint_settings": {"run_id": "a", "force": True},
        "env_settings": {"seed": 1, "num_envs": 2},
    }
    first, second = segment_overrides(read_schedule(schedule), given)
    assert first == {
        "checkpoint_settings": {"run_id": "a", "force": True},
        "env_settings": {"seed": 4, "num_envs": 2},
        "stop": {"steps": 300},
        **with_values({}, {RATE: 0.01}),
    }
    assert second == {
        "checkpoint_settings": {"run_id": "a", "force": False, "resume": True, "initialize_from": None},
        "env_settings": {"seed": 1, "num_envs": 2},
        **with_values({}, {RATE: 0.002}),
    }


def test_a_checkpoint_to_resume_from_is_refused(schedule: Path) -> None:
    with pytest.raises(UserError, match="expected --resume without a checkpoint, got --resume 500"):
        segment_overrides(read_schedule(schedule), {"checkpoint_settings": {"resume": 500}})


def test_a_schedule_for_several_seeds_is_refused(mlagents_style, configure, schedule: Path) -> None:
    configure("Basic")
    said = mlagents_style("learn", "config.yaml", "--seeds=1-2", f"--schedule={schedule}")
    assert said.code == 2
    assert "--schedule: expected no --seeds beside it" in said.err


def rows(run_id: str) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl, without the clock."""
    lines = Path("results", run_id, "metrics.jsonl").read_text().splitlines()
    clock = {"wall_s", "steps_per_s"}
    return [{key: value for key, value in json.loads(line).items() if key not in clock} for line in lines]


def test_learn_follows_a_schedule_and_resumes_the_segment_it_was_in(
    mlagents_style, configure, schedule
) -> None:
    configure("Basic", max_steps=600)
    learn = "learn", "config.yaml", "--env=sim:basic", "--set", "behaviors.Basic.hyperparameters.epsilon=0.1"

    def run(run_id: str, file: Path, *flags: str) -> None:
        said = mlagents_style(*learn, f"--run-id={run_id}", f"--schedule={file}", *flags)
        assert said.code == 0, said.err

    run("whole", schedule)
    rates = {row["step"]: row["learning_rate"] for row in rows("whole") if "learning_rate" in row}
    assert rates[200] == rates[300] == 0.01
    assert rates[600] == 0.002
    assert "epsilon: 0.1" in Path("results", "whole", "configuration.yaml").read_text()

    first = schedule.with_name("first.yaml")
    first.write_text(dump_schedule(read_schedule(schedule).segments[:1]))
    run("parted", first)
    run("parted", schedule, "--resume")
    assert rows("parted") == rows("whole")
    run("parted", schedule, "--resume")  # nothing is left to do
    assert rows("parted") == rows("whole")
