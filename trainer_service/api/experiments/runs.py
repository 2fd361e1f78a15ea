"""The runs of an experiment: their configuration, their folder, and where they are trained."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainer_service.api.arguments import nested, require_known
from trainer_service.api.configuration import Configuration, configuration_values
from trainer_service.api.environments import Environment
from trainer_service.api.run_arguments import SETTINGS, RunArguments
from trainer_service.config import validate_run_id
from trainer_service.errors import UserError
from trainer_service.experiments.jobs import Place

SpaceLike = str | os.PathLike[str] | Mapping[str, Any]
"""The types of ``space``: the path of a file, or a mapping with the structure of one."""

_OF_ONE_RUN = {"force", "inference", "initialize_from"}
"""Arguments of ``train`` that experiments do not have."""


def require_experiment_arguments(given: Mapping[str, Any], function: str) -> None:
    """Raises TypeError for an argument that ``train`` does not have, or that an experiment cannot use."""
    known = {name: kind for name, kind in RunArguments.__annotations__.items() if name not in _OF_ONE_RUN}
    require_known(given, known, function)


def experiment_folder(settings: Any, default: str) -> Path:
    """Takes the results folder and the run id out of settings. Returns the folder that they name.

    default: the run id where none is given.

    Raises:
        UserError: an impossible run id.
    """
    results_dir, name = settings.pop("results_dir", None), settings.pop("run_id", None)
    name = default if name is None else name
    validate_run_id(name)
    return Path("results" if results_dir is None else results_dir) / name


def runs_configuration(
    config: Configuration, settings: Mapping[str, Any], environment: Environment
) -> dict[str, Any]:
    """The configuration of all runs, nested as in a file: with the environment, and without what names one run.

    Raises:
        UserError: it cannot be used, or the environment is an object of this process.
    """
    if environment.given is not None:
        raise UserError(
            f"env: runs are trained in other processes, and '{environment.given.env}' is an object of this one: give "
            "it a name (gym:MODULE:FUNCTION)"
        )
    overrides = nested({**settings, "env_path": environment.env_path}, SETTINGS)
    configuration = configuration_values(config, overrides)
    saved = configuration.get("checkpoint_settings") or {}
    simulators = dict(configuration.get("env_settings") or {})
    if environment.env_args is not None or environment.env_kwargs is not None:
        simulators["env_args"] = [*environment.arguments(simulators.get("env_args"))]
    others = {key: value for key, value in configuration.items() if key != "checkpoint_settings"}
    kept = {key: value for key, value in saved.items() if key == "autosave_interval_s"}
    return {**others, "env_settings": simulators, **({"checkpoint_settings": kept} if kept else {})}


@contextmanager
def place_of_jobs(address: str | None, jobs: int, *, insecure: bool) -> Iterator[Place | None]:
    """Where jobs run for as long as the context lasts; None is this machine."""
    if address is None:
        yield None
        return
    from trainer_service.experiments.ray_jobs import ray_place

    with ray_place(address, jobs, insecure=insecure) as place:
        yield place
