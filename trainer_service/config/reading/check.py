"""Whether configurations can be used: their files without a run, and the demonstrations that they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_service.config.hyperparameters.off_policy import ReplayHyperparameters
from trainer_service.config.reading.advice import without_updates
from trainer_service.config.reading.document import read_document
from trainer_service.config.reading.loader import options_from_document
from trainer_service.config.rewards import GAILSettings
from trainer_service.config.run_options import RunOptions
from trainer_service.config.trainer import TrainerSettings
from trainer_service.errors import ConfigError

_DEMO_SUFFIX = ".demo"
"""As ``unity_bridge.demonstrations`` has it: to import that takes longer than to read a configuration."""


@dataclass(frozen=True)
class FileCheck:
    """The result of checking one file."""

    path: Path

    errors: tuple[str, ...] = ()
    """One line for each mistake. A file with mistakes cannot be used."""

    warnings: tuple[str, ...] = ()
    """One line for each oddity."""

    @property
    def ok(self) -> bool:
        """Whether the file is valid."""
        return not self.errors

    def __str__(self) -> str:
        """Returns one line: the path and the result."""
        if self.errors:
            return f"{self.path}: {_count(len(self.errors), 'error')}"
        remarks = [_count(len(self.warnings), "warning")] if self.warnings else []
        return f"{self.path}: ok" + (f" ({', '.join(remarks)})" if remarks else "")

    @property
    def details(self) -> tuple[str, ...]:
        """The errors and warnings, a line each."""
        return (*self.errors, *self.warnings)

    def to_json(self) -> dict[str, Any]:
        """The result as ``check --json`` prints it for each file."""
        return {
            "file": str(self.path),
            "ok": self.ok,
            "errors": list(self.errors),
            "warnings": list(self.warnings),
        }


def check_files(paths: Iterable[Path]) -> list[FileCheck]:
    """Checks each file, in the order given."""
    return [_check_file(path) for path in paths]


def missing_demonstrations(options: RunOptions, steps: Mapping[str, int] | None = None) -> list[str]:
    """Lists every ``demo_path`` that leads to no .demo file and no folder with one, each by its key.

    Relative paths start from the current folder. ``default_settings`` count where no behavior is listed; beside
    listed ones it is unknown whether a behavior will use them. steps: the steps of resumed behaviors; cloning that
    has faded out by then needs no files any more.
    """
    missing: list[str] = []
    for name, settings in options.behaviors.items():
        missing += _missing(f"behaviors.{name}", settings, (steps or {}).get(name, 0))
    if not options.behaviors and options.default_settings is not None:
        missing += _missing("default_settings", options.default_settings, 0)
    return missing


def _missing(path: str, settings: TrainerSettings, step: int) -> Iterator[str]:
    for key, demo_path in _demo_paths(settings, step):
        if fault := _fault(Path(demo_path)):
            yield f"{path}.{key}: expected a {_DEMO_SUFFIX} file or a folder of them, {fault}"


def _demo_paths(settings: TrainerSettings, step: int) -> Iterator[tuple[str, str]]:
    for name, signal in settings.reward_signals.items():
        if isinstance(signal, GAILSettings):
            yield f"reward_signals.{name}.demo_path", signal.demo_path
    cloning = settings.behavioral_cloning
    if cloning is not None and not cloning.has_faded_out(step):
        yield "behavioral_cloning.demo_path", cloning.demo_path
    hyper = settings.hyperparameters
    if isinstance(hyper, ReplayHyperparameters) and hyper.replay.demo_path is not None:
        yield "hyperparameters.replay.demo_path", hyper.replay.demo_path


def _fault(path: Path) -> str | None:
    if path.is_dir():
        return None if any(path.glob(f"*{_DEMO_SUFFIX}")) else f"the folder '{path}' holds none"
    if not path.exists():
        return f"'{path}' does not exist" + ("" if path.is_absolute() else f" in '{Path.cwd()}'")
    return None if path.suffix == _DEMO_SUFFIX else f"got '{path}'"


def _check_file(path: Path) -> FileCheck:
    try:
        loaded = options_from_document(read_document(path))
    except ConfigError as error:
        return FileCheck(path, errors=error.problems)
    # Nothing is wrong with the file where they are missing: they may be recorded, or elsewhere, when it is used.
    options = loaded.options
    missing = (f"{path}: {each}" for each in (*missing_demonstrations(options), *without_updates(options)))
    return FileCheck(path, warnings=(*loaded.warnings, *missing))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
