"""Runs made from the untrusted files of a repository: everything is checked before a run is there."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path

from trainer_service.commands.share.package import MODEL, is_shared, shared_options, write_models
from trainer_service.commands.share.repository import RepositorySnapshot
from trainer_service.config import RunOptions, TrainerSettings, dump_run_options, load_run_options
from trainer_service.config.run_options import EnvironmentSettings
from trainer_service.errors import UserError
from trainer_service.running.interop.mlagents_results import import_results
from trainer_service.running.policy import Policy
from trainer_service.running.runs.checkpoint import load_checkpoint
from trainer_service.running.runs.files import write_atomic
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.layout import RunLayout, numbered_name
from trainer_service.running.runs.status import saved_status
from unity_bridge.untrusted_text import quoted

_OF_MLAGENTS = re.compile(r"[^/]+/checkpoint\.pt")
_PLAIN_ENV = re.compile(r"sim:[\w-]+|gym:[\w.-]+(/[\w.-]+)?")
"""Environments that a loaded run may name: a bundled scene, or one that is registered with Gymnasium."""

_SAVES = ("keep_checkpoints", "even_checkpoints", "checkpoint_interval")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run that was made from a repository."""

    folder: Path
    commit: str
    """The commit of the repository."""
    left_out: tuple[str, ...]
    """Files of the repository that are not taken over, and parts of ML-Agents' checkpoints."""


def wanted_files(snapshot: RepositorySnapshot) -> list[str]:
    """The files of a repository that a run is made from: the allow-list, or ML-Agents' own files.

    Raises UserError where the repository has no configuration or no checkpoint.
    """
    names = sorted(snapshot.sizes)
    if "configuration.yaml" not in names:
        raise UserError(f"repository '{snapshot.repo_id}': expected a run, found no configuration.yaml")
    ours = [name for name in names if is_shared(name) and not name.endswith(MODEL)]
    if any(name.endswith("/checkpoint.safetensors") for name in ours):
        return ours
    theirs = [name for name in names if _OF_MLAGENTS.fullmatch(name)]
    if not theirs:
        raise UserError(
            f"repository '{snapshot.repo_id}': expected a checkpoint (NAME/checkpoint.safetensors, or checkpoint.pt of "
            f"ML-Agents), found {len(names)} other files"
        )
    models = [name for name in names if any(_is_model_of(path.partition("/")[0], name) for path in theirs)]
    return [*ours, *theirs, *models]


def make_run(downloaded: Path, snapshot: RepositorySnapshot, run_id: str, *, results_dir: Path) -> LoadedRun:
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
    models = [model for name, path in states.items() for model in write_models(_checked(name, path), layout)]
    saved_status(layout.status)
    with RunFolder.open(results_dir, run_id) as folder:
        for name in {*names, *models, layout.configuration.name}:
            target = folder.path / name
            target.parent.mkdir(exist_ok=True)
            os.replace(downloaded / name, target)
    return LoadedRun(folder.given, snapshot.commit, tuple(name for name in left if name not in models))


def _is_model_of(behavior: str, name: str) -> bool:
    """Whether a file is an exported model of a behavior, by its name."""
    is_numbered = numbered_name(behavior).fullmatch(name.removeprefix(f"{behavior}/")) is not None
    return name == behavior + MODEL or (is_numbered and name.endswith(MODEL))


def _checked(name: str, path: Path) -> Policy:
    """The policy of a checkpoint. Raises UserError for one that is damaged, of another behavior, or does not fit."""
    checkpoint = load_checkpoint(path)
    if checkpoint.behavior != name:
        raise UserError(f"checkpoint '{path.name}' of '{name}' is of behavior {quoted(checkpoint.behavior)}")
    return Policy(checkpoint)


def _safe_options(configuration: Path, run_id: str) -> RunOptions:
    """The options of a downloaded run, without anything that a later command would start, open or write.

    It also removes numbers of simulators, restarts, evaluations and saves, which cost the loading machine and teach
    nothing.
    """
    loaded = load_run_options(configuration)
    loaded.log(_logger)
    options = shared_options(loaded.options, run_id)
    given = options.env_settings
    env = given.env_path
    if env is not None and not _PLAIN_ENV.fullmatch(env):
        _logger.warning("The run's environment %s is not taken over: name yours with --env.", quoted(env))
        env = None
    saves = {key: TrainerSettings.model_fields[key].default for key in _SAVES}
    changes = {
        "env_settings": EnvironmentSettings(
            env_path=env, picture_layout=given.picture_layout, seed=given.seed
        ),
        "evaluation": None,
        "behaviors": {name: each.model_copy(update=saves) for name, each in options.behaviors.items()},
        "default_settings": options.default_settings and options.default_settings.model_copy(update=saves),
    }
    return options.model_copy(update=changes)
