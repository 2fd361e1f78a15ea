"""How fast a device computes updates and decisions of learners that learn in a bundled scene of this process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from measuring.device_runs import CPU
from measuring.device_speed import CLOSE
from measuring.findings import Finding
from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import Compute
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.records import BehaviorTick
from trainer_service.running.training.compute import device_for
from unity_bridge.simulators.registry import open_scene

UPDATES = 4
_LONGEST_S = 8.0
"""Seconds that each device gets for a learner."""

_ROLLOUT = {"batch_size": 2400, "buffer_size": 2400, "num_epoch": 5, "group_size": 3}
_REPLAY = {
    "batch_size": 1024,
    "buffer_size": 5000,
    "buffer_init_steps": 1500,
    "steps_per_update": 12,
    "group_size": 3,
}
CASES: Mapping[str, tuple[str, str, Mapping[str, Any], int]] = {
    "MAPPO, 2 x 128 units": ("spread", "mappo", {**_ROLLOUT, "batch_size": 800}, 128),
    "MAPPO, 2 x 512 units": ("spread", "mappo", _ROLLOUT, 512),
    "POCA, 2 x 256 units": ("spread", "poca", {"batch_size": 512, "buffer_size": 2400, "num_epoch": 3}, 256),
    "QMIX, 2 x 64 units": ("spread", "qmix", {**_REPLAY, "batch_size": 256}, 64),
    "QMIX, 2 x 512 units": ("spread", "qmix", _REPLAY, 512),
    "MADDPG, 2 x 128 units": ("spread", "maddpg", _REPLAY, 128),
}
"""Scene, trainer type, hyperparameters and units of each learner."""


def measure_groups(device: torch.device) -> Iterator[Finding]:
    """Milliseconds of updates and microseconds of decisions of groups, on the device and on the CPU."""
    for name, (scene, trainer_type, hyper, units) in CASES.items():
        settings = _settings(trainer_type, hyper, units)
        update, decision = _measured(scene, settings, CPU)
        figures = {"CPU ms": update, "CPU act us": decision}
        if device == CPU:
            yield Finding(name, True, figures, "no other device to compare with")
            continue
        chosen = device_for(
            None, device, lambda settings=settings, scene=scene: _behavior(scene, settings, CPU)[0]
        )
        figures["ms"], figures["act us"] = _measured(scene, settings, device)
        taken = figures["ms" if chosen == device else "CPU ms"]
        faster = device if figures["ms"] < update else CPU
        # An update is not all: decisions of a few agents are sooner made on the CPU.
        good = taken <= 2 * CLOSE * min(figures["ms"], update)
        yield Finding(name, good, figures, f"auto: {chosen.type}, faster: {faster.type}")


def _settings(trainer_type: str, hyper: Mapping[str, Any], units: int) -> TrainerSettings:
    return TrainerSettings.model_validate(
        {
            "trainer_type": trainer_type,
            "hyperparameters": dict(hyper),
            "network_settings": {"hidden_units": units, "num_layers": 2},
            "time_horizon": 25,
        }
    )


def _behavior(scene: str, settings: TrainerSettings, device: torch.device) -> tuple[Behavior, Any, str]:
    world = open_scene(f"sim:{scene}")
    ((behavior_id, spec),) = world.behaviors.items()
    return Behavior(scene, spec, settings, Compute(device, 1)), world, behavior_id


def _measured(scene: str, settings: TrainerSettings, device: torch.device) -> tuple[float, float]:
    """Medians: milliseconds of an update, and microseconds of a tick's decisions."""
    behavior, world, behavior_id = _behavior(scene, settings, device)
    behavior.prepare()
    steps = world.reset(seed=1)
    updates: list[float] = []
    decisions: list[float] = []
    ends = time.perf_counter() + _LONGEST_S
    while len(updates) < UPDATES and (time.perf_counter() < ends or not updates):
        behavior.add(behavior.collector.observe(BehaviorTick(0, 0, steps[behavior_id])))
        if behavior.ready_to_update():
            began = _now(device)
            behavior.update()
            updates.append(_now(device) - began)
        began = time.perf_counter()
        actions = dict.fromkeys([behavior_id], *behavior.collector.act())
        decisions.append(time.perf_counter() - began)
        steps = world.step(actions)
    return 1e3 * statistics.median(updates[1:] or updates), 1e6 * statistics.median(decisions)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
