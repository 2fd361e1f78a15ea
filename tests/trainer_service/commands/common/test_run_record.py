"""Runs are read as they lie on the disk: finished, cut off, resumed, and those of ML-Agents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from trainer_service.commands.common.run_record import ML_AGENTS, OURS, find_run, metric_of, read_run
from trainer_service.errors import UserError

MakeRun = Callable[..., Path]
REWARD = "Environment/Cumulative Reward"


def write_events(folder: Path, number: int, begun_s: float, *scalars: tuple[float, int, str, float]) -> Path:
    """An event file as torch writes it for ML-Agents. scalars: of (seconds since 1970, step, tag, value)."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{number}.host.1.0"
    events = [Event(wall_time=begun_s, file_version="brain.Event:2")]
    for at_s, step, tag, value in scalars:
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        events.append(Event(wall_time=at_s, step=step, summary=summary))
    with path.open("wb") as file:
        records = RecordWriter(file)
        for event in events:
            records.write(event.SerializeToString())
        records.flush()
    return path


def test_summaries_without_a_finished_episode_are_left_out(make_run: MakeRun) -> None:
    run = read_run(make_run("run", [(10, 1.0, None), (20, 2.0, 5.0)], seed=4))
    curve = run.curves["Ball"]["mean_return"]
    assert (curve.steps.tolist(), curve.seconds.tolist(), curve.values.tolist()) == ([20], [2.0], [5.0])
    assert (run.name, run.trainer, run.seed) == ("run", OURS, 4)


def test_the_clock_of_a_resumed_run_goes_on(make_run: MakeRun) -> None:
    run = read_run(make_run("run", [(i, at, 0.0) for i, at in enumerate([1.0, 2.0, 0.5, 1.5])]))
    assert run.curves["Ball"]["mean_return"].seconds.tolist() == [1.0, 2.0, 2.5, 3.5]


def test_half_a_line_is_left_alone(make_run: MakeRun) -> None:
    folder = make_run("run", [(10, 1.0, 1.0)])
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"behavior": "Ball", "st')
    before = (folder / "metrics.jsonl").read_bytes()
    assert read_run(folder).curves["Ball"]["mean_return"].steps.tolist() == [10]
    assert (folder / "metrics.jsonl").read_bytes() == before, "another process may be writing it"


@pytest.mark.parametrize(
    "row",
    [
        {"behavior": 3, "step": 1, "mean_return": 1.0},
        {"behavior": "Ball", "step": "1", "mean_return": 1.0},
        {"behavior": "Ball", "step": 10**30, "mean_return": 1.0},
        {"behavior": "Ball", "step": 5, "mean_return": "high", "wall_s": []},
        {"behavior": "Ball", "step": 5, "mean_return": float("nan")},
        {"behavior": "Ball", "step": 5, "mean_return": True, "member_returns": 3},
    ],
)
def test_lines_that_make_no_sense_are_passed_over(make_run: MakeRun, row: dict[str, Any]) -> None:
    run = read_run(make_run("run", [(10, 1.0, 1.0)], rows=[row]))
    assert run.curves["Ball"]["mean_return"].values.tolist() == [1.0]


def test_evaluations_and_members_have_curves_too(make_run: MakeRun) -> None:
    row = {"behavior": "Team", "step": 10, "wall_s": 1.0, "elo": 1210.0, "member_returns": {"Goalie": 2.0}}
    folder = make_run("run", rows=[row])
    score = {"behavior": "Team", "step": 10, "wall_s": 1.5, "mean_return": 7.0, "best": True}
    (folder / "evaluations.jsonl").write_text(json.dumps(score) + "\n", encoding="utf-8")
    curves = read_run(folder).curves["Team"]
    assert {name: curve.values.tolist() for name, curve in curves.items()} == {
        "elo": [1210.0],
        "member_returns/Goalie": [2.0],
        "evaluation/mean_return": [7.0],
    }


def test_event_files_count_where_there_are_no_metrics(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    loss = (120.0, 2000, "Losses/Policy Loss", 0.5)
    write_events(folder / "Ball", 1, 100.0, (110.0, 1000, REWARD, 1.0), (120.0, 2000, REWARD, 2.0), loss)
    run = read_run(folder)
    assert run.trainer == ML_AGENTS
    curve = run.curves["Ball"]["mean_return"]
    assert (curve.steps.tolist(), curve.seconds.tolist()) == ([1000, 2000], [10.0, 20.0])
    assert run.curves["Ball"]["policy_loss"].values.tolist() == [0.5]


def test_a_run_without_a_summary_is_ours_by_its_log(tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    write_events(folder / "Ball", 1, 100.0, (110.0, 1000, REWARD, 1.0))
    (folder / "run_logs").mkdir()
    (folder / "run_logs/trainer.log").touch()
    assert read_run(folder).trainer == OURS


def test_event_files_of_resumed_runs_make_one_curve(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    write_events(folder / "Ball", 1, 100.0, (110.0, 1000, REWARD, 1.0), (120.0, 2000, REWARD, 2.0))
    write_events(folder / "Ball", 2, 500.0, (507.0, 1500, REWARD, 7.0))
    curve = read_run(folder).curves["Ball"]["mean_return"]
    assert curve.steps.tolist() == [1000, 1500], "what came after step 1500 was lost"
    assert curve.seconds.tolist() == [10.0, 27.0]
    assert curve.values.tolist() == [1.0, 7.0]


def test_damaged_event_files_count_up_to_where_they_are(tmp_path: Path) -> None:
    path = write_events(
        tmp_path / "theirs" / "Ball", 1, 100.0, (110.0, 1000, REWARD, 1.0), (120.0, 2000, REWARD, 2.0)
    )
    path.write_bytes(path.read_bytes()[:-5])
    assert read_run(tmp_path / "theirs").curves["Ball"]["mean_return"].steps.tolist() == [1000]
    path.write_bytes(b"no events at all")
    assert not read_run(tmp_path / "theirs").curves["Ball"]


@pytest.mark.parametrize(
    ("tag", "metric"),
    [
        (REWARD, "mean_return"),
        ("Evaluation/Cumulative Reward", "evaluation/mean_return"),
        (f"{REWARD}/Goalie", "member_returns/Goalie"),
        ("Self-play/ELO", "elo"),
        ("My/Own", "My/Own"),
    ],
)
def test_tags_have_the_names_of_metrics(tag: str, metric: str) -> None:
    assert metric_of(tag) == metric


def test_folders_that_are_no_runs_are_refused(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("run")
    with pytest.raises(UserError, match=r"is no folder of a run.*it holds runs: run"):
        find_run(str(tmp_path / "results"), tmp_path)
    with pytest.raises(UserError, match=r"no run 'nothing' in '.*'$"):
        find_run("nothing", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is no folder of a run"):
        find_run("file", tmp_path)
