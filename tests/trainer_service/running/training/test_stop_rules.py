import json
import logging
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from clocks import Clock

from trainer_service.config.run.stop import StopSettings
from trainer_service.running.metrics import EpisodeStats, JsonlWriter, Summary
from trainer_service.running.runs.layout import RunLayout
from trainer_service.running.training.stop_rules import StopRules


def rules(**settings: Any) -> StopRules:
    of = {key: settings.pop(key) for key in ("layout", "evaluates", "clock") if key in settings}
    return StopRules(StopSettings(**settings), **of)


def summary(step: int, mean: float, episodes: int = 100, behavior: str = "A", **changes: Any) -> Summary:
    groups, counted = changes.pop("groups", np.empty(0)), changes.pop("counted", None)
    stats = EpisodeStats(np.full(episodes, mean), np.ones(episodes), groups, counted)
    return Summary(behavior=behavior, step=step, wall_s=1.0, steps_per_s=1.0, stats=stats, **changes)


def evaluation(step: int, *counted: float) -> Summary:
    stats = EpisodeStats(counted_returns=np.array(counted))
    return Summary(behavior="A", step=step, wall_s=1.0, steps_per_s=0.0, stats=stats)


def behaviors(*names: str, finished: str = "") -> Mapping[str, Any]:
    return {name: SimpleNamespace(training=name != finished) for name in names or ("A",)}


def test_a_target_is_reached_by_the_newest_score(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stop = rules(target_return=5.0)
    stop.write(summary(1000, 4.9))
    assert not stop.met(behaviors())
    stop.write(summary(2000, 5.0))
    assert stop.met(behaviors())
    assert caplog.messages == [
        "The run ends by its rules (stop): target_return is reached, 'A' has 5.000 at step 2000."
    ]


def test_a_score_of_training_takes_a_hundred_episodes() -> None:
    stop = rules(target_return=5.0)
    stop.write(summary(1000, 9.0, episodes=60))
    assert not stop.met(behaviors())
    stop.write(summary(2000, 2.0, episodes=60))  # 120 episodes with a mean of 5.5
    assert stop.met(behaviors())
    stop.write(summary(3000, 4.0, episodes=60))  # the first summary is not needed any more: 3.0
    assert not stop.met(behaviors())


def test_the_returns_that_count_are_those_of_groups_and_of_agents_without_one() -> None:
    stop = rules(target_return=5.0)
    groups = np.full(60, 9.0)
    stop.write(summary(1000, 9.0, groups=groups, counted=np.concatenate([groups, np.zeros(60)])))  # 4.5
    assert not stop.met(behaviors())
    stop.write(summary(2000, 1.0, groups=groups, counted=np.concatenate([groups, np.ones(40)])))
    assert stop.met(behaviors())


def test_a_score_takes_a_hundred_groups_whatever_their_size() -> None:
    stop = rules(target_return=5.0)
    stop.write(summary(1000, 9.0, groups=np.full(2, 9.0), counted=np.full(2, 9.0)))
    stop.write(summary(2000, 9.0, counted=np.empty(0)))
    assert not stop.met(behaviors())
    stop.write(summary(3000, 9.0, groups=np.full(98, 9.0), counted=np.full(98, 9.0)))
    assert stop.met(behaviors())


def test_all_behaviors_that_train_must_reach_the_target() -> None:
    stop = rules(target_return=5.0)
    stop.write(summary(1000, 6.0, behavior="A"))
    assert not stop.met(behaviors("A", "B"))
    stop.write(summary(1500, 6.0, behavior="A"))
    assert stop.met(behaviors("A", "B", finished="B"))


def test_progress_is_a_better_score_within_so_many_steps(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stop = rules(no_progress=2000)
    for step, mean in ((1000, 3.0), (2000, 3.0), (2999, 3.1), (4000, 3.0)):
        stop.write(summary(step, mean))
        assert not stop.met(behaviors())
    stop.write(summary(4999, 2.0))
    assert stop.met(behaviors())
    assert caplog.messages == [
        "The run ends by its rules (stop): no_progress for 2,000 steps, 'A' had its best, 3.100, at step 2999."
    ]


def test_where_there_are_evaluations_they_alone_count() -> None:
    stop = rules(target_return=5.0, evaluates=True)
    stop.write(summary(1000, 9.0))
    assert not stop.met(behaviors())
    stop.write_evaluation(evaluation(1000, 9.0, 0.0))
    assert not stop.met(behaviors())
    stop.write_evaluation(evaluation(2000, 5.0))
    assert stop.met(behaviors())
    assert not rules(target_return=5.0).met(behaviors())


def test_the_clock_counts_from_the_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    stop = rules(wall_clock="1h", clock=clock)
    clock.now_s += 3599.0
    assert not stop.met({})
    clock.now_s += 1.0
    assert stop.met({})
    assert caplog.messages == ["The run ends by its rules (stop): wall_clock, 3,600 s, is over."]


def test_a_resumed_run_remembers_and_is_ended_by_news_only(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    written = JsonlWriter(layout.metrics)
    for step, mean in ((1000, 7.0), (2000, 6.0), (3000, 9.0)):
        written.write(summary(step, mean, episodes=60))
    stop = rules(no_progress=1000, target_return=6.5, layout=layout)
    stop.truncate_after("A", 2000)
    assert not stop.met(behaviors()), "120 episodes with a mean of 6.5 are no news"
    stop.write(summary(3000, 6.0, episodes=60))
    assert stop.met(behaviors()), "6.0 since step 2000 is not better"


def test_evaluations_of_a_resumed_run_are_remembered(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    rows = [{"behavior": "A", "step": step, "score": score} for step, score in ((1000, 7.0), (2000, None))]
    layout.evaluations.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stop = rules(no_progress=2000, layout=layout, evaluates=True)
    stop.truncate_after("A", 2000)
    stop.write_evaluation(evaluation(3000, 6.9))
    assert stop.met(behaviors())


def test_a_run_stops_at_a_step_of_the_behavior_that_has_most() -> None:
    stop = rules(steps=1000)
    assert not stop.met({"A": SimpleNamespace(training=True, step=999), "B": SimpleNamespace(step=10)})
    assert stop.met(
        {"A": SimpleNamespace(training=True, step=20), "B": SimpleNamespace(training=True, step=1004)}
    )
    assert stop.reason == "steps, 1,000, are reached at step 1,004"
