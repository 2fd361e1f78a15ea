"""Validating configuration files without running them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trainer_service.config.reading.demo_files import missing_demonstrations
from trainer_service.config.reading.document import read_document
from trainer_service.config.reading.loader import options_from_document
from trainer_service.errors import ConfigError


@dataclass(frozen=True)
class FileCheck:
    """The verdict on one file."""

    path: Path

    errors: tuple[str, ...] = ()
    """One line for each mistake. A file with any cannot be used."""

    warnings: tuple[str, ...] = ()
    """One line for each oddity."""

    @property
    def ok(self) -> bool:
        """Whether the file is valid."""
        return not self.errors

    def __str__(self) -> str:
        """One line: the path and the verdict."""
        if self.errors:
            return f"{self.path}: {_count(len(self.errors), 'error')}"
        remarks = [_count(len(self.warnings), "warning")] if self.warnings else []
        return f"{self.path}: ok" + (f" ({', '.join(remarks)})" if remarks else "")

    @property
    def details(self) -> tuple[str, ...]:
        """What lies behind the verdict, a line each."""
        return (*self.errors, *self.warnings)


def check_files(paths: Iterable[Path]) -> list[FileCheck]:
    """The verdict on each file, in the order given."""
    return [_check_file(path) for path in paths]


def _check_file(path: Path) -> FileCheck:
    try:
        loaded = options_from_document(read_document(path))
    except ConfigError as error:
        return FileCheck(path, errors=error.problems)
    # Nothing is wrong with the file where they are missing: they may be recorded, or elsewhere, when it is used.
    missing = (f"{path}: {each}" for each in missing_demonstrations(loaded.options))
    return FileCheck(path, warnings=(*loaded.warnings, *missing))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
