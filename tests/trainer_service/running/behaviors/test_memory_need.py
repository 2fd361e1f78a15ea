"""The count of what networks need, beside networks that were made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS, Compute, make_learner
from trainer_service.learning.algorithms.common.observation_selection import (
    selector_for,
    with_group_size,
    with_sharing,
)
from trainer_service.running.behaviors import memory_need as counting
from trainer_service.running.behaviors.memory_need import memory_need
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

CPU = torch.device("cpu")
SLOWLY_COUNTED = {"dqn_share", "dqn_consensus"}
SMALL = {"network_settings": {"hidden_units": 32, "num_layers": 1}}


def settings_of(trainer_type: str, **more: object) -> TrainerSettings:
    return with_group_size(TrainerSettings.model_validate({"trainer_type": trainer_type, **SMALL, **more}), 3)


def spec_of(trainer_type: str, *shape: int) -> BehaviorSpec:
    continuous = trainer_type in ("ddpg", "td3")
    return BehaviorSpec(
        (ObservationSpec("eye", shape),), ActionSpec(2) if continuous else ActionSpec(0, (3,))
    )


@pytest.mark.parametrize("trainer_type", ALGORITHMS)
def test_the_count_is_what_making_them_takes(trainer_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if trainer_type not in SLOWLY_COUNTED:
        monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # which takes seconds to load
    spec = spec_of(trainer_type, 50)
    settings = with_sharing(settings_of(trainer_type), spec)
    state = torch.get_rng_state()
    counted = memory_need(spec, settings)
    assert torch.equal(torch.get_rng_state(), state)
    learner = make_learner(selector_for(spec, settings).spec, settings, Compute(CPU, 0))
    made = {id(storage): storage.nbytes() for storage in counting._storages(learner)}
    assert counted == sum(made.values())
    assert counted > 10_000 or trainer_type == "random"


def test_a_huge_description_is_counted_without_being_made() -> None:
    spec = BehaviorSpec(tuple(ObservationSpec(f"{i}", (2**21,)) for i in range(8)), ActionSpec(1))
    wide = TrainerSettings.model_validate({"trainer_type": "ppo", "network_settings": {"hidden_units": 512}})
    assert memory_need(spec, wide) > 100 * 2**30


def test_a_containers_limit_counts_as_free_memory(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert counting._of_container(tmp_path) == [600]
    (tmp_path / "memory.max").write_text("max\n")
    assert counting._of_container(tmp_path) == []
