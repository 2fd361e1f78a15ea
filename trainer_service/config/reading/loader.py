"""The loader of RunOptions from a YAML file and the command line; it reports all mistakes at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainer_service.config.reading.advice import advice
from trainer_service.config.reading.document import Document, Problem, dump_document, read_document
from trainer_service.config.reading.legacy import modernized
from trainer_service.config.reading.merge import combined
from trainer_service.config.reading.reporter import Reporter
from trainer_service.config.reading.used_plugins import changed_versions, missing_problems
from trainer_service.config.run_options import RunOptions
from trainer_service.config.section import Location, plain_message, root_errors
from trainer_service.errors import ConfigError
from unity_bridge.names import did_you_mean

_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class LoadedOptions:
    """The options of a run, with warnings for their author."""

    options: RunOptions

    warnings: tuple[str, ...]
    """One line each, with file and line."""

    notes: tuple[str, ...] = ()
    """One line each: choices that were made for the user."""

    def log(self, logger: logging.Logger) -> None:
        """Logs the warnings and the notes."""
        for warning in self.warnings:
            logger.warning("%s", warning)
        for note in self.notes:
            logger.info("%s", note)


def load_run_options(path: str | Path | None, overrides: Mapping[str, Any] = _NOTHING) -> LoadedOptions:
    """Loads the options of a run.

    Args:
        path: a YAML file; None trains any behavior with the built-in defaults.
        overrides: the settings of the command line, nested as in the file; it wins over the file. Besides the
            file's keys it may hold ``deterministic``, which then holds for every behavior.

    Raises:
        ConfigError: one line for every mistake, with file, line, path, what was expected and what came.
    """
    document = (
        Document("built-in defaults", {"default_settings": {}}) if path is None else read_document(Path(path))
    )
    return options_from_document(document, overrides)


def parse_run_options(
    values: Mapping[str, Any], overrides: Mapping[str, Any] = _NOTHING, *, label: str = "configuration"
) -> LoadedOptions:
    """Reads options from a mapping with the structure of the YAML file.

    Args:
        values: the mapping.
        overrides: as for ``load_run_options``.
        label: names the mapping in messages.

    Raises:
        ConfigError: one line for every mistake.
    """
    return options_from_document(Document(label, dict(values)), overrides)


def options_from_document(document: Document, overrides: Mapping[str, Any] = _NOTHING) -> LoadedOptions:
    """Combines a document and the command line. Raises ConfigError with all mistakes."""
    reporter = Reporter(document, overrides)
    modern, notices = modernized(document.values)
    raw = combined(modern, overrides)
    try:
        options = RunOptions.model_validate(raw)
    except ValidationError as error:
        problems = [*document.problems, *_mistakes(error), *missing_problems(raw)]
        raise ConfigError(*reporter.lines(problems)) from None
    if problems := [*document.problems, *_unlisted(modern, overrides)]:
        raise ConfigError(*reporter.lines(problems))
    options, conflicts = _with_one_start(options, overrides)
    oddities = [*_untyped(raw), *conflicts, *advice(options), *changed_versions(options)]
    return LoadedOptions(options, reporter.lines([*notices, *oddities]))


def dump_run_options(options: RunOptions) -> str:
    """Returns ``options`` as YAML with every default written out, which loads as equal options."""
    return dump_document(options.model_dump(mode="json"))


def _mistakes(error: ValidationError) -> Iterator[Problem]:
    for details in root_errors(error):
        # pydantic marks a mapping's bad key, as opposed to the value under it, with one more step
        location: Location = tuple(part for part in details["loc"] if part != "[key]")
        yield Problem(location, plain_message(details))


def _with_one_start(options: RunOptions, overrides: Mapping[str, Any]) -> tuple[RunOptions, list[Problem]]:
    """Keeps one of ``resume`` and ``initialize_from``: that of the command line, or else ``resume``."""
    settings = options.checkpoint_settings
    if not settings.resume or settings.initialize_from is None:
        return options, []
    command_line = overrides.get("checkpoint_settings", _NOTHING)
    kept: dict[str, Any]
    if "initialize_from" in command_line and "resume" not in command_line:
        kept, dropped = {"resume": False}, "resume"
    else:
        kept, dropped = {"initialize_from": None}, "initialize_from"
    text = f"both resume and initialize_from='{settings.initialize_from}' are set; {dropped} is ignored"
    options = options.model_copy(update={"checkpoint_settings": settings.model_copy(update=kept)})
    return options, [Problem(("checkpoint_settings",), text)]


def _untyped(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Yields a warning for hyperparameters without a trainer_type. ``raw`` is valid."""
    places: list[tuple[Location, Any]] = [(("default_settings",), raw.get("default_settings"))]
    places += ((("behaviors", name), behavior) for name, behavior in raw.get("behaviors", {}).items())
    for location, behavior in places:
        if behavior and "hyperparameters" in behavior and "trainer_type" not in behavior:
            yield Problem(
                (*location, "hyperparameters"), "no trainer_type is given, so these are read as ppo's"
            )


def _unlisted(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> Iterator[Problem]:
    """Yields a mistake for each behavior that the command line sets something of, and that would come of nowhere."""
    listed = values.get("behaviors") or _NOTHING
    if "default_settings" in values or "default_settings" in overrides:
        return  # any behavior may show up
    for name in overrides.get("behaviors", _NOTHING):
        if name not in listed:
            text = "the command line names a behavior that the file does not list"
            yield Problem(("behaviors", name), text + did_you_mean(name, listed))
