"""Mistakes that a person can mend: shown as one message, never as a traceback."""

from __future__ import annotations


class UserError(Exception):
    """Something the user asked for cannot be done. The text names the thing, what was expected and what came."""

    exit_code = 2


class OutOfMemory(UserError):
    """The device, or this machine, has not the memory that the configuration asks for."""

    exit_code = 3


class ConfigError(UserError):
    """A configuration that cannot be used. One line for each thing wrong with it."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
