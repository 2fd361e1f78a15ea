"""Settings of a run that is spread over processes, beside those of its behaviors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainer_service.config import HYPERPARAMETERS

SPREAD = {"distributed": {"num_workers": 2}}
ASYNC = "distributed: {num_workers: 2, collection: async}\n"


def test_stale_rollouts_are_refused_with_all_behaviors_that_cannot_use_them(
    refuse: Callable[..., list[str]],
) -> None:
    text = ASYNC + "behaviors: {A: {trainer_type: coma}, B: {trainer_type: ppo}, C: {trainer_type: coma}}"
    assert refuse(text) == [
        "run.yaml:1: distributed.collection: expected 'sync', got 'async', but 'coma' (behaviors.A), "
        "'coma' (behaviors.C) cannot learn from rollouts of an older policy"
    ]


def test_flags_are_checked_like_keys(refuse: Callable[..., list[str]], load: Callable[..., Any]) -> None:
    text = "distributed: {collection: async}\nbehaviors: {A: {trainer_type: coma}}"
    assert "'coma' (behaviors.A)" in "\n".join(refuse(text, SPREAD))
    load(text)  # without workers nothing is stale


@pytest.mark.parametrize("trainer_type", sorted(HYPERPARAMETERS))
def test_default_settings_count_where_no_behavior_is_listed(
    refuse: Callable[..., list[str]], load: Callable[..., Any], trainer_type: str
) -> None:
    text = ASYNC + f"default_settings: {{trainer_type: {trainer_type}}}"
    if HYPERPARAMETERS[trainer_type].supports_stale_rollouts:
        assert load(text).options.distributed.collection == "async"
    else:
        assert f"'{trainer_type}' (default_settings)" in "\n".join(refuse(text))
    load(text + "\nbehaviors: {A: {trainer_type: ppo}}")
    load(text.replace("async", "sync"))


def test_more_workers_than_there_are_cannot_be_asked_for(
    refuse: Callable[..., list[str]], load: Callable[..., Any]
) -> None:
    text = "distributed: {num_workers: 2, min_workers: 3}\nbehaviors: {A: {}}"
    assert refuse(text) == ["run.yaml:1: distributed.min_workers: expected at most 2 (num_workers), got 3"]
    load(text, {"distributed": {"num_workers": 3}})
    load(text, {"distributed": {"num_workers": 0}})  # without workers it says nothing
