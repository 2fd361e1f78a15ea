"""ML-Agents' plugins of statistics as a tracker of a run. The tests need this distribution installed."""

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stats_writer_plugin
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trainer_service import parse_run_options
from trainer_service.config import dump_run_options
from trainer_service.errors import UserError
from trainer_service.running.metrics import EpisodeStats, Series, Statistics, Summary
from trainer_service.running.metrics.trackers import make_trackers
from unity_bridge.side_channels import Aggregation, StatMessage

Calls = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _without_mlagents() -> Iterator[None]:
    """No name of ML-Agents, and nothing of the plugin, is there before or after a test."""
    names = ("mlagents", "recording_stats")
    assert not [name for name in sys.modules if name.split(".")[0] in names]
    yield
    for name in [name for name in sys.modules if name.split(".")[0] in names]:
        del sys.modules[name]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the plugin writes down its calls."""
    monkeypatch.setenv("STATS_CALLS", str(tmp_path / "calls.jsonl"))
    return tmp_path / "calls.jsonl"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs the plugin for this process, with these entry points."""

    def install(**functions: str) -> None:
        monkeypatch.syspath_prepend(stats_writer_plugin.install(tmp_path / "plugin", **functions))

    return install


def options(tmp_path: Path, **more: Any) -> Any:
    saved = {"run_id": "fast", "results_dir": str(tmp_path / "results"), **more}
    settings = {"trainer_type": "ppo", "max_steps": 7, "hyperparameters": {"batch_size": 5}}
    document = {"behaviors": {"Ball": settings}, "checkpoint_settings": saved, "env_settings": {"seed": 3}}
    return parse_run_options({**document, "track": ["mlagents"]}).options


def read(path: Path) -> Calls:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(tmp_path: Path, *summaries: Summary) -> None:
    """Writes summaries of a run whose behavior plays against itself."""
    (writer,) = make_trackers(options(tmp_path))
    writer.open()
    text = dump_run_options(options(tmp_path)).replace("self_play: null", "self_play: {window: 3}")
    writer.write_settings("Ball", text)
    for summary in summaries:
        writer.write(summary)
    writer.close()
    writer.join()


def summary(step: int = 1000, **series: Series) -> Summary:
    stats = EpisodeStats(np.array([1.0, 5.0]), np.array([4.0, 6.0]))
    return Summary(behavior="Ball", step=step, wall_s=1.0, steps_per_s=1.0, stats=stats, series=series)


def test_a_plugin_is_made_with_ml_agents_options(tmp_path: Path, calls: Path, install: Any) -> None:
    install(recording="make")
    run(tmp_path)
    made, settings, self_play = read(calls)
    assert made == {
        "call": "make",
        "run_id": "fast",
        "write_path": str(tmp_path / "results" / "fast"),
        "resume": False,
        "seed": 3,
        "max_steps": {"Ball": 7},
        "batch_size": [5],
        "group": "mlagents.stats_writer",
    }
    assert (settings["call"], settings["category"], settings["kind"]) == (
        "add_property", "Ball", "HYPERPARAMETERS",
    )  # fmt: skip
    assert settings["value"]["hyperparameters"]["batch_size"] == 5
    assert (self_play["kind"], self_play["value"]) == ("SELF_PLAY", True)


def test_a_plugin_gets_every_value_and_then_the_summary(tmp_path: Path, calls: Path, install: Any) -> None:
    install(recording="make")
    statistics = Statistics("Ball")
    statistics.add("Losses/Value Loss", 1.0)
    statistics.add("Losses/Value Loss", 4.0)
    for value in (2.0, 3.0):
        statistics.add_stat(StatMessage("Goals", value, Aggregation.SUM))
    statistics.add_episodes([1.0, 5.0], [4, 6])
    run(tmp_path, statistics.drain(step=2000, wall_s=1.0, steps_per_s=1.0))
    *_, written = read(calls)
    assert (written["call"], written["category"], written["step"]) == ("write_stats", "Ball", 2000)
    assert written["stats"]["Losses/Value Loss"] == {
        "aggregation": "AVERAGE", "mean": 2.5, "std": 1.5, "sum": 5.0, "num": 2, "value": 2.5,
    }  # fmt: skip
    assert written["stats"]["Goals"]["value"] == 5.0
    kinds = {key: each["aggregation"] for key, each in written["stats"].items()}
    assert kinds == {
        "Losses/Value Loss": "AVERAGE",
        "Goals": "SUM",
        "Environment/Cumulative Reward": "HISTOGRAM",
        "Environment/Episode Length": "AVERAGE",
        "Is Training": "AVERAGE",
        "Step": "MOST_RECENT",
    }
    added = [each for each in read(calls) if each["call"] == "on_add_stat"]
    assert [each["value"] for each in added if each["key"] == "Environment/Cumulative Reward"] == [1.0, 5.0]
    assert [each["value"] for each in added if each["key"] == "Step"] == [2000.0]


def test_values_that_were_not_kept_are_as_often_their_mean(tmp_path: Path, calls: Path, install: Any) -> None:
    install(recording="make")
    run(tmp_path, summary(Many=Series(6.0, 3)))
    written = read(calls)[-1]["stats"]["Many"]
    assert (written["mean"], written["num"], written["sum"]) == (2.0, 3, 6.0)


def test_a_plugin_that_raises_costs_only_itself(
    tmp_path: Path, calls: Path, install: Any, caplog: pytest.LogCaptureFixture
) -> None:
    install(a="fail", b="make_broken", c="make", d="missing")
    run(tmp_path, summary(1000), summary(2000))
    assert [each["step"] for each in read(calls) if each["call"] == "write_stats"] == [1000, 2000]
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    first, second, third = sorted(warnings)
    assert first.startswith(
        "ML-Agents' stats writer 'a' (recording_stats:fail) is left out: SystemExit: no such"
    )
    assert "stats writer 'd' (recording_stats:missing) is left out: AttributeError: module" in second
    assert "writer recording_stats.Broken is left out from here on: ValueError: it never works" in third
    assert third.endswith("The run continues without it.")


def test_a_plugin_may_write_beside_ours_on_tensorboard(tmp_path: Path, calls: Path, install: Any) -> None:
    install(further="make_further")
    run(tmp_path, summary())
    found = EventAccumulator(str(tmp_path / "results" / "fast" / "Ball"))
    found.Reload()
    (scalar,) = found.Scalars("Further")
    assert (scalar.step, scalar.value) == (1000, 5.0)


def test_without_a_plugin_there_is_nothing_to_track(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"no installed package offers a writer under 'mlagents\.stats_writer'"
    ):
        make_trackers(options(tmp_path))
    assert "mlagents" not in sys.modules


def test_ml_agents_own_writers_are_no_plugin(tmp_path: Path, install: Any) -> None:
    install(default="make")
    metadata = tmp_path / "plugin" / "recording_stats-1.0.dist-info" / "entry_points.txt"
    metadata.write_text("[mlagents.stats_writer]\ndefault = mlagents.plugins.stats_writer:get_default\n")
    with pytest.raises(UserError, match="no installed package"):
        make_trackers(options(tmp_path))


def test_inference_calls_no_plugin(tmp_path: Path, install: Any) -> None:
    install(recording="make")
    assert make_trackers(options(tmp_path, inference=True)) == []
