"""Errors that a user can mend: shown as one message, never as a traceback."""

from __future__ import annotations

import shlex


def suggested_command(*words: str) -> str:
    """Returns a command of ours that a user may copy: quoted for a shell, whatever run ids and paths are called."""
    return shlex.join(["mlagents-style", *words])


class UserError(Exception):
    """A request that cannot be fulfilled. The text names the thing, what was expected and what came."""

    exit_code = 2


class Interrupted(UserError):
    """A stop by Ctrl-C before there was anything to keep."""

    exit_code = 130


class OutOfMemory(UserError):
    """Too little memory on the device, or on this machine, for the configuration."""

    exit_code = 3


class LearnerRankLost(UserError):
    """A learner rank that ended, or stopped answering, while others needed it."""

    exit_code = 3


class ConfigError(UserError):
    """A configuration that cannot be used. One line for each thing wrong with it."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
