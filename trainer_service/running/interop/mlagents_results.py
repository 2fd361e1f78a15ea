"""The import of a results folder of ML-Agents 1.1.0 as a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer_service.config import (
    CheckpointSettings,
    RunOptions,
    TrainerSettings,
    dump_run_options,
    load_run_options,
)
from trainer_service.errors import UserError
from trainer_service.running.interop.mlagents_checkpoint import (
    Conversion,
    MLAgentsCheckpoint,
    convert_checkpoint,
    load_mlagents_checkpoint,
)
from trainer_service.running.interop.onnx_export import ExportError, export_policy
from trainer_service.running.policy import Policy
from trainer_service.running.runs.checkpoint import Checkpoint, not_finite, save_checkpoint
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.layout import RunLayout
from trainer_service.running.runs.status import BehaviorStatus, CheckpointRecord, TrainingStatus, read_status
from trainer_service.running.training.compute import seed_of
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec, ObservationType

_PROPERTIES: Mapping[int, tuple[DimensionProperty, ...]] = {
    1: (DimensionProperty.NONE,),
    2: (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE),
    3: (
        DimensionProperty.NONE,
        DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
        DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    ),
}
"""Dimension properties of a sensor, by its rank: ML-Agents trains only on vectors, entities and pictures."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """The result of an import."""

    folder: Path
    conversions: Mapping[str, Conversion]
    """Conversions by behavior."""

    def to_json(self) -> dict[str, Any]:
        """The result as the object that ``import-checkpoint --json`` prints."""
        return {
            "folder": str(self.folder),
            "behaviors": {
                name: {"step": conversion.checkpoint.step, "left_out": list(conversion.left_out)}
                for name, conversion in self.conversions.items()
            },
        }

    def lines(self) -> Iterator[str]:
        """Yields the result in words."""
        for name, conversion in self.conversions.items():
            yield f"Imported {name} (step {conversion.checkpoint.step}) into {self.folder}"
            for part in conversion.left_out:
                yield f"  not taken over: {part}"


def import_results(source: Path, run_id: str, *, results_dir: Path) -> Imported:
    """Makes a run from a results folder of ML-Agents. Nothing is written unless everything fits.

    The folder's ``configuration.yaml`` says how each behavior was trained, its ``<behavior>.onnx`` what the
    sensors are. Steps and lessons are kept; sensors lose their names, which no file there holds.

    Raises:
        UserError: the folder is none of ML-Agents, incomplete, damaged, or of something that is not supported
            yet; or the run id is taken.
    """
    configuration = source / "configuration.yaml"
    if not configuration.is_file():
        raise UserError(
            f"'{source}' has no configuration.yaml; expected the results folder of a finished run of ML-Agents"
        )
    loaded = load_run_options(configuration)
    loaded.log(_logger)
    options = loaded.options
    conversions = {
        name: _converted(path, name, options) for name, path in _checkpoints(source, options).items()
    }
    with RunFolder.open(results_dir, run_id) as folder:
        ours = CheckpointSettings(run_id=run_id, results_dir=str(results_dir))
        folder.begin(dump_run_options(options.model_copy(update={"checkpoint_settings": ours})))
        _write(folder, source, [conversion.checkpoint for conversion in conversions.values()])
    return Imported(folder.given, conversions)


def spec_of(model: Path, source: MLAgentsCheckpoint, settings: TrainerSettings) -> BehaviorSpec:
    """The spec of a behavior: sensors by its exported model, actions by its checkpoint.

    Raises:
        UserError: the model is missing, damaged or of another policy, or does not tell which sensor is the goal.
    """
    shapes = _observation_shapes(model)
    goals = _goals(shapes, source, settings)
    sensors = tuple(
        ObservationSpec(
            name=f"obs_{index}",
            shape=shape,
            dimension_property=_PROPERTIES[len(shape)],
            observation_type=ObservationType.GOAL_SIGNAL if index in goals else ObservationType.DEFAULT,
        )
        for index, shape in enumerate(shapes)
    )
    return BehaviorSpec(sensors, _actions(source))


def _checkpoints(source: Path, options: RunOptions) -> dict[str, Path]:
    found = RunLayout(source).states()
    if not found:
        raise UserError(f"'{source}' holds no checkpoint (no */checkpoint.pt)")
    for name in options.behaviors:
        if name not in found:
            _logger.warning("'%s' has no checkpoint of '%s', which its configuration names.", source, name)
    return found


def _converted(path: Path, name: str, options: RunOptions) -> Conversion:
    settings = options.behavior_settings(name)
    source = load_mlagents_checkpoint(path)
    spec = spec_of(_model_beside(path, name), source, settings)
    converted = convert_checkpoint(
        source, name, spec, settings, seed=seed_of(options.env_settings.seed, name)
    )
    if where := not_finite(converted.checkpoint):
        raise UserError(f"cannot use checkpoint '{path}': {where} is NaN or infinite")
    return converted


def _model_beside(checkpoint: Path, name: str) -> Path:
    """A model of the behavior, whichever is there: they all have the same inputs."""
    final = checkpoint.parent.with_name(f"{name}.onnx")
    models = [final, *sorted(checkpoint.parent.glob("*.onnx"))]
    for model in models:
        if model.is_file():
            return model
    raise UserError(
        f"behavior '{name}': neither '{final}' nor a model in '{checkpoint.parent}' is there, and only a model "
        "tells what the sensors are. Without one, put the folder into the results and use --initialize-from: "
        "then the simulator tells."
    )


def _write(folder: RunFolder, source: Path, checkpoints: Sequence[Checkpoint]) -> None:
    old_file = source / "run_logs" / "training_status.json"
    version = torch.__version__
    old = read_status(old_file, torch_version=version) if old_file.is_file() else TrainingStatus()
    status = TrainingStatus(lessons=old.lessons, torch_version=version)
    for checkpoint in checkpoints:
        name = checkpoint.behavior
        record, before = _write_checkpoint(folder, checkpoint), old.behavior(name).final_checkpoint
        if before is not None and before.steps == checkpoint.step:
            record = replace(record, reward=before.reward)
        exported = record.file_path.endswith(".onnx")
        final = replace(record, file_path=folder.final_model(name).as_posix()) if exported else record
        status = status.with_behavior(name, BehaviorStatus((record,), final, old.behavior(name).elo))
    folder.write_status(status)


def _write_checkpoint(folder: RunFolder, checkpoint: Checkpoint) -> CheckpointRecord:
    name, step = checkpoint.behavior, checkpoint.step
    weights, model = folder.numbered(name, step), folder.numbered(name, step, ".onnx")
    save_checkpoint(checkpoint, weights, folder.checkpoint(name))
    files = [model, weights]
    try:
        export_policy(Policy(checkpoint).network(), checkpoint.spec, model, folder.final_model(name))
    except ExportError as error:
        _logger.warning("'%s': %s", name, error)
        files = [weights]
    file, *others = (path.as_posix() for path in files)
    return CheckpointRecord(step, file, None, time.time(), tuple(others))


def _observation_shapes(model: Path) -> list[tuple[int, ...]]:
    """Shapes of the inputs obs_0, obs_1 … without the batch dimension."""
    try:
        import onnx
    except ImportError as error:
        raise UserError(f"'{model}' cannot be read: {error}. Install it with: pip install onnx") from None
    try:
        graph = onnx.load_model_from_string(model.read_bytes()).graph
    except Exception as error:  # protobuf's own, which this package does not know
        raise UserError(f"model '{model}' is damaged: {error}") from None
    found = {
        each.name: tuple(dimension.dim_value for dimension in each.type.tensor_type.shape.dim)[1:]
        for each in graph.input
        if each.name.startswith("obs_")
    }
    shapes = [found.get(f"obs_{index}", ()) for index in range(len(found))]
    if not shapes or any(len(shape) not in _PROPERTIES or min(shape) < 1 for shape in shapes):
        raise UserError(
            f"model '{model}' has the inputs {found}; expected obs_0, obs_1 … with 1 to 3 known dimensions each"
        )
    return shapes


def _actions(source: MLAgentsCheckpoint) -> ActionSpec:
    policy = source.modules["Policy"]
    try:
        continuous = int(policy["continuous_act_size_vector"])
        branches = tuple(int(size) for size in policy["discrete_act_size_vector"].flatten())
        return ActionSpec(continuous, branches)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError) as error:
        raise UserError(f"'{source.path}' does not tell its actions: {error}") from None


def _goals(
    shapes: Sequence[tuple[int, ...]], source: MLAgentsCheckpoint, settings: TrainerSettings
) -> tuple[int, ...]:
    """Returns the indices of the goal sensors, which generate weights.

    No file names them. They follow from the input width of the hypernetwork.
    """
    widths = [
        tensor.shape[1]
        for key, tensor in source.modules["Policy"].items()
        if key.endswith(".hypernet.0.weight") and isinstance(tensor, Tensor) and tensor.ndim == 2
    ]
    if not widths:
        return ()
    hidden = settings.network_settings.hidden_units
    features = {
        index: hidden if len(shape) == 3 else shape[0]
        for index, shape in enumerate(shapes)
        if len(shape) != 2
    }
    possible = _subsets(features, widths[0])
    if len(possible) != 1:
        raise UserError(
            f"'{source.path}' is of a policy with a goal, and which of the sensors {list(shapes)} state it cannot "
            "be told from the files. Put the folder into the results and use --initialize-from: then the "
            "simulator tells."
        )
    return possible[0]


def _subsets(sizes: Mapping[int, int], total: int) -> list[tuple[int, ...]]:
    """Up to two ways to make ``total`` of some of the sizes, as their keys."""
    ways: dict[int, list[tuple[int, ...]]] = {0: [()]}
    for key, size in sizes.items():
        longer = {done + size: [(*subset, key) for subset in subsets] for done, subsets in ways.items()}
        ways = {
            done: (ways.get(done, []) + longer.get(done, []))[:2]
            for done in sorted({*ways, *longer})
            if done <= total
        }
    return ways.get(total, [])
