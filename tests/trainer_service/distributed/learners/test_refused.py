"""What is said before learner ranks start: small minibatches are named, trainers that learn nothing refused."""

from __future__ import annotations

import logging

import pytest
import torch

from trainer_service.config import TrainerSettings
from trainer_service.distributed.learners.group import LearnerGroup
from trainer_service.distributed.learners.ranks import LearnerRanks
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.networks.shard import Shard
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("seen", (3,)),), ActionSpec(0, (2,)))
CPU = Compute(torch.device("cpu"), 1)


class Silent(LearnerGroup):
    """Rank 0 of three, without the others."""

    def __init__(self) -> None:
        self.rank, self.world = 0, 3
        self.said: list[str] = []

    def send(self, message) -> None:
        self.said.append(message["what"])

    def add_up(self, tensor: torch.Tensor) -> torch.Tensor:
        return Shard.add_up(self, tensor)


@pytest.mark.parametrize(("batch_size", "warns"), [(3071, True), (3072, False)])
def test_few_rows_for_each_rank_are_named_with_what_makes_sense(caplog, batch_size: int, warns: bool) -> None:
    settings = TrainerSettings(hyperparameters={"batch_size": batch_size, "buffer_size": 10240})  # type: ignore[arg-type]
    group = Silent()
    with caplog.at_level(logging.WARNING):
        LearnerRanks(group).make("Some", SPEC, settings, CPU)
    assert group.said == ["make"]
    assert ("gives each of 3 learner ranks 1023 rows" in caplog.text) == warns
    assert ("batch_size 3072 would make sense" in caplog.text) == warns


def test_a_trainer_that_learns_nothing_is_refused() -> None:
    settings = TrainerSettings.model_validate({"trainer_type": "random"})
    with pytest.raises(ValueError, match="random learns nothing that 3 learner ranks could share"):
        LearnerRanks(Silent()).make("Some", SPEC, settings, CPU)


def test_batch_normalization_is_refused_as_no_rank_sees_a_whole_minibatch() -> None:
    settings = TrainerSettings.model_validate(
        {"trainer_type": "sac", "hyperparameters": {"critic_norm": "batch"}}
    )
    group = Silent()
    with pytest.raises(
        ValueError, match=r"critic_norm: batch .*; expected distributed\.num_learners 1, got 3"
    ):
        LearnerRanks(group).make("Some", SPEC, settings, CPU)
    assert group.said == []
