"""Checks of names that become folders: run ids and behavior names. None may lead out of the results folder."""

from __future__ import annotations

import sys
import unicodedata

from trainer_service.config.values import shown
from trainer_service.errors import ConfigError

_MAX_BYTES = 200
"""Limit of a name in bytes. File systems stop at 255, and suffixes such as ``-500000.onnx`` need room."""

_DEVICES = {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)}
_FORBIDDEN_ON_WINDOWS = '<>:"|?*'
_FILES_OF_A_RUN = {"run_logs", "configuration.yaml", "metrics.jsonl"}


def validate_run_id(run_id: str) -> None:
    """Raises ConfigError unless ``run_id`` can name one folder inside the results folder."""
    if reason := run_id_problem(run_id):
        raise ConfigError(f"run id {shown(run_id)} {reason}")


def validate_behavior_name(name: str) -> None:
    """Raises ConfigError unless ``name`` can name one folder inside a run's folder."""
    if reason := behavior_name_problem(name):
        raise ConfigError(f"behavior name {shown(name)} {reason}")


def run_id_problem(run_id: str, *, windows: bool = sys.platform == "win32") -> str | None:
    """Describes why a run id is refused, as the end of a sentence; None for a valid one."""
    if "/" in run_id or "\\" in run_id:
        return "must be one name without slashes; --results-dir says where its folder goes"
    if run_id.startswith("-"):
        return "must not start with '-', which would make it look like a flag"
    return _folder_name_problem(run_id, windows)


def behavior_name_problem(name: str, *, windows: bool = sys.platform == "win32") -> str | None:
    """Describes why a behavior name is refused, as the end of a sentence; None for a valid one."""
    if "/" in name or "\\" in name:
        return "must not contain slashes, because a folder is named after it"
    if "?" in name:
        return f"must not contain '?'; one entry serves every team, so write '{name.split('?')[0]}'"
    if name.lower() in _FILES_OF_A_RUN:
        return "must not be the name of a file that every run has"
    return _folder_name_problem(name, windows)


def _folder_name_problem(name: str, windows: bool) -> str | None:
    if not name.strip():
        return "must not be empty"
    # Before the checks of every character, because the name may come over the network.
    if (length := len(name.encode(errors="surrogatepass"))) > _MAX_BYTES:
        return f"must be at most {_MAX_BYTES} bytes long, got {length}"
    if name in {".", ".."}:
        return "must not be a folder's own name or its parent's"
    if name != name.strip():
        return "must not start or end with a space"
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in name):
        return "must not contain control characters"
    if name.split(".")[0].lower() in _DEVICES:
        return "must not be a device name of Windows"
    if windows and (name.endswith(".") or any(character in _FORBIDDEN_ON_WINDOWS for character in name)):
        return f"must not end with '.' or contain any of {_FORBIDDEN_ON_WINDOWS} on Windows"
    return None
