"""The command ``alias``: ``mlagents-learn`` as another name of ``mlagents-style learn``, switched on and off."""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from pathlib import Path
from typing import Annotated

from trainer_service.commands.common.command import Flag
from trainer_service.commands.common.output import say
from trainer_service.errors import UserError

ALIAS = "mlagents-learn"
_MARK = "written by: mlagents-style alias"
"""The line that distinguishes our script from the program of ML-Agents."""


def switch_alias(
    *,
    on: Annotated[bool, Flag("switch it off again", names="--remove")] = True,
) -> None:  # fmt: skip
    """Lets mlagents-learn be another name of learn, for old scripts.

    The script stands beside the program ``mlagents-style``, in its environment only.

    Raises:
        UserError: the program is not installed, or the real ``mlagents-learn`` is; or nothing can be written there.
    """
    program = _program()
    script = program.with_name(f"{ALIAS}.cmd" if sys.platform == "win32" else ALIAS)
    _require_ours(program.with_name(f"{ALIAS}.exe"))
    _require_ours(script)
    try:
        if on:
            script.write_text(_script(program), encoding="utf-8")
            script.chmod(0o755)
        else:
            script.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{script}: cannot be changed: {error.strerror or error}") from None
    say(f"{ALIAS} is now mlagents-style learn: {script}" if on else f"{ALIAS} is no command of ours any more")


def _program() -> Path:
    """The program that was called, or the one in this environment where Python was."""
    folders = (Path(os.path.abspath(sys.argv[0])).parent, Path(sysconfig.get_path("scripts")))
    names = ("mlagents-style", "mlagents-style.exe")
    found = [folder / name for folder in folders for name in names if (folder / name).is_file()]
    if not found:
        raise UserError(f"no program mlagents-style in {folders[-1]}: install this package there first")
    return found[0]


def _require_ours(script: Path) -> None:
    """Raises UserError where a program of that name is not our script."""
    if script.exists() and _MARK.encode() not in script.read_bytes():
        raise UserError(
            f"{script} is ML-Agents' own program, which stays as it is; for the alias, install this package in an "
            "environment without the package mlagents"
        )


def _script(program: Path) -> str:
    if sys.platform == "win32":
        return f'@rem {_MARK}\n@"{program}" learn %*\n'
    return f'#!/bin/sh\n# {_MARK}\nexec {shlex.quote(str(program))} learn "$@"\n'
