"""Behaviors whose checkpoints a recorder writes into the folder of a run, without simulators."""

from __future__ import annotations

from typing import Any

import torch

from trainer_service.config import parse_run_options
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.algorithms.common.member_policy import ExportModel
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.interop.onnx_export import export_policy
from trainer_service.running.metrics import JsonlWriter
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.timers import Timers
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.status import TrainingStatus
from trainer_service.running.training.recorder import Outputs, Recorder
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("o", (2,)),), ActionSpec(1))


def behavior_of(spec: BehaviorSpec = SPEC, **settings: Any) -> Behavior:
    """Behavior B, which has a checkpoint every 100 steps unless its settings say otherwise."""
    options = parse_run_options({"behaviors": {"B": {"checkpoint_interval": 100, **settings}}}).options
    return Behavior("B", spec, options.behaviors["B"], Compute(torch.device("cpu"), 1))


def recorder_of(
    folder: RunFolder, *behaviors: Behavior, export_model: ExportModel | None = export_policy, **options: Any
) -> Recorder:
    """A recorder that knows these behaviors."""
    writers = [JsonlWriter(folder.metrics)]
    recorder = Recorder(
        Outputs(folder, Console(tty=False), writers, Timers(), export_model), TrainingStatus(), **options
    )
    for each in behaviors:
        recorder.add(each)
    return recorder


def write_at(recorder: Recorder, behavior: Behavior, *steps: int) -> None:
    """Writes what is due at these steps of a behavior, and waits until it is written."""
    for behavior.step in steps:  # the loop is the behavior's life
        recorder.write_due(behavior)
        recorder.wait()


def stored(folder: RunFolder) -> TrainingStatus:
    """The status that lies in the folder."""
    return folder.read_status(torch_version=torch.__version__)


def listed(folder: RunFolder) -> list[int]:
    """Steps of the checkpoints of behavior B that the status lists."""
    if not folder.status.exists():
        return []
    return [record.steps for record in stored(folder).behavior("B").checkpoints]
