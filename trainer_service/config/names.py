"""Checks of names that become folders: run ids and behavior names. None may lead out of the results folder."""

from __future__ import annotations

import sys

from trainer_service.config.values import shown
from trainer_service.errors import ConfigError
from unity_bridge.names import folder_name_problem, name_problem

STATE_SUFFIXES = (".safetensors", ".pt")
"""Ends of the names of states: of this trainer's, and of ML-Agents'."""


def validate_run_id(run_id: str) -> None:
    """Raises ConfigError unless ``run_id`` can name one folder inside the results folder."""
    if reason := run_id_problem(run_id):
        raise ConfigError(f"run id {shown(run_id)} {reason}")


def validate_behavior_name(name: str) -> None:
    """Raises ConfigError unless ``name`` can name one folder inside a run's folder."""
    if reason := name_problem(name):
        raise ConfigError(f"behavior name {shown(name)} {reason}")


def run_id_problem(run_id: str, *, windows: bool = sys.platform == "win32") -> str | None:
    """Describes why a run id is refused, as the end of a sentence; None for a valid one."""
    if "/" in run_id or "\\" in run_id:
        return "must be one name without slashes; --results-dir says where its folder goes"
    return folder_name_problem(run_id, windows=windows)
