"""A run in segments: each resumes the one before it, with settings of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from trainer_service.config import LoadedOptions, RunOptions
from trainer_service.config.reading.document import Problem, dump_document, read_document
from trainer_service.config.reading.merge import merged
from trainer_service.config.reading.reporter import Reporter
from trainer_service.config.section import Section, plain_message, root_errors, section_error
from trainer_service.config.values import PositiveCount, Text
from trainer_service.errors import ConfigError, UserError
from trainer_service.experiments.space import with_values
from trainer_service.runs.layout import RunLayout

_RESUMED = {"checkpoint_settings": {"resume": True, "force": False, "initialize_from": None}}


class Segment(Section):
    """A part of a run, and the settings that hold in it."""

    until: PositiveCount | None = None
    """Agent steps of the behavior that has most at which it ends; null: with the run's budget."""

    settings: dict[Text, Any] = Field(default_factory=dict)
    """Values by dotted paths of the configuration, as ``--set`` takes them."""

    def overrides(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a command line's settings with those of the segment over them."""
        overrides = dict(given)
        if self.until is not None:
            overrides = merged(overrides, {"stop": {"steps": self.until}})
        return with_values(overrides, self.settings)


class Schedule(Section):
    """The segments of a run in their order."""

    segments: tuple[Segment, ...]
    """At least one. ``until`` increases; only the last segment may leave it out."""

    @model_validator(mode="after")
    def _segments_follow_each_other(self) -> Self:
        if not self.segments:
            raise section_error(("segments",), "expected at least one segment, got none")
        before = 0
        for number, segment in enumerate(self.segments):
            is_last = number == len(self.segments) - 1
            if segment.until is None and not is_last:
                raise section_error(
                    ("segments", number, "until"), "required in every segment but the last, but not given"
                )
            if segment.until is not None and segment.until <= before:
                raise section_error(
                    ("segments", number, "until"), f"expected more than {before}, got {segment.until}"
                )
            before = segment.until or before
        return self


def read_schedule(path: Path) -> Schedule:
    """Reads a schedule from a YAML file. Raises ConfigError with a line for each mistake."""
    document = read_document(path, "segments")
    mistakes = list(document.problems)
    try:
        schedule = Schedule.model_validate(document.values)
    except ValidationError as error:
        mistakes += [Problem(each["loc"], plain_message(each)) for each in root_errors(error)]
    if mistakes:
        raise ConfigError(*Reporter(document, {}).lines(mistakes))
    return schedule


def dump_schedule(segments: Iterable[Segment]) -> str:
    """Returns segments as the YAML that ``read_schedule`` reads."""
    plain = [segment.model_dump(mode="json", exclude_defaults=True) for segment in segments]
    return dump_document({"segments": plain})


def segment_overrides(schedule: Schedule, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the settings of each segment's run: all but the first resume it.

    Raises:
        UserError: the command line resumes from a certain checkpoint, which may be in any segment.
    """
    resume = given.get("checkpoint_settings", {}).get("resume")
    if resume not in (None, False, True, "true", "latest"):
        raise UserError(f"--schedule: expected --resume without a checkpoint, got --resume {resume}")
    first, *others = schedule.segments
    return [first.overrides(given), *(other.overrides(merged(given, _RESUMED)) for other in others)]


def segments_left(segments: list[LoadedOptions]) -> list[LoadedOptions]:
    """Returns the segments that a run has not completed: all of a new one, at least the last of a resumed one."""
    if not segments[0].options.checkpoint_settings.resume:
        return segments
    return [each for each in segments if not _is_complete(each.options)] or segments[-1:]


def _is_complete(options: RunOptions) -> bool:
    """Whether the run has been saved at the step where a segment ends."""
    if options.stop is None or options.stop.steps is None:
        return False
    saved = options.checkpoint_settings
    return saved_step(RunLayout(Path(saved.results_dir, saved.run_id))) >= options.stop.steps


def saved_step(layout: RunLayout) -> int:
    """Returns the step of the newest numbered checkpoint of any behavior; 0 without one."""
    steps = [layout.numbered_states(name) for name in layout.saved_behaviors()]
    return max((max(each) for each in steps if each), default=0)
