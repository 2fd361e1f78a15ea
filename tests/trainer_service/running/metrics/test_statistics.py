"""Statistics that are collected between two summaries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trainer_service.running.curriculum import CurrentLesson
from trainer_service.running.metrics import Statistics, Summary, json_key
from trainer_service.running.metrics.jsonl import STANDARD_KEYS, to_json
from unity_bridge.side_channels import Aggregation, StatMessage


def values(drained: Summary) -> dict[str, float]:
    return {tag: series.value for tag, series in drained.series.items()}


def test_a_scalar_is_the_mean_over_all_its_values() -> None:
    statistics = Statistics("Ball")
    statistics.add("Policy/Entropy", 1.0)
    statistics.add("Policy/Entropy", np.array([2.0, 3.0, 6.0], dtype=np.float32))
    statistics.add("Policy/Entropy", np.array([], dtype=np.float32))
    statistics.add("Losses/Value Loss", 4)
    statistics.add("Policy/Nothing", [])
    drained = statistics.drain(step=10, wall_s=1.0, steps_per_s=5.0)
    assert values(drained) == {"Policy/Entropy": 3.0, "Losses/Value Loss": 4.0}


def test_draining_hands_everything_out_once() -> None:
    statistics = Statistics("Ball")
    statistics.add("Policy/Entropy", 1.0)
    statistics.add_episodes([1.0, 2.0], [3, 4])
    statistics.add_group_episodes([7.0])
    statistics.add_episodes(5.0, 6)
    first = statistics.drain(step=10, wall_s=1.0, steps_per_s=5.0, is_training=False)
    assert (first.behavior, first.step, first.wall_s, first.steps_per_s) == ("Ball", 10, 1.0, 5.0)
    assert not first.is_training
    np.testing.assert_array_equal(first.stats.returns, [1.0, 2.0, 5.0])
    np.testing.assert_array_equal(first.stats.lengths, [3.0, 4.0, 6.0])
    np.testing.assert_array_equal(first.stats.group_returns, [7.0])
    second = statistics.drain(step=20, wall_s=2.0, steps_per_s=5.0)
    assert second.stats.episodes == 0
    assert second.series == {}


def stat(value: float, aggregation: Aggregation, name: str = "Goals") -> StatMessage:
    return StatMessage(name, value, aggregation)


@pytest.mark.parametrize(
    ("aggregation", "value"),
    [
        (Aggregation.AVERAGE, 3.0),
        (Aggregation.SUM, 9.0),
        (Aggregation.MOST_RECENT, 1.0),
        (Aggregation.HISTOGRAM, 3.0),
    ],
)
def test_a_simulators_statistic_is_gathered_as_it_asks(aggregation: Aggregation, value: float) -> None:
    statistics = Statistics("Ball")
    for each in (2.0, 6.0, 1.0):
        statistics.add_stat(stat(each, aggregation))
    drained = statistics.drain(step=1, wall_s=1.0, steps_per_s=1.0)
    assert values(drained) == {"Goals": value}
    assert drained.series["Goals"].histogram_samples.tolist() == (
        [2.0, 6.0, 1.0] if aggregation is Aggregation.HISTOGRAM else []
    )


@pytest.mark.parametrize("aggregation", [Aggregation.AVERAGE, Aggregation.MOST_RECENT])
@pytest.mark.parametrize("name", ["Policy/Entropy", "Saving/Failures"])
def test_a_simulators_statistic_does_not_touch_the_trainers(name: str, aggregation: Aggregation) -> None:
    statistics = Statistics("Ball")
    statistics.add_stat(stat(9.0, aggregation, name))
    early = statistics.drain(step=1, wall_s=1.0, steps_per_s=1.0)
    assert values(early) == {f"Simulator/{name}": 9.0}  # also while the trainer has no value of its own
    statistics.add(name, 1.0)
    statistics.add_stat(stat(9.0, aggregation, name))
    assert statistics.add_stat(stat(3.0, Aggregation.AVERAGE, name), is_own=True)
    drained = statistics.drain(step=2, wall_s=1.0, steps_per_s=1.0)
    assert values(drained) == {name: 2.0, f"Simulator/{name}": 9.0}
    line = to_json(drained)
    assert (line[json_key(name)], line[f"Simulator/{name}"]) == (2.0, 9.0)


COUNTED = {
    "Environment/Cumulative Reward": 4.0,
    "Environment/Group Cumulative Reward": 7.0,
    "Environment/Episode Length": 2.0,
    "Environment/Env Steps": 30.0,
    "Environment/Replaced Values": 5.0,
    "Environment/Lesson Number/height": 1.0,
}


def test_a_simulators_statistic_takes_no_place_of_episodes_and_lessons() -> None:
    statistics = Statistics("Ball")
    statistics.add_episodes(4.0, 2)
    statistics.add_group_episodes(7.0)
    statistics.add_replaced_values(5)
    for name in (*COUNTED, "Environment/Cumulative Reward/Leader"):
        statistics.add_stat(stat(9.0, Aggregation.AVERAGE, name))
    drained = statistics.drain(step=1, wall_s=1.0, steps_per_s=1.0)
    drained = replace(drained, env_steps=30, lessons={"height": CurrentLesson(1, "high")})
    tagged = {tag: series.value for tag, series in drained.tagged().items()}
    theirs = {f"Simulator/{name}": 9.0 for name in (*COUNTED, "Environment/Cumulative Reward/Leader")}
    assert tagged == COUNTED | theirs
    assert theirs.items() <= to_json(drained).items()
    assert drained.member_returns == {}


def test_no_key_of_a_line_stands_for_two_tags() -> None:
    statistics = Statistics("Ball")
    names = [
        "entropy",
        "Environment/Entropy",
        "Environment/Goals Shot",
        "goals_shot",
        "Environment/Step",
        "step",
        "Goals",
    ]
    for value, name in enumerate(names):
        statistics.add_stat(stat(float(value), Aggregation.AVERAGE, name))
    statistics.add("Policy/Entropy", 7.0)
    line = to_json(statistics.drain(step=8, wall_s=1.0, steps_per_s=1.0))
    assert {key: value for key, value in line.items() if key not in STANDARD_KEYS or key == "step"} == {
        "step": 8, "entropy": 7.0, "Simulator/entropy": 0.0, "Environment/Entropy": 1.0, "goals_shot": 2.0,
        "Simulator/goals_shot": 3.0, "Environment/Step": 4.0, "Simulator/step": 5.0, "Goals": 6.0,
    }  # fmt: skip
