"""Threads and devices: several threads, and a GPU, only where they help."""

from __future__ import annotations

import logging

import pytest
import torch

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import Compute
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.training.compute import device_for, threads_for
from unity_bridge.simulators.scene import camera_sensor, entity_sensor, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec


def behavior(
    sensor: ObservationSpec, batch_size: int, units: int, encoder: str = "simple", **network: object
) -> Behavior:
    settings = TrainerSettings.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": batch_size, "buffer_size": 10 * batch_size},
            "network_settings": {"hidden_units": units, "num_layers": 1, "vis_encode_type": encoder}
            | network,
        }
    )
    spec = BehaviorSpec((sensor,), ActionSpec(2))
    return Behavior("Some", spec, settings, Compute(torch.device("cpu"), 1))


SMALL = {
    "numbers": lambda: behavior(vector_sensor("state", 8), 64, 128),
    "small pictures": lambda: behavior(camera_sensor("eye", 20, 20), 64, 32),
}
LARGE = {
    "many rows": lambda: behavior(vector_sensor("state", 8), 1024, 256),
    "many things": lambda: behavior(entity_sensor("things", 20, 23), 512, 128),
    "pictures": lambda: behavior(camera_sensor("eye", 84, 84), 32, 64),
}


@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_large_minibatches_have_all_cores_and_small_ones_a_thread(name: str) -> None:
    assert threads_for([(SMALL | LARGE)[name]()], cores=7) == (1 if name in SMALL else 7)


def test_omp_num_threads_limits_the_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_for([LARGE["many rows"]()]) == 3
    assert threads_for([SMALL["numbers"]()]) == 1


CPU, GPU = torch.device("cpu"), torch.device("cuda")
WORTH_A_GPU = {
    "pictures": LARGE["pictures"],
    "small pictures": SMALL["small pictures"],
    "256 rows of 2 x 1,024 units": lambda: behavior(vector_sensor("state", 32), 256, 1024, num_layers=2),
    "256 rows of an LSTM of 512": lambda: behavior(
        vector_sensor("state", 32), 256, 512, memory={"memory_size": 1024, "sequence_length": 64}
    ),
}
WORTH_A_CPU = {
    "numbers": SMALL["numbers"],
    "2048 rows of one layer of 512": lambda: behavior(vector_sensor("state", 8), 2048, 512),
}


@pytest.mark.parametrize("name", [*WORTH_A_GPU, *WORTH_A_CPU])
def test_a_gpu_that_is_at_hand_is_taken_where_the_work_is_worth_it(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        device = device_for(None, GPU, (WORTH_A_GPU | WORTH_A_CPU)[name])
    assert device == (GPU if name in WORTH_A_GPU else CPU)
    (said,) = caplog.messages
    assert said.startswith(f"'Some' learns and acts on '{device.type}'")
    assert f"--torch-device {'cpu' if device == GPU else 'cuda'} " in said


@pytest.mark.parametrize(("name", "at_hand"), [(None, CPU), ("cpu", CPU), ("cuda", GPU), ("cuda:0", GPU)])
def test_where_there_is_no_choice_nothing_is_looked_at_or_said(
    name: str | None, at_hand: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    def never() -> Behavior:
        raise AssertionError("a behavior was made")

    with caplog.at_level(logging.INFO):
        assert device_for(name, at_hand, never) == at_hand
    assert not caplog.messages


def test_a_run_of_little_work_leaves_a_gpu_alone(
    mlagents_style, configure, hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch's device without numbers stands for the GPU: nothing could be learned there.
    monkeypatch.setattr("trainer_service.commands.train.run.choose_device", lambda name: torch.device("meta"))
    configure("Treadmill", max_steps=130)
    said = mlagents_style("learn", "config.yaml", "--seed=1", *hosted("treadmill"))
    assert said.code == 0
    assert "'Treadmill' learns and acts on 'cpu'" in said.out
