"""The options of a run, made from options, a file, a dictionary, or an environment alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer_service.commands.common.environments import (
    environment_of_resumed,
)
from trainer_service.config import LoadedOptions, RunOptions, load_run_options, parse_run_options
from trainer_service.config.hyperparameters.registry import HYPERPARAMETERS
from trainer_service.config.reading.document import read_document
from trainer_service.config.reading.merge import merged
from trainer_service.config.trainer import TrainerSettings
from trainer_service.errors import ConfigError, UserError

Configuration = RunOptions | Mapping[str, Any] | str | os.PathLike[str] | None
"""The types that ``train`` accepts as a configuration."""


def read_configuration(configuration: Configuration, overrides: Mapping[str, Any]) -> LoadedOptions:
    """The options of a run, with warnings for their author.

    Args:
        configuration: options; the path of a file, or the name of one that is bundled; a dictionary with the structure
            of a file, or with the settings of one behavior, which has a ``trainer_type``: then these are every
            behavior's, and sections of a file may stand beside them. None is the built-in settings.
        overrides: what lies over it, nested as in a file.

    Raises:
        UserError: it is none of these.
        ConfigError: one line for every mistake.
    """
    if isinstance(configuration, RunOptions):
        if not overrides:
            return LoadedOptions(configuration, ())
        changed = parse_run_options(configuration.model_dump(mode="json"), overrides, label="options")
        return LoadedOptions(changed.options, ())  # their author has read the warnings
    if isinstance(configuration, Mapping):
        return parse_run_options(_whole(configuration), overrides)
    if isinstance(configuration, str) and configuration.lower() in HYPERPARAMETERS:
        raise UserError(
            f"config: '{configuration}' is a trainer type; write "
            f'train({{"trainer_type": "{str(configuration).lower()}"}}, env=…)'
        )
    if configuration is not None and not isinstance(configuration, (str, os.PathLike)):
        raise UserError(
            "config: expected the path of a YAML file, the name of a ready one, a dictionary or RunOptions, "
            f"got {configuration!r:.80}"
        )
    return load_run_options(None if configuration is None else Path(configuration), overrides)


def read_run(configuration: Configuration, overrides: Mapping[str, Any]) -> LoadedOptions:
    """The options of a run that is to be trained: those read, and its own environment if it resumes without one."""
    if configuration is None:  # a resumed run keeps all of its own then
        return _without_configuration(overrides)
    loaded = read_configuration(configuration, overrides)
    own, note = environment_of_resumed(loaded.options, overrides)
    if own:
        loaded = read_configuration(configuration, merged({"env_settings": own}, overrides))
    was_read = (
        isinstance(configuration, RunOptions) and not overrides
    )  # by the command line, which has said so
    return loaded if was_read or not note else replace(loaded, notes=(note,))


def _without_configuration(overrides: Mapping[str, Any]) -> LoadedOptions:
    """The built-in settings below the overrides; without behaviors' settings that are not of the built-in trainer type.

    A suggestion, or the resumed run, may have another type, and is read with the overrides again.
    """
    try:
        return load_run_options(None, overrides)
    except ConfigError:
        others = {
            key: value for key, value in overrides.items() if key not in ("behaviors", "default_settings")
        }
        return load_run_options(None, others)


def configuration_values(configuration: Configuration, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the overrides, as a mapping with the structure of a file; defaults stay unwritten.

    Raises:
        UserError: as ``read_configuration``.
    """
    read_configuration(configuration, overrides)
    values: Mapping[str, Any] = {"default_settings": {}}
    if isinstance(configuration, RunOptions):
        values = configuration.model_dump(mode="json")
    elif isinstance(configuration, Mapping):
        values = _whole(configuration)
    elif configuration is not None:
        values = read_document(Path(configuration)).values
    return dict(merged(values, overrides))


def _whole(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """The dictionary with the structure of a file, whose settings of every behavior may lie among its sections."""
    if "trainer_type" not in configuration:
        _refuse_settings_of_a_behavior(configuration)
        return configuration
    sections = {key: value for key, value in configuration.items() if key in RunOptions.model_fields}
    settings = {key: value for key, value in configuration.items() if key not in sections}
    return {**sections, "default_settings": settings}


def _refuse_settings_of_a_behavior(configuration: Mapping[str, Any]) -> None:
    """Raises ConfigError for a dictionary that has the settings of one behavior, and no behaviors."""
    if configuration.keys() & {"behaviors", "default_settings"}:
        return
    for key in configuration:
        if key in TrainerSettings.model_fields:
            raise ConfigError(
                f"configuration: {key}: unknown key; settings of one behavior need 'trainer_type', such as 'ppo'"
            )
