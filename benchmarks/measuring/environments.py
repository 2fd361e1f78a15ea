"""Virtual environments for the peers of the comparisons: their pins and ours exclude each other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

_STEP_TIMEOUT_S = 1800.0
_LAST_LINES = 4

Say = Callable[[str], None]


class InstallationFailed(Exception):
    """A step of it failed. The text has the last lines of its output."""


def make(environment: Path, python: Path, installs: Sequence[Sequence[str]], log: Path, say: Say) -> None:
    """Makes a virtual environment, in the place of one that may be there.

    Args:
        environment: where.
        python: the interpreter it is of.
        installs: what pip is told, one tuple of arguments per call.
        log: takes everything that is printed.
        say: is told each step.

    Raises:
        InstallationFailed: a step failed.
    """
    shutil.rmtree(environment, ignore_errors=True)
    environment.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    run_logged([str(python), "-m", "venv", str(environment)], log)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--no-input", "--progress-bar=off"]
    for number, arguments in enumerate(installs, 1):
        say(f"  {number}/{len(installs)}: pip install {' '.join(arguments)}")
        run_logged([*pip, *arguments], log)


def run_logged(command: Sequence[str], log: Path) -> None:
    """Raises InstallationFailed, with the last lines of its output, if the command fails."""
    # A path that was set for our packages must not lead pip, or what it installs, to them.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        with log.open("ab") as output:
            subprocess.run(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=clean,
                timeout=_STEP_TIMEOUT_S,
                check=True,
            )
    except (subprocess.SubprocessError, OSError) as error:
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        reason = "\n    ".join([f"{error}", *said])
        raise InstallationFailed(f"installation failed (all of it is in {log}):\n    {reason}") from error


def interpreters(version: tuple[int, int]) -> Iterator[Path]:
    """Interpreters of this version that start, the likeliest first."""
    return (path for path in _candidates(version) if version_of(path) == version)


def _candidates(version: tuple[int, int]) -> Iterator[Path]:
    name = dotted(version)
    yield Path(sys.executable)
    if found := shutil.which(f"python{name}"):
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/{name}.*/bin/python"), reverse=True)
    if uv := shutil.which("uv"):
        found = _output_of([uv, "python", "find", name])
        if not found and _output_of([uv, "python", "install", name]) is not None:
            found = _output_of([uv, "python", "find", name])
        if found:
            yield Path(found)


def version_of(python: Path) -> tuple[int, int] | None:
    """Of an interpreter; None if it does not start."""
    said = _output_of([str(python), "-c", "import sys; print(*sys.version_info[:2])"])
    if not said:
        return None
    major, minor = said.split()
    return int(major), int(minor)


def _output_of(command: Sequence[str]) -> str | None:
    """Its output, stripped; None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_STEP_TIMEOUT_S, check=True)
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout.strip()


def dotted(version: tuple[int, int]) -> str:
    """3.10, say."""
    return ".".join(map(str, version))
