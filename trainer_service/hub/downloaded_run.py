"""Runs made from the untrusted files of a repository: everything is checked before a run is there."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path

from trainer_service.config import RunOptions, dump_run_options, load_run_options
from trainer_service.errors import UserError
from trainer_service.hub.package import is_shared, shared_options
from trainer_service.hub.repository import Snapshot
from trainer_service.interop.mlagents_results import import_results
from trainer_service.policy import Policy
from trainer_service.runs.checkpoint import load_checkpoint
from trainer_service.runs.files import write_atomic
from trainer_service.runs.folder import RunFolder
from trainer_service.runs.layout import RunLayout, numbered_name
from trainer_service.runs.status import saved_status
from unity_bridge.untrusted_text import quoted

_OF_MLAGENTS = re.compile(r"[^/]+/checkpoint\.pt")
_PLAIN_ENV = re.compile(r"sim:[\w-]+|gym:[\w.-]+(/[\w.-]+)?")
"""Environments that a loaded run may name: a bundled scene, or one that is registered with Gymnasium."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run that was made from a repository."""

    folder: Path
    commit: str
    """The commit of the repository."""
    left_out: tuple[str, ...]
    """Files of the repository that are not taken over, and parts of ML-Agents' checkpoints."""


def wanted_files(snapshot: Snapshot) -> list[str]:
    """The files of a repository that a run is made from: the allow-list, or ML-Agents' own files.

    Raises UserError where the repository has no configuration or no checkpoint.
    """
    names = sorted(snapshot.sizes)
    if "configuration.yaml" not in names:
        raise UserError(f"repository '{snapshot.repo_id}': expected a run, found no configuration.yaml")
    ours = [name for name in names if is_shared(name)]
    if any(name.endswith("/checkpoint.safetensors") for name in ours):
        return ours
    theirs = [name for name in names if _OF_MLAGENTS.fullmatch(name)]
    if not theirs:
        raise UserError(
            f"repository '{snapshot.repo_id}': expected a checkpoint (NAME/checkpoint.safetensors, or checkpoint.pt of "
            f"ML-Agents), found {len(names)} other files"
        )
    models = [
        name
        for name in names
        if any(numbered_name(path.partition("/")[0]).fullmatch(name.partition("/")[2]) for path in theirs)
        and name.endswith(".onnx")
    ]
    return [*ours, *theirs, *models]


def make_run(downloaded: Path, snapshot: Snapshot, run_id: str, *, results_dir: Path) -> LoadedRun:
    """Makes a run from downloaded files. Nothing is written into the results unless everything can be read.

    Raises:
        UserError: a file is damaged, holds more than plain values, or the run id is taken.
    """
    layout = RunLayout(downloaded)
    names = [name for name in snapshot.sizes if (downloaded / name).is_file()]
    left = tuple(sorted(snapshot.sizes.keys() - set(names)))
    write_atomic(layout.configuration, dump_run_options(_safe_options(layout.configuration, run_id)))
    states = layout.states()
    if any(path.suffix == ".pt" for path in states.values()):
        imported = import_results(downloaded, run_id, results_dir=results_dir)
        parts = [part for conversion in imported.conversions.values() for part in conversion.left_out]
        return LoadedRun(imported.folder, snapshot.commit, (*left, *parts))
    for name, path in states.items():
        _check(name, path)
    saved_status(layout.status)
    with RunFolder.open(results_dir, run_id) as folder:
        for name in {*names, layout.configuration.name}:
            target = folder.path / name
            target.parent.mkdir(exist_ok=True)
            os.replace(downloaded / name, target)
    return LoadedRun(folder.path, snapshot.commit, left)


def _check(name: str, path: Path) -> None:
    """Raises UserError for a checkpoint that is damaged, of another behavior, or whose weights do not fit."""
    checkpoint = load_checkpoint(path)
    if checkpoint.behavior != name:
        raise UserError(f"checkpoint '{path.name}' of '{name}' is of behavior {quoted(checkpoint.behavior)}")
    Policy(checkpoint)


def _safe_options(configuration: Path, run_id: str) -> RunOptions:
    """The options of a downloaded run, without anything that a later command would start, open or write."""
    loaded = load_run_options(configuration)
    loaded.log(_logger)
    options = shared_options(loaded.options, run_id)
    env = options.env_settings.env_path
    if env is None or _PLAIN_ENV.fullmatch(env):
        return options
    _logger.warning("The run's environment %s is not taken over: name yours with --env.", quoted(env))
    simulators = options.env_settings.model_copy(update={"env_path": None})
    return options.model_copy(update={"env_settings": simulators})
