"""The number of threads: several only where they help."""

from __future__ import annotations

import os

import pytest
import torch

from trainer_service.algorithms import Compute
from trainer_service.behaviors.behavior import Behavior
from trainer_service.config import TrainerSettings
from trainer_service.training.compute import threads_for, usable_cores
from unity_bridge.simulators.scene import camera_sensor, entity_sensor, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec


def behavior(sensor: ObservationSpec, batch_size: int, units: int, encoder: str = "simple") -> Behavior:
    settings = TrainerSettings.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": batch_size, "buffer_size": 10 * batch_size},
            "network_settings": {"hidden_units": units, "num_layers": 1, "vis_encode_type": encoder},
        }
    )
    spec = BehaviorSpec((sensor,), ActionSpec(2))
    return Behavior("Some", spec, settings, Compute(torch.device("cpu"), 1))


SMALL = {
    "numbers": lambda: behavior(vector_sensor("state", 8), 64, 128),
    "a few things": lambda: behavior(entity_sensor("things", 10, 5), 16, 32),
    "small pictures": lambda: behavior(camera_sensor("eye", 20, 20), 64, 32),
}
LARGE = {
    "many rows": lambda: behavior(vector_sensor("state", 8), 1024, 256),
    "many things": lambda: behavior(entity_sensor("things", 20, 23), 512, 128),
    "pictures": lambda: behavior(camera_sensor("eye", 84, 84), 32, 64),
    "a deep network for small pictures": lambda: behavior(camera_sensor("eye", 36, 36), 16, 16, "resnet"),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_minibatches_have_one_thread(name: str) -> None:
    assert threads_for([SMALL[name]()], cores=7) == 1


@pytest.mark.parametrize("name", LARGE)
def test_large_minibatches_have_all_cores(name: str) -> None:
    assert threads_for([LARGE[name]()], cores=7) == 7


def test_one_large_behavior_decides_for_all() -> None:
    assert threads_for([SMALL["numbers"](), LARGE["many rows"]()], cores=7) == 7


def test_omp_num_threads_limits_the_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_for([LARGE["many rows"]()]) == 3
    assert threads_for([SMALL["numbers"]()]) == 1


@pytest.mark.parametrize("nonsense", ["", "0", "many", "-2"])
def test_otherwise_all_cores_that_we_may_use_are_ours(monkeypatch: pytest.MonkeyPatch, nonsense: str) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", nonsense)
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux can tie a process to cores")
def test_cores_that_are_closed_to_us_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
