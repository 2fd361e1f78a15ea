"""The objective of a sweep: which metric counts, and its values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer_service.commands.common.curves import Curve
from trainer_service.commands.common.run_record import OURS, RunRecord
from trainer_service.commands.search.objective import Objective, objective_of
from trainer_service.config import parse_run_options
from trainer_service.errors import UserError


def objective(metric: str | None = None, behavior: str | None = None, **changes: Any) -> Objective:
    walker = {"max_steps": 1000, "summary_freq": 100, **changes.pop("walker", {})}
    options = parse_run_options({"behaviors": {"Walker": walker}, **changes}).options
    return objective_of(options, metric, behavior)


def run_with(**behaviors: dict[str, list[float]]) -> RunRecord:
    """A run with values of metrics at every 100 steps."""
    curves = {
        name: {
            metric.replace("__", "/"): Curve.of((100 * at, 0.0, value) for at, value in enumerate(values, 1))
            for metric, values in metrics.items()
        }
        for name, metrics in behaviors.items()
    }
    return RunRecord(Path("run"), OURS, None, curves)


def test_return_of_groups_counts_where_there_are_groups() -> None:
    run = run_with(Walker={"mean_return": [1.0, 1.0], "mean_group_return": [5.0, 7.0]})
    assert objective().score(run) == 7.0
    assert objective().score(run_with(Walker={"mean_return": [1.0, 2.0]})) == 2.0


def test_score_of_several_behaviors_is_their_mean() -> None:
    run = run_with(Walker={"mean_return": [2.0]}, Runner={"mean_return": [4.0]})
    assert objective().score(run) == 3.0
    assert objective(behavior="Walker").score(run) == 2.0


def test_score_of_evaluations_counts_where_there_are_any() -> None:
    run = run_with(Walker={"mean_return": [1.0], "evaluation__mean_return": [9.0]})
    evaluated = objective(evaluation={"every_steps": 250})
    assert evaluated.score(run) == 9.0
    assert (evaluated.interval, evaluated.reports) == (250, 4)


def test_rating_counts_under_self_play() -> None:
    run = run_with(Walker={"mean_return": [0.0], "elo": [1250.0]})
    assert objective(walker={"self_play": {}}).score(run) == 1250.0
    assert objective("mean_return", walker={"self_play": {}}).score(run) == 0.0


def test_values_are_numbered_by_their_summaries() -> None:
    run = run_with(Walker={"mean_return": [1.0, 2.0]}, Runner={"mean_return": [3.0, 6.0, 9.0]})
    assert list(objective().values(run)) == [(1, 2.0), (2, 4.0)]


def test_summaries_that_come_too_late_are_refused() -> None:
    message = r"summary_freq: expected at most the max_steps of 1,000, got 5,000: a trial would end before"
    with pytest.raises(UserError, match=message):
        objective(walker={"summary_freq": 5000})
