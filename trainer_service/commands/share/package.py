"""The files of a run that are shared: an allow-list, without paths, host names and arguments of simulators."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter

from trainer_service.config import RunOptions, TrainerSettings, dump_run_options, load_run_options
from trainer_service.learning.algorithms import Compute, make_learner
from trainer_service.learning.algorithms.common.observation_selection import selector_for
from trainer_service.running.interop.onnx_export import ExportError, export_policy
from trainer_service.running.metrics.jsonl import read_rows
from trainer_service.running.policy import Policy, chosen_checkpoints
from trainer_service.running.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from trainer_service.running.runs.files import write_atomic
from trainer_service.running.runs.layout import NEWEST, RunLayout
from trainer_service.running.runs.status import BehaviorStatus, CheckpointRecord, TrainingStatus, saved_status
from unity_bridge.names import name_problem
from unity_bridge.simulators.schemes import scheme_of

CARD, RESULTS, FILM = "README.md", "results.json", "replay.mp4"
"""The card, the scores and the film, by the names that the Hub looks for."""
MODEL = ".onnx"
_STATUS = "run_logs/training_status.json"
_ROOT_FILES = frozenset(
    {CARD, RESULTS, FILM, "configuration.yaml", "config.json", "metrics.jsonl", "evaluations.jsonl", _STATUS}
)
_BEHAVIOR_FILE = re.compile(r"checkpoint\.safetensors|events\.out\.tfevents\.\d+\.\d+")
_LOCAL = re.compile(r"(^|[\s='\"(@,])(~|/|\\|[A-Za-z]:[\\/]|file:)")
"""The beginnings of local paths."""


def is_shared(name: str) -> bool:
    """Whether a file of this name, relative to a run's folder, is shared: the allow-list.

    A loaded run gets models of its own, made from the weights that were checked.
    """
    if name in _ROOT_FILES:
        return True
    folder, _, file = name.rpartition("/")
    if not folder:
        return file.endswith(MODEL) and name_problem(file.removesuffix(MODEL)) is None
    return name_problem(folder) is None and _BEHAVIOR_FILE.fullmatch(file) is not None


def write_package(
    run: RunLayout, target: Path, *, checkpoint: str = "last", with_state: bool = False
) -> dict[str, Checkpoint]:
    """Writes the shared files of a run into an empty folder, all but card, scores and film.

    Args:
        run: the run's layout.
        target: the folder.
        checkpoint: the checkpoints to share, as for ``chosen_checkpoints``.
        with_state: share optimizers and random streams too, so that training continues where it stopped.

    Returns:
        The shared checkpoints by behavior.

    Raises:
        UserError: the run has no such checkpoint, or a file of it is damaged.
        SaveError: a file could not be written.
    """
    package, status = RunLayout(target), saved_status(run.status)
    shared: dict[str, Checkpoint] = {}
    listed = TrainingStatus(lessons=status.lessons, torch_version=torch.__version__)
    for name, path in chosen_checkpoints(run.path, checkpoint).items():
        found = load_checkpoint(path)
        shared[name] = _shared_checkpoint(found, with_state=with_state)
        save_checkpoint(shared[name], package.checkpoint(name))
        files = [*write_models(Policy(shared[name]), package), f"{name}/{NEWEST}"]
        records = {each.steps: each for each in status.behavior(name).checkpoints}
        known = records.get(found.step) or CheckpointRecord(found.step, "", None, time.time())
        record = replace(known, file_path=files[0], auxiliary_file_paths=tuple(files[1:]))
        listed = listed.with_behavior(name, BehaviorStatus((record,), record, status.behavior(name).elo))
        _write_events(run.behavior(name), package.behavior(name))
    options = shared_options(load_run_options(run.configuration).options, run.path.name, shared)
    write_atomic(package.configuration, dump_run_options(options))
    write_atomic(target / "config.json", json.dumps(options.model_dump(mode="json"), indent=2))
    write_atomic(package.status, listed.to_json())
    for rows, copy in ((run.metrics, package.metrics), (run.evaluations, package.evaluations)):
        if rows.is_file():
            write_atomic(copy, "".join(json.dumps(_numbers(row)) + "\n" for row in read_rows(rows)))
    return shared


def shared_options(
    options: RunOptions, run_id: str, checkpoints: Mapping[str, Checkpoint] | None = None
) -> RunOptions:
    """Returns a run's options for publication: without paths, machines, ports and arguments of simulators.

    checkpoints: by behavior; behaviors that the options do not list are added, as readers look for them by name.
    """
    env = options.env_settings.env_path
    plain = _without_paths(options.model_dump(mode="json"))
    plain["behaviors"] = {
        **{
            name: _without_paths(each.settings.model_dump(mode="json"))
            for name, each in (checkpoints or {}).items()
        },
        **plain["behaviors"],
    }
    plain["checkpoint_settings"] = {"run_id": run_id}
    plain["env_settings"].update(env_args=None, base_port=None)
    scheme = scheme_of(env or "")
    if (
        env is not None
        and scheme is not None
        and scheme.name
        and _LOCAL.search(env.partition(":")[2]) is None
    ):
        plain["env_settings"]["env_path"] = env
    plain.update(distributed=None, metrics_port=None, track=())
    return RunOptions.model_validate(plain)


def _without_paths(value: Any, key: str = "") -> Any:
    """Plain values in which a path is replaced by its last part, and an earlier run's checkpoint by nothing."""
    if isinstance(value, dict):
        return {name: _without_paths(part, str(name)) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(part, key) for part in value]
    if key == "init_path":
        return None
    if isinstance(value, str) and (key.endswith("_path") or _LOCAL.search(value)):
        return re.split(r"[\\/]", value.rstrip("\\/"))[-1] or "removed"
    return value


def _shared_checkpoint(checkpoint: Checkpoint, *, with_state: bool) -> Checkpoint:
    """A checkpoint without paths, and unless ``with_state`` with the state of a learner that only has its weights."""
    Policy(checkpoint)  # refuses weights that do not fit by name
    settings = TrainerSettings.model_validate(_without_paths(checkpoint.settings.model_dump(mode="json")))
    checkpoint = replace(checkpoint, settings=settings)
    if with_state:
        return checkpoint
    spec = selector_for(checkpoint.spec, settings).spec
    learner = make_learner(spec, settings, Compute(torch.device("cpu"), 0))
    learner.load_weights(checkpoint.algorithm)
    return replace(checkpoint, algorithm=learner.state_dict(), self_play=None)


def write_models(policy: Policy, package: RunLayout) -> list[str]:
    """Writes the model of a policy, or of each member of its group. Returns their names; none that cannot be."""
    names = []
    for name, part in policy.parts().items():
        try:
            export_policy(part.network(), part.inputs, package.final_model(name))
        except ExportError:
            continue  # the run's own export has warned of it
        names.append(package.final_model(name).name)
    return names


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """A line of metrics: its numbers, and the behavior's name."""
    return {
        key: value
        for key, value in row.items()
        if key == "behavior" or value is None or isinstance(value, int | float)
    }


def _write_events(source: Path, target: Path) -> None:
    """Copies the numbers of TensorBoard's event files. Their own names hold the host's, and texts may hold paths."""
    for number, path in enumerate(sorted(source.glob("events.out.tfevents.*"))):
        began = re.match(r"events\.out\.tfevents\.(\d+)", path.name)
        with (target / f"events.out.tfevents.{began[1] if began else 0}.{number}").open("wb") as file:
            records = RecordWriter(file)
            records.write(Event(file_version="brain.Event:2").SerializeToString())
            for record in RawEventFileLoader(str(path)).Load():
                event = Event.FromString(record)
                copy = Event(wall_time=event.wall_time, step=event.step)
                if event.HasField("session_log"):
                    copy.session_log.status = event.session_log.status
                for value in event.summary.value:
                    if value.WhichOneof("value") == "simple_value":
                        copy.summary.value.add(tag=value.tag, simple_value=value.simple_value)
                if copy.HasField("session_log") or copy.summary.value:
                    records.write(copy.SerializeToString())
            records.flush()
