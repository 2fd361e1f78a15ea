"""All learner ranks have their schedules where the environment steps of rank 0 place them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from trainer_service.config import TrainerSettings
from trainer_service.distributed.learners import replicated_learner
from trainer_service.distributed.learners.group import LearnerGroup
from trainer_service.distributed.learners.replicated_learner import ReplicatedLearner, serve
from trainer_service.learning.algorithms import make_learner
from trainer_service.learning.algorithms.common.learner import Compute, Learner
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

CPU = torch.device("cpu")


class Recorded(LearnerGroup):
    """The messages of rank 0, for another rank to read."""

    def __init__(self) -> None:
        self.messages: list[Mapping[str, Any]] = [{"what": "make"}]

    def send(self, message: Mapping[str, Any]) -> None:
        self.messages.append(message)

    def receive(self) -> Mapping[str, Any]:
        return self.messages.pop(0)


def spied_on(monkeypatch: pytest.MonkeyPatch) -> tuple[Learner, list[tuple[int, int]]]:
    """A learner, and the steps and leads of its updates."""
    spec = BehaviorSpec((ObservationSpec("seen", (3,)),), ActionSpec(0, (2,)))
    learner = make_learner(spec, TrainerSettings(), Compute(CPU, 1))
    updates: list[tuple[int, int]] = []

    def update(step: int) -> dict[str, float]:
        updates.append((step, learner.schedule_lead))
        return {}

    monkeypatch.setattr(learner, "update", update)
    return learner, updates


def test_every_rank_knows_how_far_schedules_are_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Recorded()
    (first, of_first), (other, of_other) = spied_on(monkeypatch), spied_on(monkeypatch)
    learner = ReplicatedLearner(first, group, 0)
    for step, lead in ((100, 0), (500, 300)):
        learner.schedule_lead = lead
        learner.update(step)
    group.send({"what": "end"})
    monkeypatch.setattr(replicated_learner, "_made", lambda *arguments: other)
    serve(group, CPU)
    assert of_first == of_other == [(100, 0), (500, 300)]
