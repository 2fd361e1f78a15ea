"""Settings of off-policy learners, and the place of trainer types in the configuration."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import (
    ReplayHyperparameters,
)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("n_step", 0, "greater than or equal to 1"),
        ("exploration_final", 1.5, "less than or equal to 1"),
        ("exploration_unit", "rounds", "'steps' or 'episodes'"),
        ("lambd", 0.9, "'lambd' is a key of ppo, .*, not of dqn"),
        ("mixer_units", 3, "'mixer_units' is a key of qmix, not of dqn"),
    ],
)
def test_mistakes_are_named(key: str, value: object, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TrainerSettings.model_validate({"trainer_type": "dqn", "hyperparameters": {key: value}})


SHOWN = {"replay": {"demo_path": "expert.demo"}}


@pytest.mark.parametrize("trainer_type", ["sac", "crossq", "td3", "ddpg", "dqn"])
def test_single_agents_replay_demonstrations(trainer_type: str) -> None:
    hyper = TrainerSettings.model_validate(
        {"trainer_type": trainer_type, "hyperparameters": SHOWN}
    ).hyperparameters
    assert isinstance(hyper, ReplayHyperparameters)
    assert hyper.demonstrated_rows == hyper.batch_size // 2


@pytest.mark.parametrize(
    "trainer_type", ["idqn", "vdn", "qmix", "maddpg", "dqn_share", "dqn_consensus", "sic"]
)
def test_groups_refuse_demonstrations_in_minibatches_by_key(trainer_type: str) -> None:
    with pytest.raises(
        ValidationError, match=r"(?s)hyperparameters\.replay\.demo_path.*one agent at a time.*'expert.demo'"
    ):
        TrainerSettings.model_validate({"trainer_type": trainer_type, "hyperparameters": SHOWN})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network_settings": {"memory": {}}}, r"(?s)network_settings\.memory.*hold no memories"),
        ({"hyperparameters": {**SHOWN, "batch_size": 1}}, r"(?s)hyperparameters\.batch_size.*at least 2"),
        ({"hyperparameters": {"replay": {"demo_share": 0}}}, "greater than 0"),
        ({"hyperparameters": {"replay": {"demo_share": 1}}}, "less than 1"),
        ({"hyperparameters": {"replay": {"demo_path": ""}}}, "not empty"),
    ],
)
def test_demonstrations_that_fit_no_minibatch_are_refused_by_key(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TrainerSettings.model_validate({"trainer_type": "sac", "hyperparameters": SHOWN, **changes})
