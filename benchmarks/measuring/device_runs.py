"""Short runs of every trainer type in this process, with the networks on any device: their numbers, and memory."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from measuring.findings import Finding
from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, restore
from trainer_service.running.collection.records import BehaviorTick
from trainer_service.running.runs.checkpoint import load_checkpoint, save_checkpoint
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import Scene, Steps

CPU = torch.device("cpu")
TOLERANCE = 1e-4
"""How far a number x may be from the CPU's: so much times 1 + |x|."""
UPDATES = 2
_MOST_TICKS = 2000
_SCENES = {False: {"basic": 1, "3dball": 1}, True: {"switch2": 2, "spread": 3}}
"""Scenes of which a trainer type takes one or the other, by whether it learns by group; and agents of a group."""
_ROLLOUT = {"batch_size": 64, "buffer_size": 128}
_REPLAY = {"batch_size": 32, "buffer_size": 1000, "buffer_init_steps": 40, "steps_per_update": 16}


class Run:
    """A behavior in a bundled scene of this process."""

    def __init__(self, trainer_type: str, device: torch.device, seed: int = 1) -> None:
        for name, group_size in _SCENES[HYPERPARAMETERS[trainer_type].learns_by_group].items():
            settings = settings_of(trainer_type, group_size)
            self._scene: Scene = open_scene(f"sim:{name}")
            ((self._behavior_id, spec),) = self._scene.behaviors.items()
            try:
                self.behavior = Behavior(name, spec, settings, Compute(device, seed))
            except UserError as error:
                refusal = error
            else:
                break
        else:
            raise refusal
        self.behavior.prepare()
        self._steps: Steps = self._scene.reset(seed=1)

    def update(self, times: int) -> None:
        """Plays until the learner has made so many updates more."""
        wanted = self.behavior.updates + times
        for _ in range(_MOST_TICKS):
            if self.behavior.updates == wanted:
                return
            batch = self._steps[self._behavior_id]
            self.behavior.add(self.behavior.collector.observe(BehaviorTick(0, 0, batch)))
            if self.behavior.ready_to_update():
                self.behavior.update()
            actions = dict.fromkeys([self._behavior_id], *self.behavior.collector.act())
            self._steps = self._scene.step(actions)
        raise RuntimeError(f"{wanted} updates did not come within {_MOST_TICKS} ticks")

    def moved(self, device: torch.device, path: Path) -> Run:
        """This run with the learner of its checkpoint, on another device. path: where the checkpoint is written."""
        save_checkpoint(checkpoint_of(self.behavior), path)
        other = Run(self.behavior.settings.trainer_type, device, seed=2)
        restore(other.behavior, load_checkpoint(path))
        return other

    def numbers(self) -> dict[str, Any]:
        """All that the learner has learned, by its path."""
        return dict(_leaves(self.behavior.learner.state_dict()))


def settings_of(trainer_type: str, group_size: int) -> TrainerSettings:
    """Settings for little work."""
    model = HYPERPARAMETERS[trainer_type]
    values = {**(_REPLAY if model.learns_from_replay else _ROLLOUT), "group_size": group_size}
    return TrainerSettings.model_validate(
        {
            "trainer_type": trainer_type,
            "hyperparameters": {key: value for key, value in values.items() if key in model.model_fields},
            "network_settings": {"hidden_units": 32, "num_layers": 2},
            "time_horizon": 25,
            "max_steps": 100_000,
        }
    )


def check_numbers(device: torch.device) -> Iterator[Finding]:
    """Whether updates of every trainer type give the CPU's numbers."""
    with full_precision():
        for trainer_type in learning_types():
            expected, found = Run(trainer_type, CPU), Run(trainer_type, device)
            expected.update(UPDATES)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                found.update(UPDATES)
            worst = largest_deviation(expected.numbers(), found.numbers())
            said = "; ".join(sorted({str(each.message).splitlines()[0][:100] for each in told}))
            yield Finding(trainer_type, worst <= TOLERANCE, {"deviation": worst}, said)


def check_checkpoints(device: torch.device) -> Iterator[Finding]:
    """Whether checkpoints of every trainer type move from the CPU to the device and back, and continue."""
    with full_precision(), TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint.safetensors")
        for trainer_type in learning_types():
            run = Run(trainer_type, CPU)
            run.update(1)
            worst = 0.0
            for place in (device, CPU):
                before, run = run.numbers(), run.moved(place, path)
                worst = max(worst, largest_deviation(before, run.numbers()))
                run.update(1)
            yield Finding(trainer_type, worst == 0.0, {"deviation": worst})


def check_memory(device: torch.device) -> Iterator[Finding]:
    """Whether the device's memory is given back when runs are over."""
    if device.type != "cuda":
        yield Finding("all trainer types", None, note="only CUDA counts what is allocated")
        return
    _collect()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    for trainer_type in learning_types():
        Run(trainer_type, device).update(1)
    _collect()
    kept = torch.cuda.memory_allocated(device) - before
    peak = torch.cuda.max_memory_allocated(device) - before
    # cuBLAS keeps workspaces for each stream, whoever asked for them first.
    figures = {"kept MB": kept / 1e6, "peak MB": peak / 1e6}
    yield Finding("all trainer types", kept <= 64 * 2**20, figures)


def learning_types() -> list[str]:
    """The trainer types that have something to update."""
    return [name for name, model in HYPERPARAMETERS.items() if model.learns]


def largest_deviation(expected: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    """The largest |x − y| / (1 + |x|) of two results of ``numbers``; infinite where they hold different things."""
    if expected.keys() != found.keys():
        return float("inf")
    worst = 0.0
    for name, value in expected.items():
        other = found[name]
        if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
            known, came = (tensor.detach().cpu().double() for tensor in (value, other))
            worst = max(worst, float(((known - came).abs() / (1.0 + known.abs())).max()))
    return worst


def full_precision() -> AbstractContextManager[object]:
    """A context without TF32, with which convolutions and recurrent layers keep three digits."""
    return torch.backends.cudnn.flags(enabled=True, allow_tf32=False)


def _leaves(content: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _leaves(value, f"{path}/{key}")
    elif isinstance(content, list | tuple):
        for number, value in enumerate(content):
            yield from _leaves(value, f"{path}/{number}")
    else:
        yield path, content.clone() if isinstance(content, Tensor) else content


def _collect() -> None:
    gc.collect()
    torch.cuda.empty_cache()
