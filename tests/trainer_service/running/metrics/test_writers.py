import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trainer_service.running.metrics import (
    EpisodeStats,
    GaugeWriter,
    JsonlWriter,
    Series,
    Statistics,
    Summary,
    format_return,
    read_rows,
    short_number,
    summary_line,
)
from trainer_service.running.metrics.tensorboard import TensorBoardWriter
from trainer_service.running.metrics.timers import Timers
from unity_bridge.side_channels import Aggregation, StatMessage


def summary(behavior: str = "Ball", step: int = 1000, **changes: Any) -> Summary:
    """A summary with these fields; ``scalars`` are single values by tag."""
    scalars = changes.pop("scalars", {})
    series = {tag: Series.of(value) for tag, value in scalars.items()}
    fields: dict[str, Any] = {"wall_s": 7.6991, "steps_per_s": 130.0, "series": series, **changes}
    return Summary(behavior=behavior, step=step, **fields)


def episodes(*returns: float, groups: tuple[float, ...] = ()) -> EpisodeStats:
    return EpisodeStats(np.array(returns), np.full(len(returns), 10.0), np.array(groups))


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return accumulator


def test_a_line_of_metrics_has_the_agreed_keys(tmp_path: Path) -> None:
    scalars = {"Losses/Policy Loss": 0.25, "Policy/Entropy": 1.5, "My Game/Goals": 2.0}
    JsonlWriter(tmp_path / "metrics.jsonl").write(
        summary(stats=episodes(1.0, 5.0, groups=(6.0,)), scalars=scalars)
    )
    assert (tmp_path / "metrics.jsonl").read_text().endswith("}\n")
    assert entries(tmp_path / "metrics.jsonl") == [
        {
            "behavior": "Ball",
            "step": 1000,
            "wall_s": 7.699,
            "episodes": 2,
            "mean_return": 3.0,
            "std_return": 2.0,
            "mean_length": 10.0,
            "mean_group_return": 6.0,
            "steps_per_s": 130.0,
            "policy_loss": 0.25,
            "entropy": 1.5,
            "My Game/Goals": 2.0,
        }
    ]


@pytest.mark.parametrize("torn", ['{"behavior": "Ball", "st', "\u00e9", '{"behavior": "Ball", "st\n'])
def test_a_torn_last_line_is_removed(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "metrics.jsonl"
    JsonlWriter(path).write(summary())
    with path.open("ab") as file:
        file.write(torn.encode()[: 1 if torn == "\u00e9" else None])
    JsonlWriter(path).write(summary(step=2000))
    assert [entry["step"] for entry in entries(path)] == [1000, 2000]


def test_resuming_drops_the_lines_beyond_the_step_of_that_behavior(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = JsonlWriter(path)
    for step in (1000, 2000, 3000):
        writer.write(summary("Ball", step))
        writer.write(summary("Pad", step))
    writer.truncate_after("Ball", 2000)
    assert [(entry["behavior"], entry["step"]) for entry in entries(path)] == [
        ("Ball", 1000),
        ("Pad", 1000),
        ("Ball", 2000),
        ("Pad", 2000),
        ("Pad", 3000),
    ]
    writer.write(summary("Ball", 3000))
    assert len(entries(path)) == 6


def test_files_that_somebody_removed_begin_anew_with_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events_of_ball = tmp_path / "Ball"
    board, lines = TensorBoardWriter(lambda name: tmp_path / name), JsonlWriter(tmp_path / "metrics.jsonl")
    for step in (1, 2, 3):
        for writer in (board, lines):
            writer.write(summary(step=step, scalars={"Policy/Entropy": float(step)}))
        if step == 1:
            (removed,) = events_of_ball.iterdir()
            for path in (removed, tmp_path / "metrics.jsonl"):
                path.unlink()
    board.close()
    assert [event.step for event in events(events_of_ball).Scalars("Policy/Entropy")] == [2, 3]
    assert [entry["step"] for entry in entries(tmp_path / "metrics.jsonl")] == [2, 3]
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        f"'{removed}' was removed; what comes from here on goes into a new file.",
        f"'{tmp_path / 'metrics.jsonl'}' was removed; a new one begins here.",
    ]


DAMAGED = {
    b"[" * 100_000: "expected one JSON object",
    b"\xff": "expected one JSON object",
    b'{"behavior": "Ball", "step": "x"}': "step: expected a number, got 'x'",
    b'{"behavior": "Ball", "step": 2, "mean_return": "1"}': "mean_return: expected a number, got '1'",
    b'{"behavior": "Ball", "step": 2, "score": 1e999}': "score: expected a number, got 'inf'",
    b'{"behavior": "Ball", "step": ' + b"9" * 400 + b"}": "step: expected a number, got '999",
}
"""Lines that are none of ours, and what is wrong with them."""


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_line_is_passed_over_and_told_by_its_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: bytes
) -> None:
    path = tmp_path / "metrics.jsonl"
    whole = [b'{"behavior": "Ball", "step": 1}\n', b'{"behavior": "Ball", "step": 3, "score": null}\n']
    path.write_bytes(whole[0] + damaged + b"\n" + whole[1])
    assert [row["step"] for row in read_rows(path)] == [1, 3]
    assert f"{path}:2: {DAMAGED[damaged]}" in caplog.text
    JsonlWriter(path).truncate_after("Ball", 2)
    assert path.read_bytes() == whole[0] + damaged + b"\n"


def test_a_last_line_that_is_being_written_is_not_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "mea')
    assert read_rows(path) == [{"step": 1}]
    assert not caplog.text


def test_tensorboard_reads_the_tags_of_ml_agents(tmp_path: Path) -> None:
    writer = TensorBoardWriter(lambda behavior: tmp_path / "run" / behavior)
    scalars = {"Losses/Policy Loss": 0.25, "Policy/Entropy": 1.5}
    writer.write(summary(step=1000, stats=episodes(1.0, 5.0, groups=(6.0,)), scalars=scalars))
    writer.write(summary(step=2000, scalars=scalars))
    writer.close()
    read = events(tmp_path / "run" / "Ball")
    expected = {
        "Environment/Cumulative Reward": [(1000, 3.0)],
        "Environment/Group Cumulative Reward": [(1000, 6.0)],
        "Environment/Episode Length": [(1000, 10.0)],
        "Losses/Policy Loss": [(1000, 0.25), (2000, 0.25)],
        "Policy/Entropy": [(1000, 1.5), (2000, 1.5)],
    }
    assert set(read.Tags()["scalars"]) == set(expected)
    for tag, points in expected.items():
        assert [(event.step, event.value) for event in read.Scalars(tag)] == points
    histograms = {"Environment/Cumulative Reward_hist", "Environment/Group Cumulative Reward_hist"}
    assert set(read.Tags()["histograms"]) == histograms


def test_a_histogram_counts_every_episode_where_it_belongs(tmp_path: Path) -> None:
    writer = TensorBoardWriter(lambda _: tmp_path)
    writer.write(summary(stats=episodes(0.0, 0.0, 0.0, 30.0)))
    writer.close()
    (event,) = events(tmp_path).Histograms("Environment/Cumulative Reward_hist")
    histogram = event.histogram_value
    assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (0.0, 30.0, 4.0, 30.0)
    assert histogram.sum_squares == 900.0
    # 30 bins of width 1: the three zeros end at 1, the thirty at 30.
    counts = dict(zip(histogram.bucket_limit, histogram.bucket, strict=True))
    assert {limit: count for limit, count in counts.items() if count} == {1.0: 3.0, 30.0: 1.0}


def test_tensorboard_drops_later_steps_after_a_resume(tmp_path: Path) -> None:
    first = TensorBoardWriter(lambda _: tmp_path)
    for step in (1000, 2000, 3000):
        first.write(summary(step=step, scalars={"Policy/Entropy": 1.0}))
    first.close()
    second = TensorBoardWriter(lambda _: tmp_path)
    second.truncate_after("Ball", 2000)
    second.write(summary(step=3000, scalars={"Policy/Entropy": 2.0}))
    second.close()
    assert len(list(tmp_path.iterdir())) == 2
    read = [(event.step, event.value) for event in events(tmp_path).Scalars("Policy/Entropy")]
    assert read == [(1000, 1.0), (2000, 1.0), (3000, 2.0)]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"stats": episodes(1.0, 5.0)},
            "Ball. Step: 1000. Time Elapsed: 7.699 s. Mean Reward: 3.000. Std of Reward: 2.000. Training.",
        ),
        (
            {"stats": episodes(1.0, 5.0, groups=(6.0,))},
            "Ball. Step: 1000. Time Elapsed: 7.699 s. Mean Reward: 3.000. Mean Group Reward: 6.000. Training.",
        ),
        (
            {},
            "Ball. Step: 1000. Time Elapsed: 7.699 s. No episode was completed since last summary. Training.",
        ),
        (
            {"stats": episodes(1.0), "is_training": False},
            "Ball. Step: 1000. Time Elapsed: 7.699 s. Mean Reward: 1.000. Std of Reward: 0.000. Not Training.",
        ),
        (
            {"stats": episodes(1.0), "scalars": {"Self-play/ELO": 1200.0534}},
            "Ball. Step: 1000. Time Elapsed: 7.699 s. Mean Reward: 1.000. Std of Reward: 0.000. Training. "
            "ELO: 1200.053.",
        ),
    ],
)
def test_the_line_is_worded_as_in_ml_agents(changes: dict[str, Any], line: str) -> None:
    assert summary_line(summary(**changes)) == line


def test_gauges_are_named_as_in_ml_agents() -> None:
    timers = Timers()
    reported = Series(1.5, 3)
    GaugeWriter(timers).write(summary(stats=episodes(1.0, 5.0), series={"Losses/Policy Loss": reported}))
    gauges = json.loads(timers.to_json())["gauges"]
    assert {name: gauge["value"] for name, gauge in gauges.items()} == {
        "Ball.Environment.CumulativeReward.mean": 3.0,
        "Ball.Environment.CumulativeReward.sum": 6.0,
        "Ball.Environment.EpisodeLength.mean": 10.0,
        "Ball.Environment.EpisodeLength.sum": 20.0,
        "Ball.Losses.PolicyLoss.mean": 0.5,
        "Ball.Losses.PolicyLoss.sum": 1.5,
        "Ball.IsTraining.mean": 1.0,
        "Ball.IsTraining.sum": 1.0,
        "Ball.Step.mean": 1000.0,
        "Ball.Step.sum": 1000.0,
    }


def test_a_simulators_histogram_is_kept_by_both_files(tmp_path: Path) -> None:
    statistics = Statistics("Ball")
    for each in (0.0, 0.0, 30.0, math.nan):
        statistics.add_stat(StatMessage("Goals", each, Aggregation.HISTOGRAM))
    reported = statistics.drain(step=1, wall_s=1.0, steps_per_s=1.0)
    tensorboard = TensorBoardWriter(lambda _: tmp_path)
    tensorboard.write(reported)
    tensorboard.close()
    (event,) = events(tmp_path).Histograms("Goals_hist")
    assert (event.histogram_value.num, event.histogram_value.sum) == (3, 30.0)
    JsonlWriter(tmp_path / "metrics.jsonl").write(reported)
    (entry,) = entries(tmp_path / "metrics.jsonl")
    assert entry["Goals_hist"] == {"edges": list(range(31)), "counts": [2, *[0] * 28, 1]}


@pytest.mark.parametrize(
    ("mean", "deviation", "written"),
    [
        (3.0, 2.0, "3.000 2.000"),
        (-1.5, 0.0, "-1.500 0.000"),
        (0.0, 0.0, "0.000 0.000"),
        (100.0, 3.2e-14, "100.000 0.000"),
        (0.00012, 0.00004, "0.00012 4e-05"),
        (1.2e6, 34567.8, "1.2e+06 3.457e+04"),
        (0.001, 12.0, "0.001 12.000"),
    ],
)
def test_returns_are_written_with_significant_digits_at_any_scale(
    mean: float, deviation: float, written: str
) -> None:
    assert f"{format_return(mean, deviation)} {format_return(deviation, mean)}" == written


def test_numbers_in_a_line_have_the_digits_of_a_float32(tmp_path: Path) -> None:
    returns = EpisodeStats(np.array([float(np.float32(1.808))]), np.array([3.0]))
    scalars = {
        "Policy/Learning Rate": 0.1 + 0.2, "Goals": 16_777_217.0, "Tiny": 1e-300, "Huge": 1e300,
        "Policy/Entropy": float(np.float32(-0.1)),
    }  # fmt: skip
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    writer.write(summary(stats=returns, scalars=scalars, env_steps=250, wall_s=123456.789))
    text = (tmp_path / "metrics.jsonl").read_text()
    [line] = entries(tmp_path / "metrics.jsonl")
    assert '"mean_return": 1.808,' in text
    assert (line["learning_rate"], line["entropy"]) == (0.3, -0.1)
    assert (line["Goals"], line["Tiny"], line["Huge"]) == (16_777_217.0, 1e-300, 1e300)
    assert (line["step"], line["env_steps"], line["wall_s"]) == (1000, 250, 123456.789)
    assert np.float32(line["mean_return"]) == np.float32(returns.mean_return)


@pytest.mark.parametrize(
    ("digits", "shown"),
    [
        ((), {0.0: "0", 0.25: "0.25", -3.0: "-3", 150_000.0: "150k", 2.5e6: "2.5M", 3e-5: "3e-05", 1e40: "1e+40"}),
        ((3,), {78_768: "78.8k", 3_000_000: "3M", 6.575: "6.58", 13.694: "13.7", 999_999: "1M", -999.9: "-1k", 0: "0"}),
    ],
)  # fmt: skip
def test_numbers_are_short(digits: tuple[int, ...], shown: dict[float, str]) -> None:
    assert {value: short_number(value, *digits) for value in shown} == shown
