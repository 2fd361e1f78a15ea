"""Messages about problems, each with the file, line and key where the value was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from trainer_service.config.reading.document import Document, Problem, dotted
from trainer_service.config.section import Location


class Reporter:
    """A reporter of problems by the origin of a value: the file, its default_settings or the command line."""

    def __init__(self, document: Document, overrides: Mapping[str, Any]) -> None:
        self._document = document
        self._overrides = overrides

    def lines(self, problems: Iterable[Problem]) -> tuple[str, ...]:
        """Returns one line for each problem, in the order of the file."""
        problems = list(problems)
        seen = set(problems)
        placed = [self._placed(problem, seen) for problem in problems]
        placed.sort(key=lambda problem: self._document.line_of(problem) or 0)
        return tuple(dict.fromkeys(self._line(problem) for problem in placed))

    def _placed(self, problem: Problem, seen: set[Problem]) -> Problem:
        """Returns the problem of an inherited value at default_settings, where it is reported once."""
        location = self._inherited_from(problem.location)
        if location is None:
            return problem
        in_defaults = replace(problem, location=location)
        if in_defaults in seen:
            return in_defaults
        return replace(in_defaults, text=f"{problem.text} (inherited by behavior '{problem.location[1]}')")

    def _inherited_from(self, location: Location) -> Location | None:
        if location[:1] != ("behaviors",) or len(location) < 3:
            return None
        inherited: Location = ("default_settings", *location[2:])
        own_depth = len(self._document.known_part(location)) - 2
        return inherited if len(self._document.known_part(inherited)) - 1 > max(own_depth, 0) else None

    def _line(self, problem: Problem) -> str:
        if problem.line is None and self._is_override(problem.location):
            return f"command line: {dotted(problem.location)}: {problem.text}"
        return self._document.at(problem)

    def _is_override(self, location: Location) -> bool:
        if location[-1:] == ("max_steps",) and "max_steps" in self._overrides:
            return True  # of every behavior
        values: Any = self._overrides
        for part in location:
            if not isinstance(values, Mapping):
                return True  # below a value that the command line gave, such as an entry of a list
            if part not in values:
                return False
            values = values[part]
        return bool(location) and not (isinstance(values, Mapping) and self._is_section(location))

    def _is_section(self, location: Location) -> bool:
        """Whether the file has a mapping there, with which that of the command line is merged."""
        values: Any = self._document.values
        for part in location:
            values = values.get(part) if isinstance(values, Mapping) else None
        return isinstance(values, Mapping)
