"""Learner ranks without processes: what is said before they start, and what rank 0 tells the others."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from trainer_service.config import TrainerSettings
from trainer_service.distributed.learners import replicated_learner
from trainer_service.distributed.learners.group import LearnerGroup
from trainer_service.distributed.learners.ranks import LearnerRanks
from trainer_service.distributed.learners.replicated_learner import ReplicatedLearner, serve
from trainer_service.learning.algorithms import make_learner
from trainer_service.learning.algorithms.common.learner import Compute, Learner
from trainer_service.learning.networks.shard import Shard
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("seen", (3,)),), ActionSpec(0, (2,)))
CPU = Compute(torch.device("cpu"), 1)


class Alone(LearnerGroup):
    """Rank 0 of three, without the others; another rank may read what it says."""

    def __init__(self) -> None:
        self.rank, self.world = 0, 3
        self.messages: list[Mapping[str, Any]] = []

    def send(self, message: Mapping[str, Any]) -> None:
        self.messages.append(message)

    def receive(self) -> Mapping[str, Any]:
        return self.messages.pop(0)

    def add_up(self, tensor: torch.Tensor) -> torch.Tensor:
        return Shard.add_up(self, tensor)


@pytest.mark.parametrize(("batch_size", "warns"), [(3071, True), (3072, False)])
def test_few_rows_for_each_rank_are_named_with_what_makes_sense(caplog, batch_size: int, warns: bool) -> None:
    settings = TrainerSettings(hyperparameters={"batch_size": batch_size, "buffer_size": 10240})  # type: ignore[arg-type]
    group = Alone()
    with caplog.at_level(logging.WARNING):
        LearnerRanks(group).make("Some", SPEC, settings, CPU)
    assert [each["what"] for each in group.messages] == ["make"]
    assert ("gives each of 3 learner ranks 1023 rows" in caplog.text) == warns
    assert ("batch_size 3072 would make sense" in caplog.text) == warns


def test_a_trainer_that_learns_nothing_is_refused() -> None:
    settings = TrainerSettings.model_validate({"trainer_type": "random"})
    with pytest.raises(ValueError, match="random learns nothing that 3 learner ranks could share"):
        LearnerRanks(Alone()).make("Some", SPEC, settings, CPU)


def test_batch_normalization_is_refused_as_no_rank_sees_a_whole_minibatch() -> None:
    settings = TrainerSettings.model_validate(
        {"trainer_type": "sac", "hyperparameters": {"critic_norm": "batch"}}
    )
    group = Alone()
    with pytest.raises(
        ValueError, match=r"critic_norm: batch .*; expected distributed\.num_learners 1, got 3"
    ):
        LearnerRanks(group).make("Some", SPEC, settings, CPU)
    assert group.messages == []


def spied_on(monkeypatch: pytest.MonkeyPatch) -> tuple[Learner, list[tuple[int, int]]]:
    """A learner, and the steps and leads of its updates."""
    learner = make_learner(SPEC, TrainerSettings(), CPU)
    updates: list[tuple[int, int]] = []

    def update(step: int) -> dict[str, float]:
        updates.append((step, learner.schedule_lead))
        return {}

    monkeypatch.setattr(learner, "update", update)
    return learner, updates


def test_every_rank_knows_how_far_schedules_are_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Alone()
    group.send({"what": "make"})
    (first, of_first), (other, of_other) = spied_on(monkeypatch), spied_on(monkeypatch)
    learner = ReplicatedLearner(first, group, 0)
    for step, lead in ((100, 0), (500, 300)):
        learner.schedule_lead = lead
        learner.update(step)
    group.send({"what": "end"})
    monkeypatch.setattr(replicated_learner, "_made", lambda *arguments: other)
    serve(group, CPU.device)
    assert of_first == of_other == [(100, 0), (500, 300)]
